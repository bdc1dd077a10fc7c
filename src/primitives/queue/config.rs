use std::time::Duration;

use crate::primitives::ConfigError;

/// How large a queue is, and for how long its items may wait.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// How many items may wait, from 0 to 1e9. With 0 an item is taken only if a
    /// worker waits for it.
    pub capacity: usize,
    /// For how long an item may wait while the queue is standing; `None` is
    /// automatic: the baseline of the service time, at least 5 ms, at most 250 ms.
    pub target: Option<Duration>,
    /// For how long an item may wait while it is healthy, and how long it has to be
    /// one or the other to become so; `None` is automatic: 10 times the baseline, at
    /// least 20 ms, at most 1 s; with a target 20 times that.
    pub interval: Option<Duration>,
    /// The share of the capacity at and below which the queue is low again, from 0;
    /// default 0.3.
    pub low: f64,
    /// The share of the capacity at and above which it is high, above `low` and at
    /// most 1; default 0.7.
    pub high: f64,
}

/// The largest capacity.
pub const MAX_CAPACITY: usize = 1_000_000_000;

const SHORTEST: Duration = Duration::from_nanos(1);
const LONGEST: Duration = Duration::from_secs(3600);
const TARGET: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
const INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Of the baseline, if the interval is automatic.
const BASELINES: u32 = 10;
/// Of the target, if only that is given: 5 ms and 100 ms, as published.
const TARGETS: u32 = 20;

impl QueueConfig {
    /// A queue of that capacity, all else by default.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, target: None, interval: None, low: 0.3, high: 0.7 }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.capacity > MAX_CAPACITY {
            return Err(ConfigError::new("capacity", self.capacity, "an integer from 0 to 1e9"));
        }
        check_span("target", self.target)?;
        check_span("interval", self.interval)?;
        let (target, interval) = self.spans(None);
        if target >= interval {
            let interval = interval.as_secs_f64();
            return Err(ConfigError::new("interval", interval, "longer than target"));
        }
        if !(0.0..1.0).contains(&self.low) {
            return Err(ConfigError::new("low", self.low, "a share from 0 and below 1"));
        }
        if !(self.low < self.high && self.high <= 1.0) {
            return Err(ConfigError::new("high", self.high, "a share above low and at most 1"));
        }
        Ok(())
    }

    /// Target and interval with that baseline. While it is unknown the longest: not
    /// to know is no reason to reject.
    pub(crate) fn spans(&self, baseline: Option<Duration>) -> (Duration, Duration) {
        let automatic = || match baseline {
            Some(baseline) => (
                baseline.clamp(TARGET.0, TARGET.1),
                baseline.saturating_mul(BASELINES).clamp(INTERVAL.0, INTERVAL.1),
            ),
            None => (TARGET.1, INTERVAL.1),
        };
        match (self.target, self.interval) {
            (Some(target), Some(interval)) => (target, interval),
            (Some(target), None) => (target, target.saturating_mul(TARGETS)),
            (None, Some(interval)) => ((interval / TARGETS).max(SHORTEST), interval),
            (None, None) => automatic(),
        }
    }
}

fn check_span(parameter: &'static str, span: Option<Duration>) -> Result<(), ConfigError> {
    match span {
        Some(span) if span.is_zero() || span > LONGEST => {
            let seconds = span.as_secs_f64();
            let range = "a number of seconds above 0 and at most 3600, or None (automatic)";
            Err(ConfigError::new(parameter, seconds, range))
        }
        _ => Ok(()),
    }
}
