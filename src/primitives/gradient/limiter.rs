use std::time::Duration;

use super::estimate::{Estimate, Released};
use super::{Because, GradientConfig};
use crate::primitives::waits_at_semaphore::waits_at_semaphore;
use crate::primitives::{
    Admission, Ask, Claim, ConfigError, Home, Outcome, Permit, Rejection, SemaphoreLimiter,
    Snapshot, Ticket, Time, Waitable, Wakes,
};

/// A limiter whose limit follows latency.
///
/// It is a [`SemaphoreLimiter`] that learns from what is given back. The time from admission to
/// release is a sample; waiting in line is not part of it.
///
/// - [`Success`](Outcome::Success) is a sample.
/// - [`Overload`](Outcome::Overload) is a reason to cut, once in a window, however many there are,
///   if it is one in 20 or more; and a sample if it took longer than is usual.
/// - [`Ignored`](Outcome::Ignored) is a sample that was cut off: shorter than is usual it teaches
///   nothing, longer it is a sample, and at twice the baseline or more an overload. So a time-out
///   that comes as a cancellation is seen, and strangers who hang up cut nothing.
///
/// Work that is named by its operation is compared with the baseline of that operation, so that
/// more of the slow kind is no overload.
///
/// The limit stays from `min_limit` to `max_limit`, and is never above four times what was in
/// flight within the last minute, or 20 mean latencies, unless it is the initial one. If nobody
/// comes for as long, it is the initial one again, whatever it was cut to.
#[derive(Debug)]
pub struct GradientLimiter<W> {
    /// What admits. What is given back, and the limit, does not go by it.
    pub(crate) semaphore: SemaphoreLimiter<W>,
    estimate: Estimate,
    held: Option<Held>,
}

/// Where the limit is held, whatever latency says.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: f64,
    /// The range that it has otherwise.
    min_limit: f64,
    max_limit: f64,
}

/// The state of a [`GradientLimiter`] at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientSnapshot {
    /// The state as that of any limiter.
    pub limiter: Snapshot,
    /// Why the limit is what it is.
    pub because: Because,
    /// The parameters as they are now.
    pub config: GradientConfig,
}

