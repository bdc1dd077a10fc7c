use std::collections::VecDeque;
use std::time::Duration;

use super::{PlainLink, seconds};
use crate::primitives::Time;
use crate::sim::job::JobId;

/// A queue as everybody has one, with a capacity or without.
#[derive(Debug)]
pub(crate) struct Plain {
    order: Order,
    capacity: usize,
    estimate: Option<Duration>,
    items: VecDeque<(JobId, Option<Time>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    OldestFirst,
    NewestFirst,
}

impl Plain {
    pub(crate) fn new(order: Order, link: &PlainLink) -> Self {
        Self {
            order,
            capacity: link.capacity.unwrap_or(usize::MAX),
            estimate: link.estimate.map(seconds),
            items: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there was room.
    pub(crate) fn push(&mut self, job: JobId, deadline: Option<Time>) -> bool {
        let has_room = self.items.len() < self.capacity;
        if has_room {
            self.items.push_back((job, deadline));
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<JobId> {
        let next = match self.order {
            Order::OldestFirst => self.items.pop_front(),
            Order::NewestFirst => self.items.pop_back(),
        };
        next.map(|(job, _)| job)
    }

    /// Takes out the next one if it is not worth to be served any more.
    pub(crate) fn pop_late(&mut self, now: Time) -> Option<JobId> {
        let next = match self.order {
            Order::OldestFirst => self.items.front(),
            Order::NewestFirst => self.items.back(),
        };
        let &(_, deadline) = next?;
        let soonest_end = now.after(self.estimate?);
        if deadline.is_some_and(|deadline| soonest_end > deadline) { self.pop() } else { None }
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        // Whoever has waited longest is in front, and mostly the first to leave.
        if let Some(position) = self.items.iter().position(|(each, _)| *each == job) {
            self.items.remove(position);
        }
    }
}
