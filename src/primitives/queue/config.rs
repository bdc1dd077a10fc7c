use std::time::Duration;

use super::load::{ITEMS, Load};
use crate::primitives::{ConfigError, ServiceEstimate};

/// How large a queue is, and for how long its items may wait.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// How many items may wait, from 0 to 1e9. With 0 an item is taken only if a
    /// worker waits for it.
    pub capacity: usize,
    /// A wait below which the queue is healthy, and for how long an item may wait while
    /// it is standing; `None` is automatic: as long as the workers need for 18 items at
    /// the baseline of the service time, at least the baseline and 5 ms, at most 2/3 of
    /// the time that callers give by their deadlines; who does not say gives 1 s, or 10
    /// services if these are longer. While the service time is unknown 250 ms.
    pub target: Option<Duration>,
    /// For how long an item may wait while it is healthy, and how long it has to be
    /// one or the other to become so; `None` is automatic: twice the target, at least
    /// 20 ms, at most the time that callers give; with a target 20 times that. While
    /// the service time is unknown 1 s.
    ///
    /// If both are automatic, an item waits for as long as its deadline allows, or for
    /// what callers are thought to give who do not say; while the queue is standing, and
    /// more comes than can be done, for half of that at most, and for the target if that
    /// was longer: others who come can be served sooner.
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
/// Target and interval while the service time is unknown.
const UNKNOWN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// The shortest of the automatic spans.
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(20);
/// For how long callers wait if they do not say, at least, and in services.
pub(super) const UNSAID: Duration = Duration::from_secs(1);
const UNSAID_SERVICES: u32 = 10;
/// The automatic interval, in targets.
const INTERVAL_TARGETS: u32 = 2;
/// Of the target, if only that is given: 5 ms and 100 ms, as published.
const TARGETS: u32 = 20;

impl QueueConfig {
    /// A queue of that capacity, all else by default.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, target: None, interval: None, low: 0.3, high: 0.7 }
    }

    /// Whether deadlines stand above target and interval: these are automatic.
    pub(crate) const fn is_automatic(&self) -> bool {
        self.target.is_none() && self.interval.is_none()
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.capacity > MAX_CAPACITY {
            return Err(ConfigError::new("capacity", self.capacity, "an integer from 0 to 1e9"));
        }
        check_span("target", self.target)?;
        check_span("interval", self.interval)?;
        let Spans { target, interval, .. } = self.spans(None, &Load::new());
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

    /// For how long items may wait. While the service time is unknown rather long: not
    /// to know is no reason to reject.
    pub(super) fn spans(&self, service: Option<&ServiceEstimate>, load: &Load) -> Spans {
        let (target, interval) = match (self.target, self.interval) {
            (Some(target), Some(interval)) => (target, interval),
            (Some(target), None) => (target, target.saturating_mul(TARGETS)),
            (None, Some(interval)) => ((interval / TARGETS).max(SHORTEST), interval),
            (None, None) => return automatic(service, load),
        };
        Spans { target, interval, unsaid: None, each: Duration::ZERO }
    }
}

/// For how long an item may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spans {
    /// While the queue is standing.
    pub(super) target: Duration,
    /// While it is healthy.
    pub(super) interval: Duration,
    /// For how long an item may wait of which nobody said, if the other spans are
    /// automatic.
    pub(super) unsaid: Option<Duration>,
    /// How long the workers need for one item; zero while that is unknown, or of no
    /// interest.
    pub(super) each: Duration,
}

fn automatic(service: Option<&ServiceEstimate>, load: &Load) -> Spans {
    let given = load.given();
    let Some(baseline) = service.and_then(ServiceEstimate::baseline) else {
        let (target, interval) = UNKNOWN;
        return Spans { target, interval, unsaid: Some(UNSAID), each: Duration::ZERO };
    };
    let each = baseline / u32::try_from(load.workers()).unwrap_or(u32::MAX);
    let needed = baseline.max(each.saturating_mul(u32::try_from(ITEMS).unwrap_or(u32::MAX)));
    let target = needed.min(given * 2 / 3).max(TARGET);
    let interval = target.saturating_mul(INTERVAL_TARGETS).min(given).max(INTERVAL);
    let unsaid = UNSAID.max(baseline.saturating_mul(UNSAID_SERVICES));
    Spans { target, interval, unsaid: Some(unsaid), each }
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
