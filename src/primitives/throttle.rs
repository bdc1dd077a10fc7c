use std::ops::SubAssign;
use std::time::Duration;

use super::window::{BUCKETS, Window};
use super::{ConfigError, Criticality, Outcome, Time};

/// For how many buckets a request that is not answered yet is taken for an
/// accepted one: a fifth of the window.
const PATIENCE: usize = BUCKETS / 5;
/// How many requests are refused before one more is let through to probe.
const PROBE_EVERY: u64 = 9;

/// The parameters of an [`AdaptiveThrottle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleConfig {
    /// How many requests may be sent for each one that is accepted, from 1 to
    /// 1e6. Below 2 it refuses more here and spares the backend more refusals;
    /// above 2 it hears sooner that the backend is well again. Default: 2.
    pub k: f64,
    /// For how long a request counts, above 0 and at most an hour; several times as
    /// long as an answer takes. Default: 30 s.
    pub window: Duration,
    /// The highest probability of a refusal, from 0 to 1. Default: 0.9.
    pub max_rejection: f64,
    /// Below so many requests within the window nothing is refused, up to 1e9.
    /// Default: 10.
    pub min_requests: u32,
}

impl Default for ThrottleConfig {
    fn default() -> Self {
        Self { k: 2.0, window: Duration::from_secs(30), max_rejection: 0.9, min_requests: 10 }
    }
}

impl ThrottleConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if !(1.0..=1e6).contains(&self.k) {
            return Err(ConfigError::new("k", self.k, "a number from 1 to 1e6"));
        }
        if !(0.0..=1.0).contains(&self.max_rejection) {
            let range = "a number from 0 to 1";
            return Err(ConfigError::new("max_rejection", self.max_rejection, range));
        }
        if self.min_requests > 1_000_000_000 {
            let range = "an integer from 0 to 1e9";
            return Err(ConfigError::new("min_requests", self.min_requests, range));
        }
        Ok(())
    }
}

/// The state of an [`AdaptiveThrottle`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSnapshot {
    /// How many requests bear on the probability.
    pub requests: u64,
    /// How many of them are accepted, or taken for it.
    pub accepts: u64,
    /// How many were admitted within the window and are not answered yet.
    pub in_flight: u64,
    /// How likely the next request is to be refused, by [`Criticality::index`].
    pub rejection_probability: [f64; 4],
    /// How many requests were admitted since the start.
    pub admitted: u64,
    /// How many were refused since the start, by [`Criticality::index`].
    pub rejected: [u64; 4],
    /// How many were answered since the start, by [`Outcome::index`].
    pub outcomes: [u64; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// By criticality, allowed or not.
    attempts: [u64; 4],
    admitted: u64,
    answered: u64,
    accepted: u64,
}

impl Counts {
    fn attempted(&self) -> u64 {
        self.attempts.iter().sum()
    }

    /// Those that were answered, and those that were refused here.
    fn requests(&self) -> u64 {
        self.answered + self.attempted() - self.admitted
    }
}

impl SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        for (mine, theirs) in self.attempts.iter_mut().zip(other.attempts) {
            *mine -= theirs;
        }
        self.admitted -= other.admitted;
        self.answered -= other.answered;
        self.accepted -= other.accepted;
    }
}

/// Refuses requests at the client that the backend would most likely refuse.
///
/// The client-side throttling of Google's SRE book ("Handling Overload"): over a
/// window, a request is refused with the probability
///
/// ```text
/// min(max_rejection, max(0, (requests − k · accepts) / (requests + 1)))
/// ```
///
/// `requests` counts those that were refused here, too. An accept is whatever is
/// not [`Outcome::Overload`]: a 404 is an answer. Keep one for each backend.
///
/// What the book leaves open:
///
/// - **Unanswered requests.** A backend that takes its time has not refused.
///   What was admitted within the last fifth of the window and is not answered yet
///   is taken for accepted; so neither a first burst nor refusals that come faster
///   than answers throttle a backend that is well. What waits for longer says
///   nothing. Answers carry no identity, so the oldest request is taken for the
///   one that is answered. Whoever never records is never throttled, and an answer
///   without a request counts as one of both.
/// - **Criticality.** Answers are not told apart by it, so there is one probability
///   for all, and what is to be refused is taken from the least critical first, by
///   their share of the requests in the window: up to `max_rejection` of each class,
///   and only the rest from the next one. If all requests are of one class, it is
///   the formula.
/// - **Probes.** A request passes, whatever the probability, if none has for a
///   thirtieth of the window and nine have been refused since. So a backend that is
///   well again is found even with `max_rejection` 1, and probes are never more than
///   one request in ten.
///
/// `now` may stand still or jump back: the latest moment seen counts.
#[derive(Clone, Debug)]
pub struct AdaptiveThrottle {
    config: ThrottleConfig,
    window: Window<Counts>,
    now: Time,
    /// How many of those that were admitted within the window are not answered.
    in_flight: u64,
    last_admitted: Option<Time>,
    refused_since: u64,
    admitted: u64,
    rejected: [u64; 4],
    outcomes: [u64; 3],
}

