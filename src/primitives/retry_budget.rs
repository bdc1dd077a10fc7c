use std::ops::SubAssign;
use std::time::Duration;

use super::window::Window;
use super::{ConfigError, Criticality, Reason, Rejection, Time};

/// The parameters of a [`RetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetConfig {
    /// How many retries there may be for each request, from 0 to 1. Default: 0.1.
    pub ratio: f64,
    /// How many retries a second there may be however few the requests are, from 0
    /// to 1e6. Default: 0.1, one in ten seconds.
    pub floor: f64,
    /// For how long requests and retries count, above 0 and at most an hour. It
    /// should be longer than a back-off and an attempt. Default: 10 s.
    pub window: Duration,
}

impl Default for RetryBudgetConfig {
    fn default() -> Self {
        Self { ratio: 0.1, floor: 0.1, window: Duration::from_secs(10) }
    }
}

impl RetryBudgetConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.ratio) {
            return Err(ConfigError::new("ratio", self.ratio, "a number from 0 to 1"));
        }
        if !(0.0..=1e6).contains(&self.floor) {
            let range = "a number of retries a second from 0 to 1e6";
            return Err(ConfigError::new("floor", self.floor, range));
        }
        Ok(())
    }
}

/// The right to one retry, held from its back-off through its attempt, and given
/// back by the budget that gave it.
///
/// It cannot be cloned. Dropping it without releasing it keeps it held for ever.
#[derive(Debug)]
#[must_use = "a retry that is not released stays held"]
pub struct RetryPermit {
    pub(crate) epoch: u32,
    /// The bucket of the window in which it was given.
    pub(crate) bucket: u64,
}

/// The state of a [`RetryBudget`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetSnapshot {
    /// How many requests were recorded within the window.
    pub requests: u64,
    /// How many retries were given within the window or are held.
    pub retries: u64,
    /// How many of them are held: in back-off, or in their attempt.
    pub held: u64,
    /// How many there may be.
    pub allowance: f64,
    /// How many retries were given since the start.
    pub admitted: u64,
    /// How many were refused since the start.
    pub rejected: u64,
    /// How many releases came for a retry that had been given back already.
    pub stray_releases: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    retries: u64,
    /// Of the retries, those that are not released.
    held: u64,
}

impl SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        self.requests -= other.requests;
        self.retries -= other.retries;
        self.held -= other.held;
    }
}

/// Keeps retries to a share of the requests, so that they cannot multiply the load
/// on a backend that fails.
///
/// A retry is given if those that count are fewer than `ratio` × the requests
/// within the window, or than `floor` × the window, whichever is more. A retry
/// counts for a whole window after it was given, and for as long as it is held. The
/// one bounds the *rate*: over any time there are at most `ratio` retries for each
/// request, as in Finagle's budget. The other bounds those that are *pending or
/// active*, as in Envoy's, also if back-offs and attempts outlast the window.
///
/// A floor of less than one in a window is kept as a pace: one retry, if none is
/// held and the last one is 1 / `floor` seconds ago.
///
/// `now` may stand still or jump back: the latest moment seen counts.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    config: RetryBudgetConfig,
    window: Window<Counts>,
    now: Time,
    /// Which life this is; permits of an earlier one release nothing.
    epoch: u32,
    held: u64,
    last_retry: Option<Time>,
    admitted: u64,
    rejected: u64,
    stray_releases: u64,
}

impl RetryBudget {
    /// One that has seen nothing.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: RetryBudgetConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            window: Window::new(config.window)?,
            now: Time::ZERO,
            epoch: 0,
            held: 0,
            last_retry: None,
            admitted: 0,
            rejected: 0,
            stray_releases: 0,
        })
    }

    /// The parameters.
    #[must_use]
    pub const fn config(&self) -> &RetryBudgetConfig {
        &self.config
    }

    /// Counts a request: a call, however often it is tried.
    #[inline]
    pub fn record_request(&mut self, now: Time) {
        self.tick(now);
        self.window.count(|counts| counts.requests += 1);
    }

    /// Gives a retry, or refuses it with [`Reason::Budget`].
    ///
    /// # Errors
    /// If the budget is used up.
    #[inline]
    pub fn try_retry(&mut self, now: Time) -> Result<RetryPermit, Rejection> {
        self.tick(now);
        let (allowance, spent) = (self.allowance(), self.spent());
        if !is_within(spent + 1, allowance) && !self.is_paced(spent) {
            self.rejected += 1;
            return Err(rejection(allowance, spent));
        }
        self.window.count(|counts| {
            counts.retries += 1;
            counts.held += 1;
        });
        self.held += 1;
        self.last_retry = Some(self.now);
        self.admitted += 1;
        Ok(RetryPermit { epoch: self.epoch, bucket: self.window.current() })
    }

    /// Takes a retry back, whose attempt is over or never began; a permit from
    /// before a [`reset`](Self::reset) gives nothing back.
    #[allow(clippy::needless_pass_by_value)] // given back is gone
    pub fn release(&mut self, permit: RetryPermit) {
        if permit.epoch == self.epoch {
            self.held -= 1;
            self.window.recount(permit.bucket, |counts| counts.held -= 1);
        }
    }

    /// Counts a release that came twice; for callers whose permits are shared.
    pub fn count_stray_release(&mut self) {
        self.stray_releases += 1;
    }

    /// Changes all parameters but the window, for what was counted, too.
    ///
    /// # Errors
    /// If a parameter is out of its range, and then nothing is changed.
    pub fn update(&mut self, ratio: f64, floor: f64) -> Result<(), ConfigError> {
        let config = RetryBudgetConfig { ratio, floor, ..self.config };
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// The state at this moment.
    pub fn snapshot(&mut self, now: Time) -> RetryBudgetSnapshot {
        self.tick(now);
        RetryBudgetSnapshot {
            requests: self.window.total().requests,
            retries: self.spent(),
            held: self.held,
            allowance: self.allowance(),
            admitted: self.admitted,
            rejected: self.rejected,
            stray_releases: self.stray_releases,
        }
    }

    /// Begins anew, as after a fork: the requests and the retries are the parent's.
    pub fn reset(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.held = 0;
        self.last_retry = None;
        self.window.clear();
    }

    #[inline]
    fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.window.advance(self.now);
    }

    fn allowance(&self) -> f64 {
        let share = self.config.ratio * self.window.total().requests as f64;
        share.max(self.config.floor * self.config.window.as_secs_f64())
    }

    /// The retries that count: given within the window, or held since before.
    fn spent(&self) -> u64 {
        let total = self.window.total();
        total.retries + (self.held - total.held)
    }

    /// Whether a floor that is less than one in a window gives one.
    fn is_paced(&self, spent: u64) -> bool {
        let RetryBudgetConfig { floor, window, .. } = self.config;
        if spent > 0 || floor <= 0.0 || is_within(1, floor * window.as_secs_f64()) {
            return false;
        }
        let pace = Duration::try_from_secs_f64(1.0 / floor).unwrap_or(Duration::MAX);
        self.last_retry.is_none_or(|last| self.now.since(last) >= pace)
    }
}

/// Whether so many retries are allowed, but for an error of the multiplication:
/// 0.29 × 100 are 29.
fn is_within(retries: u64, allowance: f64) -> bool {
    retries as f64 <= allowance + 1e-9
}

pub(crate) fn rejection(limit: f64, in_flight: u64) -> Rejection {
    Rejection { limit, in_flight, ..Rejection::new(Reason::Budget, Criticality::default()) }
}
