use std::time::Duration;

use super::names::{Names, put};
use super::{Certainty, ServiceEstimate, Time};

/// The service times of named operations, and of all together.
///
/// Operations that are named beyond the 64 take the place of the one that was not
/// used for longest and has no members, or are counted as unnamed, so that names
/// made up by strangers cost no memory.
#[derive(Debug)]
pub(crate) struct Operations {
    all: ServiceEstimate,
    named: Vec<Named>,
    places: Names,
    uses: u64,
}

/// Which operation: of the unnamed or one of the named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationId(u8);

impl OperationId {
    pub(crate) const UNNAMED: Self = Self(0);

    fn of(place: usize) -> Self {
        // A place is below 64.
        Self(u8::try_from(place + 1).unwrap_or(0))
    }

    fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// How many there can be.
    pub(crate) const COUNT: usize = Names::MOST + 1;

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
    estimate: ServiceEstimate,
    /// How many items wait, and how much work is under way.
    members: u64,
    used: u64,
}

impl Operations {
    pub(crate) fn new() -> Self {
        Self { all: ServiceEstimate::new(), named: Vec::new(), places: Names::default(), uses: 0 }
    }

    /// One more member of the operation of that name.
    pub(crate) fn enter(&mut self, name: Option<&str>) -> OperationId {
        let Some(name) = name else {
            return OperationId::UNNAMED;
        };
        let id = match self.places.find(name) {
            Some(place) => OperationId::of(place),
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

    /// Learns from one sample; answers are of use for as long as `useful`.
    pub(crate) fn record(
        &mut self,
        id: OperationId,
        now: Time,
        service: Duration,
        loaded: bool,
        useful: Duration,
    ) {
        self.all.set_useful(useful);
        self.all.record(now, service, loaded);
        if let Some(named) = self.find(id) {
            named.estimate.set_useful(useful);
            named.estimate.record(now, service, loaded);
        }
    }

    /// From when on it is too late to begin work that is to be done by `deadline`.
    pub(crate) fn too_late_at(
        &self,
        id: OperationId,
        deadline: Time,
        certainty: Certainty,
    ) -> Time {
        self.service(id).too_late_at(deadline, certainty)
    }

    /// The same of the operation of that name.
    pub(crate) fn too_late_at_for(
        &self,
        name: Option<&str>,
        deadline: Time,
        certainty: Certainty,
    ) -> Time {
        let id = match name {
            Some(name) => self.places.find(name).map(OperationId::of),
            None => Some(OperationId::UNNAMED),
        };
        id.map_or(deadline, |id| self.too_late_at(id, deadline, certainty))
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

    #[cold]
    fn make(&mut self, name: &str) -> OperationId {
        let named = &self.named;
        let idle = || {
            let idle = named.iter().enumerate().filter(|(_, named)| named.members == 0);
            idle.min_by_key(|(_, named)| named.used).map(|(place, _)| place)
        };
        let Some(place) = self.places.make(name, idle) else {
            return OperationId::UNNAMED;
        };
        let fresh = Named { estimate: ServiceEstimate::new(), members: 0, used: 0 };
        put(&mut self.named, place, fresh);
        OperationId::of(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = Time::from_nanos(1_000_000_000);
    const MOST: usize = Names::MOST;
    const SPAN: Duration = Duration::from_secs(1);

    fn learn(operations: &mut Operations, id: OperationId) {
        for _ in 0..20 {
            operations.record(id, Time::ZERO, Duration::from_millis(100), false, SPAN);
        }
    }

    fn is_known(operations: &Operations, name: &str) -> bool {
        operations.too_late_at_for(Some(name), SECOND, Certainty::High) < SECOND
    }

    #[test]
    fn names_made_up_by_strangers_cost_no_memory() {
        let mut operations = Operations::new();
        for name in 0..10_000 {
            let id = operations.enter(Some(&name.to_string()));
            operations.record(id, Time::ZERO, Duration::from_millis(100), false, SPAN);
            operations.leave(id);
            assert!(id.index() < OperationId::COUNT);
        }
        assert_eq!((operations.named.len(), operations.places.iter().count()), (MOST, MOST));
        assert!(operations.named.iter().all(|named| named.members == 0));
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_makes_room() {
        let mut operations = Operations::new();
        for name in 0..MOST {
            let id = operations.enter(Some(&name.to_string()));
            learn(&mut operations, id);
            operations.leave(id);
        }
        // 0 is used again, and 1 has a member.
        let zero = operations.enter(Some("0"));
        operations.leave(zero);
        operations.enter(Some("1"));
        for name in ["a", "b"] {
            assert!(!is_known(&operations, name));
            let id = operations.enter(Some(name));
            operations.leave(id);
            assert!(!is_known(&operations, name), "it is another one");
        }
        for (name, is_expected) in [("0", true), ("1", true), ("2", false), ("3", false)] {
            assert_eq!(operations.places.find(name).is_some(), is_expected, "{name}");
            assert_eq!(is_known(&operations, name), is_expected, "{name}");
        }
    }

    #[test]
    fn where_all_are_busy_others_count_as_unnamed() {
        let mut operations = Operations::new();
        for name in 0..MOST {
            let id = operations.enter(Some(&name.to_string()));
            assert_ne!(id, OperationId::UNNAMED);
        }
        let id = operations.enter(Some("another"));
        assert_eq!(id, OperationId::UNNAMED);
        learn(&mut operations, id);
        assert!(operations.too_late_at(id, SECOND, Certainty::High) < SECOND);
        operations.leave(id);
        operations.leave_all();
        assert_ne!(operations.enter(Some("another")), OperationId::UNNAMED);
    }
}
