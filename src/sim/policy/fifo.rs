use std::collections::VecDeque;
use std::time::Duration;

use super::{FifoLink, seconds};
use crate::primitives::Time;
use crate::sim::job::JobId;

/// A queue as everybody has one: first in, first out, with a capacity or without.
#[derive(Debug)]
pub(crate) struct Fifo {
    capacity: usize,
    estimate: Option<Duration>,
    items: VecDeque<(JobId, Option<Time>)>,
}

impl Fifo {
    pub(crate) fn new(link: &FifoLink) -> Self {
        Self {
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
        self.items.pop_front().map(|(job, _)| job)
    }

    /// Takes out those whose turn it would be and that are not worth to be served any
    /// more.
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<JobId> {
        let Some(estimate) = self.estimate else { return Vec::new() };
        let is_late = |deadline: Option<Time>| deadline.is_some_and(|it| now.after(estimate) > it);
        let late = { self.items.iter() }.take_while(|(_, deadline)| is_late(*deadline)).count();
        self.items.drain(..late).map(|(job, _)| job).collect()
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        self.items.retain(|(each, _)| *each != job);
    }
}
