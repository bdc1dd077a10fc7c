use std::collections::BTreeSet;

use crate::primitives::Time;
use crate::primitives::operations::OperationId;

/// The deadlines of waiting items, earliest first within each group: the items of
/// one operation are judged by the same estimate, so that the earliest deadline is
/// the first to be hopeless. When it is, is asked again only if another one is the
/// first, or the estimate has changed.
#[derive(Debug)]
pub(crate) struct Deadlines {
    groups: Vec<GroupState>,
    /// The groups by when their first falls due, as far as that is known.
    dues: BTreeSet<(Time, usize)>,
    /// The groups of which it is to be asked.
    unknown: Vec<usize>,
    len: usize,
}

#[derive(Debug, Default)]
struct GroupState {
    deadlines: BTreeSet<(Time, u32)>,
    due: Option<Time>,
    is_unknown: bool,
}

/// Those that are not judged by an estimate come after those of the operations.
const UNJUDGED: usize = OperationId::COUNT;

/// An operation, or none for those that are not judged.
pub(crate) type Group = Option<OperationId>;

impl Deadlines {
    pub(crate) const fn new() -> Self {
        Self { groups: Vec::new(), dues: BTreeSet::new(), unknown: Vec::new(), len: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, group: Group, deadline: Time, key: u32) {
        if self.groups.is_empty() {
            self.groups.resize_with(UNJUDGED + 1, GroupState::default);
        }
        let index = index_of(group);
        let deadlines = &mut self.groups[index].deadlines;
        let is_first = deadlines.first().is_none_or(|&first| (deadline, key) < first);
        deadlines.insert((deadline, key));
        self.len += 1;
        if is_first {
            self.ask_again(index);
        }
    }

    pub(crate) fn remove(&mut self, group: Group, deadline: Time, key: u32) {
        let index = index_of(group);
        let deadlines = &mut self.groups[index].deadlines;
        let was_first = deadlines.first() == Some(&(deadline, key));
        deadlines.remove(&(deadline, key));
        self.len -= 1;
        if was_first {
            self.ask_again(index);
        }
    }

    /// The estimate of a group has changed.
    pub(crate) fn judge_anew(&mut self, group: Group) {
        let index = index_of(group);
        if index < self.groups.len() {
            self.ask_again(index);
        }
    }

    /// The estimates of all groups have changed.
    pub(crate) fn judge_all_anew(&mut self) {
        for index in 0..self.groups.len() {
            self.ask_again(index);
        }
    }

    /// The first to fall due; `due` says when the first of a group does.
    pub(crate) fn first(&mut self, due: impl Fn(Group, Time) -> Time) -> Option<(u32, Time)> {
        let Self { groups, dues, unknown, .. } = self;
        for index in unknown.drain(..) {
            let group = &mut groups[index];
            group.is_unknown = false;
            group.due = { group.deadlines.first() }
                .map(|&(deadline, _)| due(OperationId::at(index), deadline));
            dues.extend(group.due.map(|due| (due, index)));
        }
        let &(due, index) = dues.first()?;
        groups[index].deadlines.first().map(|&(_, key)| (key, due))
    }

    fn ask_again(&mut self, index: usize) {
        let group = &mut self.groups[index];
        if let Some(due) = group.due.take() {
            self.dues.remove(&(due, index));
        }
        if !std::mem::replace(&mut group.is_unknown, true) {
            self.unknown.push(index);
        }
    }
}

fn index_of(group: Group) -> usize {
    group.map_or(UNJUDGED, OperationId::index)
}
