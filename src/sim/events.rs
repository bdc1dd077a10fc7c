use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::job::JobId;
use crate::primitives::{Outcome, Time};

/// What is going to happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request of a source.
    Arrive { source: usize },
    /// A user thinks of the next request.
    Ask { source: usize },
    /// The next attempt of a request.
    Retry { request: usize },
    /// An attempt comes to the first stage.
    Reach { job: JobId },
    /// The client waits no longer.
    Timeout { job: JobId },
    /// The number of workers changes.
    Change { stage: usize },
    /// A worker is done.
    Worked { job: JobId },
    /// A worker is done with saying no.
    Paid { stage: usize },
    /// What takes time without work is over.
    Served { job: JobId },
    /// A line or a queue wants to look at the time.
    Expire { stage: usize },
    /// The answer is with the client.
    Answer { job: JobId, reply: Reply },
    /// A step of the series is over.
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reply {
    Success,
    /// With what it means for whoever sent it.
    Failed(Outcome),
    /// With when to come back, if that was told.
    Rejected(Option<std::time::Duration>),
}

/// What is going to happen, the soonest first; of two at one moment the one that was
/// planned first.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Entry>,
    serial: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    serial: u64,
    event: Event,
}

impl Events {
    pub(super) fn plan(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.heap.push(Entry { at, serial: self.serial, event });
    }

    pub(super) fn next(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
