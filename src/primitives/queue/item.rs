use std::time::Duration;

use super::watermarks::Level;
use crate::primitives::operations::OperationId;
use crate::primitives::{Criticality, Reason, Rejection, Time};

/// An item of a [`CoDelQueue`](super::CoDelQueue). It stays valid for as long as the item is inside,
/// and one that is no longer valid is recognised for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemId {
    pub(super) key: u32,
    pub(super) serial: u64,
}

impl ItemId {
    /// As a number, for those who keep it elsewhere.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        (self.serial as u128) << 32 | self.key as u128
    }

    /// From [`to_bits`](Self::to_bits); any other number is of no item.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the two halves
    pub const fn from_bits(bits: u128) -> Self {
        Self { key: bits as u32, serial: (bits >> 32) as u64 }
    }
}

/// What is known of an item that is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// How much it matters.
    pub criticality: Criticality,
    /// When nobody wants it any more.
    pub deadline: Option<Time>,
    /// Until when it waits at most, for [`Reason::Wait`];
    /// as long as the queue lets it if not given.
    pub until: Option<Time>,
    /// What kind of work it is, for the service estimate.
    pub operation: Option<&'a str>,
}

/// Work on an item that was taken, and is timed; [`CoDelQueue::finish`] learns from
/// it.
///
/// [`CoDelQueue::finish`]: super::CoDelQueue::finish
#[derive(Debug)]
#[must_use = "work that is never finished teaches nothing"]
pub struct Work {
    pub(super) operation: OperationId,
    pub(super) started: Time,
    pub(super) epoch: u32,
}

impl Work {
    /// What kind of work it is.
    pub(crate) const fn operation(&self) -> OperationId {
        self.operation
    }
}

/// An item that was taken.
#[derive(Debug)]
pub struct Taken<T> {
    /// The item.
    pub item: T,
    /// How long it had waited.
    pub waited: Duration,
    /// Where it stood, should it have to go back.
    pub(super) place: Place,
    pub(super) operation: OperationId,
    pub(super) epoch: u32,
}

impl<T> Taken<T> {
    /// What it was called inside.
    pub(crate) const fn id(&self) -> ItemId {
        self.place.id
    }

    /// When nobody wants it any more while it is out, and why: at its deadline or the end
    /// of its wait, or after `bound` if it has neither.
    pub(crate) fn end(&self, bound: Duration) -> (Time, Reason) {
        let Place { deadline, joined, is_end_of_wait, .. } = self.place;
        match deadline {
            Time::MAX => (joined.after(bound), Reason::Wait),
            end if is_end_of_wait => (end, Reason::Wait),
            end => (end, Reason::Deadline),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) id: ItemId,
    pub(super) joined: Time,
    pub(super) deadline: Time,
    /// Until when it waits even if more comes than can be done, if its deadline alone
    /// bounds its wait.
    pub(super) patience: Time,
    pub(super) criticality: Criticality,
    /// Whether its deadline is judged by the estimate of its operation.
    pub(super) is_judged: bool,
    /// Whether its deadline is the end of the wait, and not of the work.
    pub(super) is_end_of_wait: bool,
    /// Whether target and interval bound its wait, and not its deadline alone.
    pub(super) is_bounded: bool,
}

impl Place {
    pub(super) const fn by_patience(&self) -> (Time, u64) {
        (self.patience, self.id.serial)
    }
}

/// What a queue has to tell, in the order in which it happened.
#[derive(Debug)]
pub enum News<T> {
    /// An item that had been accepted was rejected.
    Rejected(T, Rejection),
    /// It became high, or low again.
    Level(Level),
}