impl AdaptiveThrottle {
    /// One that has seen nothing.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: ThrottleConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            window: Window::new(config.window)?,
            now: Time::ZERO,
            in_flight: 0,
            last_admitted: None,
            refused_since: 0,
            admitted: 0,
            rejected: [0; 4],
            outcomes: [0; 3],
        })
    }

    /// The parameters.
    #[must_use]
    pub const fn config(&self) -> &ThrottleConfig {
        &self.config
    }

    /// How many requests were admitted within the window, as of the last call, and
    /// are not answered yet.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether a request may be sent; it counts as one either way.
    ///
    /// `draw` is a random number from 0 up to 1; the request is refused if it is
    /// below the probability. Not-a-number refuses nothing.
    #[inline]
    pub fn allow(&mut self, now: Time, criticality: Criticality, draw: f64) -> bool {
        self.tick(now);
        let index = criticality.index();
        let is_refused = draw < self.probability(criticality) && !self.is_probe_due();
        if is_refused {
            self.window.count(|counts| counts.attempts[index] += 1);
            self.rejected[index] += 1;
            self.refused_since += 1;
            return false;
        }
        self.window.count(|counts| {
            counts.attempts[index] += 1;
            counts.admitted += 1;
        });
        self.in_flight += 1;
        self.last_admitted = Some(self.now);
        self.refused_since = 0;
        self.admitted += 1;
        true
    }

    /// Takes the answer to a request that was allowed to be sent.
    #[inline]
    pub fn record(&mut self, now: Time, outcome: Outcome) {
        self.tick(now);
        let accepted = u64::from(outcome != Outcome::Overload);
        self.window.count(|counts| {
            counts.answered += 1;
            counts.accepted += accepted;
        });
        self.in_flight = self.in_flight.saturating_sub(1);
        self.outcomes[outcome.index()] += 1;
    }

    /// Takes back a request that was allowed, and was not sent after all: it says nothing
    /// about the backend.
    pub fn withdraw(&mut self, now: Time) {
        self.tick(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.admitted = self.admitted.saturating_sub(1);
    }

    /// How likely the next request of this criticality is to be refused.
    pub fn rejection_probability(&mut self, now: Time, criticality: Criticality) -> f64 {
        self.tick(now);
        self.probability(criticality)
    }

    /// Changes all parameters but the window, for what was counted, too.
    ///
    /// # Errors
    /// If a parameter is out of its range, and then nothing is changed.
    pub fn update(
        &mut self,
        k: f64,
        max_rejection: f64,
        min_requests: u32,
    ) -> Result<(), ConfigError> {
        let config = ThrottleConfig { k, max_rejection, min_requests, ..self.config };
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// The state at this moment.
    pub fn snapshot(&mut self, now: Time) -> ThrottleSnapshot {
        self.tick(now);
        let (requests, accepts) = self.evidence();
        ThrottleSnapshot {
            requests,
            accepts,
            in_flight: self.in_flight,
            rejection_probability: Criticality::ALL.map(|class| self.probability(class)),
            admitted: self.admitted,
            rejected: self.rejected,
            outcomes: self.outcomes,
        }
    }

    /// Begins anew in a forked process: what is in flight is the parent's. What is
    /// known of the backend stays.
    pub fn reset(&mut self) {
        self.in_flight = 0;
    }

    #[inline]
    fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.window.advance(self.now) {
            // Whatever has not been answered for a whole window is forgotten.
            self.in_flight = self.in_flight.min(self.window.total().admitted);
        }
    }

    #[inline]
    fn probability(&self, criticality: Criticality) -> f64 {
        let total = self.window.total();
        // Those that are hoped for can only lower it.
        if self.excess(total.requests(), total.accepted) <= 0.0 {
            return 0.0;
        }
        let (requests, accepts) = self.evidence();
        let excess = self.excess(requests, accepts);
        if excess <= 0.0 || requests < u64::from(self.config.min_requests) {
            return 0.0;
        }
        let overall = (excess / (requests as f64 + 1.0)).min(self.config.max_rejection);
        self.share_of(criticality, overall)
    }

    fn excess(&self, requests: u64, accepts: u64) -> f64 {
        requests as f64 - self.config.k * accepts as f64
    }

    /// The requests and the accepts of the formula.
    fn evidence(&self) -> (u64, u64) {
        let total = self.window.total();
        let recent: u64 = self.window.latest(PATIENCE).map(|counts| counts.admitted).sum();
        let hoped_for = self.in_flight.min(recent);
        (total.requests() + hoped_for, total.accepted + hoped_for)
    }

    /// How likely a request of this class is to be refused if so many of all are.
    fn share_of(&self, criticality: Criticality, overall: f64) -> f64 {
        let total = self.window.total();
        let (all, own) = (total.attempted(), total.attempts[criticality.index()]);
        if own == all {
            return overall;
        }
        let max = self.config.max_rejection;
        let below: u64 = total.attempts[..criticality.index()].iter().sum();
        let left = overall * all as f64 - max * below as f64;
        (left / own.max(1) as f64).clamp(0.0, max)
    }

    fn is_probe_due(&self) -> bool {
        let since = self.last_admitted.map_or(Duration::MAX, |last| self.now.since(last));
        self.refused_since >= PROBE_EVERY && since >= self.window.width()
    }
}
