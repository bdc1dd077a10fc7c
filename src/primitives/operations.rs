use std::collections::HashMap;
use std::time::Duration;

use super::{ServiceEstimate, Time};

/// How many operations are known by name at once.
const MOST: usize = 64;

/// The service times of named operations, and of all together.
///
/// Operations that are named beyond the 64 take the place of the one that was not
/// used for longest and has no members, or are counted as unnamed, so that names
/// made up by strangers cost no memory.
#[derive(Debug)]
pub(crate) struct Operations {
    all: ServiceEstimate,
    named: Vec<Named>,
    places: HashMap<Box<str>, OperationId>,
    uses: u64,
}

/// Which operation: of the unnamed or one of the named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationId(u8);

impl OperationId {
    pub(crate) const UNNAMED: Self = Self(0);

    fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// How many there can be.
    pub(crate) const COUNT: usize = MOST + 1;

    /// Below [`COUNT`](Self::COUNT).
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn at(index: usize) -> Option<Self> {
        (index < Self::COUNT).then(|| u8::try_from(index).ok().map(Self)).flatten()
    }
}

#[derive(Debug)]
struct Named {
    name: Box<str>,
    estimate: ServiceEstimate,
    /// How many items wait, and how much work is under way.
    members: u64,
    used: u64,
}

impl Operations {
    pub(crate) fn new() -> Self {
        Self { all: ServiceEstimate::new(), named: Vec::new(), places: HashMap::new(), uses: 0 }
    }

    /// One more member of the operation of that name.
    pub(crate) fn enter(&mut self, name: Option<&str>) -> OperationId {
        let Some(name) = name else {
            return OperationId::UNNAMED;
        };
        let id = match self.places.get(name) {
            Some(&id) => id,
            None => self.make(name),
        };
        self.uses += 1;
        let uses = self.uses;
        if let Some(named) = self.find(id) {
            named.members += 1;
            named.used = uses;
        }
        id
    }

    /// A member that left a moment ago comes back.
    pub(crate) fn enter_again(&mut self, id: OperationId) {
        if let Some(named) = self.find(id) {
            named.members += 1;
        }
    }

    pub(crate) fn leave(&mut self, id: OperationId) {
        if let Some(named) = self.find(id) {
            named.members = named.members.saturating_sub(1);
        }
    }

    /// Forgets all members.
    pub(crate) fn leave_all(&mut self) {
        for named in &mut self.named {
            named.members = 0;
        }
    }

    /// Learns from one sample.
    pub(crate) fn record(&mut self, id: OperationId, now: Time, service: Duration, loaded: bool) {
        self.all.record(now, service, loaded);
        if let Some(named) = self.find(id) {
            named.estimate.record(now, service, loaded);
        }
    }

    /// From when on it is too late to begin work that is to be done by `deadline`.
    pub(crate) fn too_late_at(&self, id: OperationId, deadline: Time) -> Time {
        self.service(id).too_late_at(deadline)
    }

    /// The same of the operation of that name.
    pub(crate) fn too_late_at_for(&self, name: Option<&str>, deadline: Time) -> Time {
        let id = match name {
            Some(name) => self.places.get(name).copied(),
            None => Some(OperationId::UNNAMED),
        };
        id.map_or(deadline, |id| self.too_late_at(id, deadline))
    }

    /// What is known of an operation; of the unnamed, of all together.
    fn service(&self, id: OperationId) -> &ServiceEstimate {
        let named = id.place().and_then(|place| self.named.get(place));
        named.map_or(&self.all, |named| &named.estimate)
    }

    /// All together.
    pub(crate) const fn all(&self) -> &ServiceEstimate {
        &self.all
    }

    fn find(&mut self, id: OperationId) -> Option<&mut Named> {
        id.place().and_then(|place| self.named.get_mut(place))
    }

    fn make(&mut self, name: &str) -> OperationId {
        let fresh =
            Named { name: name.into(), estimate: ServiceEstimate::new(), members: 0, used: 0 };
        let place = if self.named.len() < MOST {
            self.named.push(fresh);
            self.named.len() - 1
        } else {
            let idle = { self.named.iter_mut().enumerate() }
                .filter(|(_, named)| named.members == 0)
                .min_by_key(|(_, named)| named.used);
            let Some((place, oldest)) = idle else {
                return OperationId::UNNAMED;
            };
            let forgotten = std::mem::replace(oldest, fresh);
            self.places.remove(&forgotten.name);
            place
        };
        // A place is below 64.
        let id = OperationId(u8::try_from(place + 1).unwrap_or(0));
        self.places.insert(name.into(), id);
        id
    }
}
