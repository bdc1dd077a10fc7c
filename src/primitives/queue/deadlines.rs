use std::collections::BTreeSet;

use crate::primitives::Time;
use crate::primitives::operations::OperationId;

/// The deadlines of waiting items, earliest first within each group: the items of
/// one operation are judged by the same estimate, so that the earliest deadline is
/// the first to be hopeless.
#[derive(Debug)]
pub(crate) struct Deadlines {
    groups: Vec<BTreeSet<(Time, u32)>>,
    /// The groups that have any.
    used: Vec<usize>,
}

/// Those that are not judged by an estimate come after those of the operations.
const UNJUDGED: usize = OperationId::COUNT;

/// An operation, or none for those that are not judged.
pub(crate) type Group = Option<OperationId>;

impl Deadlines {
    pub(crate) const fn new() -> Self {
        Self { groups: Vec::new(), used: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    pub(crate) fn insert(&mut self, group: Group, deadline: Time, key: u32) {
        if self.groups.is_empty() {
            self.groups.resize_with(UNJUDGED + 1, BTreeSet::new);
        }
        let index = group.map_or(UNJUDGED, OperationId::index);
        if self.groups[index].is_empty() {
            self.used.push(index);
        }
        self.groups[index].insert((deadline, key));
    }

    pub(crate) fn remove(&mut self, group: Group, deadline: Time, key: u32) {
        let index = group.map_or(UNJUDGED, OperationId::index);
        self.groups[index].remove(&(deadline, key));
        if self.groups[index].is_empty() {
            self.used.retain(|&used| used != index);
        }
    }

    /// The first to fall due, if `due` says when the first of a group does.
    pub(crate) fn first(&self, due: impl Fn(Group, Time) -> Time) -> Option<(u32, Time)> {
        let firsts = self.used.iter().filter_map(|&index| {
            let &(deadline, key) = self.groups[index].first()?;
            Some((key, due(OperationId::at(index), deadline)))
        });
        firsts.min_by_key(|&(_, due)| due)
    }
}
