use std::time::Duration;

use super::{GateLimit, Reserve};
use crate::primitives::{ConfigError, MAX_CAPACITY};

/// How a [`Gate`](super::Gate) admits. By default it tunes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct GateConfig {
    /// The limit, or what it follows; by default latency.
    pub limit: GateLimit,
    /// How many may wait, from 0 (nobody ever waits) to 1e9; `None` is automatic: as
    /// many as can be done within the time that callers give, at least 64 and twice the
    /// limit; while the service time is unknown at least 1,024.
    pub max_waiting: Option<usize>,
    /// For how long one may wait, from 0 (nobody ever waits) to an hour; `None` is as
    /// long as a [`CoDelQueue`](crate::primitives::CoDelQueue) lets it. Who is of a
    /// criticality for which there is a reserve may wait for the 95th percentile of the
    /// service time at least, and for twice that while the line is not standing.
    pub max_wait: Option<Duration>,
    /// What is there for the critical.
    pub reserve: Reserve,
    /// Whether there are pressures from outside, which [`note_pressure`] brings.
    ///
    /// [`note_pressure`]: super::Gate::note_pressure
    pub has_pressure: bool,
    /// Whether those whom the line would reject in the end are rejected at once, the less
    /// critical first and the same callers for a while. By default not: the line itself
    /// serves by criticality, and knows better what a burst is that it can still do.
    pub sheds_by_line: bool,
    /// What chance is made of.
    pub seed: u64,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            limit: GateLimit::default(),
            max_waiting: None,
            max_wait: None,
            reserve: Reserve::none(),
            has_pressure: false,
            sheds_by_line: false,
            seed: 0,
        }
    }
}

/// The longest that one may be told to wait.
pub const MAX_WAIT: Duration = Duration::from_secs(3600);

/// How many may wait if nobody says, at least: of so many, so many times the limit, and
/// while the service time is unknown.
const FEWEST: f64 = 64.0;
const LIMITS: f64 = 2.0;
const UNKNOWN: f64 = 1024.0;
/// And at most.
const MOST: f64 = 1e6;

impl GateConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(max_waiting) = self.max_waiting
            && max_waiting > MAX_CAPACITY
        {
            let range = "an integer from 0 to 1e9, or None (automatic)";
            return Err(ConfigError::new("max_waiting", max_waiting, range));
        }
        if let Some(max_wait) = self.max_wait
            && max_wait > MAX_WAIT
        {
            let range = "a number of seconds from 0 to 3600, or None (automatic); seconds, not \
                         milliseconds?";
            return Err(ConfigError::new("max_wait", max_wait.as_secs_f64(), range));
        }
        self.reserve.check()
    }

    /// Whether nobody ever waits.
    pub(super) fn is_without_line(&self) -> bool {
        self.max_waiting == Some(0) || self.max_wait == Some(Duration::ZERO)
    }

    /// How many may wait, with services of that mean for callers who give so much time.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is in the range
    pub(super) fn capacity(&self, limit: f64, given: Duration, mean: Duration) -> usize {
        if let Some(max_waiting) = self.max_waiting {
            return max_waiting;
        }
        let useful = if mean.is_zero() {
            UNKNOWN
        } else {
            (limit * given.as_secs_f64() / mean.as_secs_f64()).ceil()
        };
        useful.max(LIMITS * limit).clamp(FEWEST, MOST) as usize
    }
}
