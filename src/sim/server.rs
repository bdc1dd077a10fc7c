use std::collections::VecDeque;

use super::changing::Changing;
use super::job::JobId;
use super::scenario::Stage;
use super::speed::Speed;
use crate::primitives::Time;

/// Workers, and what stands before them.
#[derive(Debug)]
pub(super) struct Server {
    workers: Option<Changing<u32>>,
    speed: Speed,
    busy: u32,
    backlog: VecDeque<JobId>,
    /// Rejections that nobody has paid for yet.
    unpaid: u64,
    /// With a worker, before the workers or delayed.
    pub(super) in_flight: u64,
}

/// What a free worker turns to.
#[derive(Debug)]
pub(super) enum Turn {
    Job(JobId),
    Rejection,
}

impl Server {
    pub(super) fn new(stage: &Stage, end: Time) -> Self {
        Self {
            workers: stage.workers.clone(),
            speed: Speed::new(&stage.speed, stage.stops, end),
            busy: 0,
            backlog: VecDeque::new(),
            unpaid: 0,
            in_flight: 0,
        }
    }

    /// When the number of workers changes.
    pub(super) fn changes(&self) -> impl Iterator<Item = Time> {
        self.workers.iter().flat_map(Changing::steps).map(|(at, _)| *at)
    }

    pub(super) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Whether whoever comes now is served at once.
    pub(super) fn has_idle(&self, now: Time) -> bool {
        let are_all_served = self.backlog.is_empty() && self.unpaid == 0;
        are_all_served && self.workers.as_ref().is_none_or(|workers| self.busy < *workers.at(now))
    }

    pub(super) fn enter(&mut self, job: JobId) {
        self.backlog.push_back(job);
        self.in_flight += 1;
    }

    pub(super) fn charge(&mut self) {
        if self.workers.is_some() {
            self.unpaid += 1;
        }
    }

    /// Occupies a worker with whatever is next.
    pub(super) fn next(&mut self, now: Time) -> Option<Turn> {
        if self.workers.as_ref().is_some_and(|workers| self.busy >= *workers.at(now)) {
            return None;
        }
        let turn = if self.unpaid > 0 {
            self.unpaid -= 1;
            Turn::Rejection
        } else {
            Turn::Job(self.backlog.pop_front()?)
        };
        self.busy += 1;
        Some(turn)
    }

    /// When work of so many seconds that begins now is done, if ever.
    pub(super) fn done_at(&self, now: Time, work: f64) -> Option<Time> {
        self.speed.done_at(now, work)
    }

    pub(super) const fn free(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }

    /// Takes a job out that has not begun.
    pub(super) fn remove(&mut self, job: JobId) {
        // Whoever has waited longest is in front, and mostly the first to leave.
        if let Some(position) = self.backlog.iter().position(|each| *each == job) {
            self.backlog.remove(position);
        }
    }
}

#[cfg(test)]
impl Server {
    pub(super) fn assert_at_rest(&self) {
        let counts = (self.busy, self.backlog.len(), self.unpaid, self.in_flight);
        assert_eq!(counts, (0, 0, 0, 0), "busy, before the workers, unpaid, in flight");
    }
}