impl<W> GradientLimiter<W> {
    /// A limiter that begins at the initial limit.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: GradientConfig) -> Result<Self, ConfigError> {
        let estimate = Estimate::new(config)?;
        let semaphore = SemaphoreLimiter::new(estimate.limit())?;
        Ok(Self { semaphore, estimate, held: None })
    }

    /// The same of a gate, which has a line, and knows how much time callers give.
    ///
    /// If there are few slots the initial limit is above them, and under load from the first
    /// moment on all samples are of a queue. So it looks at what samples take by what was in
    /// flight when they began: that shows the slots, of which the limit is then at most twice as
    /// many, and what work takes without a queue; and while none show, there is room, and the
    /// limit may grow fast.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub(crate) fn of_gate(config: GradientConfig) -> Result<Self, ConfigError> {
        let mut limiter = Self::new(config)?;
        limiter.estimate.begin_of_gate();
        Ok(limiter)
    }

    /// Callers give so much time: what takes more than a quarter of it is taken for a queue,
    /// until an experiment shows something else.
    pub(crate) fn note_given(&mut self, given: Duration) {
        self.estimate.note_given(given);
    }

    /// The limit, with its fraction.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.semaphore.limit()
    }

    /// Why the limit is what it is.
    #[must_use]
    pub fn because(&self) -> Because {
        self.estimate.because()
    }

    /// The parameters as they are now.
    #[must_use]
    pub const fn config(&self) -> &GradientConfig {
        self.estimate.config()
    }

    /// See [`SemaphoreLimiter::in_flight`].
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.semaphore.in_flight()
    }

    /// See [`SemaphoreLimiter::waiting`].
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.semaphore.waiting()
    }

    /// See [`SemaphoreLimiter::saturation`].
    #[must_use]
    pub fn saturation(&self) -> f64 {
        self.semaphore.saturation()
    }

    /// See [`SemaphoreLimiter::try_acquire`].
    ///
    /// # Errors
    /// If there is no room.
    #[inline]
    pub fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection> {
        self.settle(now);
        let answer = self.semaphore.try_acquire(now, ask);
        match &answer {
            Ok(permit) => self.estimate.admitted(permit.started(), permit.in_flight()),
            Err(_) => self.estimate.rejected(),
        }
        answer
    }

    /// See [`SemaphoreLimiter::try_acquire_behind`].
    ///
    /// # Errors
    /// If there is no room.
    pub fn try_acquire_behind(
        &mut self,
        now: Time,
        ask: &Ask,
    ) -> (Result<Permit, Rejection>, Wakes<W>) {
        let answer = self.try_acquire(now, ask);
        (answer, self.semaphore.serve())
    }

    /// See [`SemaphoreLimiter::admit`].
    #[inline]
    pub fn admit(&mut self, now: Time, ask: &Ask) -> Option<Permit> {
        self.settle(now);
        let permit = self.semaphore.admit(now, ask)?;
        self.estimate.admitted(permit.started(), permit.in_flight());
        Some(permit)
    }

    /// Somebody met no room.
    pub(crate) fn note_no_room(&mut self) {
        self.estimate.rejected();
    }

    /// See [`SemaphoreLimiter::acquire`].
    pub fn acquire(&mut self, now: Time, ask: &Ask, waiter: &mut Option<W>) -> Admission {
        self.settle(now);
        let admission = self.semaphore.acquire(now, ask, waiter);
        match &admission {
            Admission::Admitted(permit) => {
                self.estimate.admitted(permit.started(), permit.in_flight());
            }
            Admission::Waiting(_) | Admission::Rejected(_) => self.estimate.rejected(),
        }
        admission
    }

    /// See [`SemaphoreLimiter::claim`].
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<W>) {
        let (claim, wakes) = self.semaphore.claim(now, ticket);
        if let Claim::Admitted(permit) = &claim {
            self.estimate.admitted(permit.started(), permit.in_flight());
        }
        (claim, wakes)
    }

    /// Gives a permit back and learns from it, by the name of what it was for. If the limit
    /// changes, those whom it makes room for are admitted at once.
    #[inline]
    pub fn release(
        &mut self,
        now: Time,
        permit: Permit,
        operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<W> {
        if self.semaphore.is_of_this_life(&permit) {
            let now = now.max(self.semaphore.latest());
            self.settle(now);
            let (started, in_flight) = (permit.started(), permit.in_flight());
            self.estimate.released(now, Released { started, in_flight, operation, outcome });
            self.follow(now);
        }
        self.semaphore.release(now, permit, outcome)
    }

    /// Changes the range of the limit, moves the limit into it, and changes the target. What that
    /// makes room for is admitted at once.
    ///
    /// # Errors
    /// If one is out of its range; then nothing is changed.
    pub fn update(
        &mut self,
        now: Time,
        min_limit: f64,
        max_limit: f64,
        latency_target: Option<Duration>,
    ) -> Result<Wakes<W>, ConfigError> {
        self.estimate.update(min_limit, max_limit, latency_target)?;
        self.semaphore.update(now, self.estimate.limit())
    }

    /// Holds the limit there from now on, where 0 admits nobody; or, by `None`, lets it follow
    /// latency again, from there on. Nobody is served here.
    ///
    /// # Errors
    /// If it is out of its range; then nothing is changed.
    pub(crate) fn hold(&mut self, now: Time, at: Option<f64>) -> Result<(), ConfigError> {
        let GradientConfig { min_limit, max_limit, latency_target, .. } = *self.config();
        if let Some(at) = at {
            // Where nobody is admitted nothing is learned, and it goes on from where it was.
            if at != 0.0 {
                self.estimate.update(at, at, latency_target)?;
            }
            self.held.get_or_insert(Held { at, min_limit, max_limit }).at = at;
        } else if let Some(Held { min_limit, max_limit, .. }) = self.held.take() {
            self.estimate.update(min_limit, max_limit, latency_target)?;
        }
        self.follow(now);
        Ok(())
    }

    /// Whether the limit is held.
    pub(crate) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> GradientSnapshot {
        let limiter = self.semaphore.snapshot(now);
        GradientSnapshot { limiter, because: self.because(), config: *self.config() }
    }

    /// Lets the limit follow what was, or was not, in flight for long.
    #[inline]
    fn settle(&mut self, now: Time) {
        let now = now.max(self.semaphore.latest());
        if self.estimate.is_due(now) {
            let (in_flight, waiting) = (self.semaphore.in_flight(), self.semaphore.waiting());
            self.estimate.settle(now, in_flight, in_flight > 0 || waiting > 0);
            self.follow(now);
        }
    }

    /// Nobody is served here: a lower limit makes no room, and after a release comes the rest of
    /// it.
    #[inline]
    fn follow(&mut self, now: Time) {
        let limit = self.held.map_or(self.estimate.limit(), |held| held.at);
        if limit.to_bits() != self.semaphore.limit().to_bits() {
            // From 0 to 1e9, which is never refused.
            let _ = self.semaphore.set_limit(now, limit);
        }
    }
}

// An experiment that was going on is given up.
waits_at_semaphore!(GradientLimiter, |this| {
    this.estimate.restart();
    this.follow(this.semaphore.latest());
});
