use super::limits::{Algorithm, LimitAlgorithm, Sample, Window, WindowConfig};
use super::waits_at_semaphore::waits_at_semaphore;
use super::{
    Admission, Ask, Claim, ConfigError, Home, Outcome, Permit, Rejection, SemaphoreLimiter,
    Snapshot, Ticket, Time, Waitable, Wakes,
};

/// A limiter whose limit follows one of the published algorithms: a baseline to
/// compare with.
///
/// It is a [`SemaphoreLimiter`] that learns from what is given back, as the
/// originals do: a [`Success`](Outcome::Success) is a sample of the time from
/// admission to release, an [`Overload`](Outcome::Overload) the same and a reason
/// to cut, and what is [`Ignored`](Outcome::Ignored) teaches nothing. In flight is
/// what it was at the admission. Waiting in line is not part of the time.
#[derive(Debug)]
pub struct ClassicLimiter<W> {
    /// What admits. What is given back, and the limit, does not go by it.
    pub(crate) semaphore: SemaphoreLimiter<W>,
    algorithm: Algorithm,
    window: Option<Window>,
    held: Option<Held>,
}

/// Where the limit is held, whatever the algorithm says.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: u32,
    /// The range that it has otherwise.
    range: (u32, u32),
}

impl<W> ClassicLimiter<W> {
    /// A limiter that begins at the limit of `algorithm`, which is fed one sample a
    /// window, or every sample if there is no window.
    ///
    /// # Errors
    /// If a parameter of the window is out of its range.
    pub fn new(
        algorithm: impl Into<Algorithm>,
        window: Option<WindowConfig>,
    ) -> Result<Self, ConfigError> {
        let algorithm = algorithm.into();
        let semaphore = SemaphoreLimiter::new(algorithm.limit())?;
        Ok(Self { semaphore, algorithm, window: window.map(Window::new).transpose()?, held: None })
    }

    /// The limit, in whole units.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.semaphore.limit()
    }

    /// Why the limit is what it is: "aimd: overload, cut".
    #[must_use]
    pub fn because(&self) -> String {
        let because = self.algorithm.estimate().because();
        match &self.algorithm {
            Algorithm::Fixed(_) => because.to_string(),
            algorithm => format!("{}: {because}", algorithm.name()),
        }
    }

    /// What the limit follows.
    #[must_use]
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// How samples are summed up before it is fed, if they are.
    #[must_use]
    pub fn window(&self) -> Option<&WindowConfig> {
        self.window.as_ref().map(Window::config)
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
    pub fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection> {
        self.semaphore.try_acquire(now, ask)
    }

    /// See [`SemaphoreLimiter::acquire`].
    pub fn acquire(&mut self, now: Time, ask: &Ask, waiter: &mut Option<W>) -> Admission {
        self.semaphore.acquire(now, ask, waiter)
    }

    /// See [`SemaphoreLimiter::claim`].
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<W>) {
        self.semaphore.claim(now, ticket)
    }

    /// Gives a permit back and learns from it. If the limit changes, those whom it
    /// makes room for are admitted at once.
    pub fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<W> {
        if outcome != Outcome::Ignored && self.semaphore.is_of_this_life(&permit) {
            self.learn(now, &permit, outcome == Outcome::Overload);
        }
        self.semaphore.release(now, permit, outcome)
    }

    /// Changes the range of the limit and moves the limit into it; what it makes
    /// room for is admitted at once.
    ///
    /// # Errors
    /// If not 1 ≤ `min_limit` ≤ `max_limit` ≤ 1e9, or the limit is fixed.
    pub fn update(
        &mut self,
        now: Time,
        min_limit: u32,
        max_limit: u32,
    ) -> Result<Wakes<W>, ConfigError> {
        self.algorithm.set_range(min_limit, max_limit)?;
        self.semaphore.update(now, self.algorithm.limit())
    }

    /// Holds the limit there from now on, where 0 admits nobody; or, by `None`, lets it follow
    /// the algorithm again, from there on. Nobody is served here.
    ///
    /// # Errors
    /// If it is out of its range; then nothing is changed.
    pub(crate) fn hold(&mut self, now: Time, at: Option<u32>) -> Result<(), ConfigError> {
        let range = self.algorithm.estimate().range();
        if let Some(at) = at {
            // One that never moves has no other range.
            if at != 0 && !matches!(self.algorithm, Algorithm::Fixed(_)) {
                self.algorithm.set_range(at, at)?;
            }
            self.held.get_or_insert(Held { at, range }).at = at;
        } else if let Some(Held { range: (min_limit, max_limit), .. }) = self.held.take() {
            self.algorithm.set_range(min_limit, max_limit)?;
        }
        self.follow(now);
        Ok(())
    }

    /// Whether the limit is held.
    pub(crate) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// See [`SemaphoreLimiter::snapshot`].
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        self.semaphore.snapshot(now)
    }

    /// Nobody is served here: the release that follows does it.
    fn learn(&mut self, now: Time, permit: &Permit, is_overload: bool) {
        let now = now.max(self.semaphore.latest());
        let rtt = now.since(permit.started());
        let mut sample = Sample { rtt, in_flight: permit.in_flight(), is_overload };
        if let Some(window) = &mut self.window {
            match window.add(now, &sample) {
                Some(whole) => sample = whole,
                None => return,
            }
        }
        self.algorithm.update(&sample);
        self.follow(now);
    }

    fn follow(&mut self, now: Time) {
        let limit = self.held.map_or(self.algorithm.limit(), |held| f64::from(held.at));
        // From 0 to 1e9, which is never refused.
        let _ = self.semaphore.set_limit(now, limit);
    }
}

waits_at_semaphore!(ClassicLimiter, |this| {});
