use std::time::Duration;

use super::{Cause, Estimate, LimitAlgorithm, Sample};
use crate::primitives::ConfigError;

/// The parameters of [`Aimd`]; the defaults are the original's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AimdConfig {
    /// The limit to begin with, from `min_limit` to `max_limit`; 20.
    pub initial: u32,
    /// The least that the limit may become, from 1; 20.
    pub min_limit: u32,
    /// The most that the limit may become, up to 1e9; 200.
    pub max_limit: u32,
    /// What a cut multiplies the limit by, from 0.5 up to and without 1; 0.9.
    pub backoff_ratio: f64,
    /// What takes longer counts as overload; above 0; 5 s.
    pub timeout: Duration,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self {
            initial: 20,
            min_limit: 20,
            max_limit: 200,
            backoff_ratio: 0.9,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Additive increase, multiplicative decrease: `AIMDLimit` of Netflix's
/// concurrency-limits.
///
/// After an overload, or what took longer than the time-out, the limit is
/// multiplied by `backoff_ratio` and truncated; otherwise, if half of it or more
/// was in flight, it grows by 1.
///
/// Known fault: it is blind to latency until the time-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Aimd {
    config: AimdConfig,
    estimate: Estimate,
}

impl Aimd {
    /// Begins at `initial`.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: AimdConfig) -> Result<Self, ConfigError> {
        let estimate = Estimate::new(config.initial, config.min_limit, config.max_limit)?;
        if !(0.5..1.0).contains(&config.backoff_ratio) {
            let range = "a number from 0.5 up to and without 1";
            return Err(ConfigError::new("backoff_ratio", config.backoff_ratio, range));
        }
        if config.timeout.is_zero() {
            return Err(ConfigError::new("timeout", 0, "a number of seconds above 0"));
        }
        Ok(Self { config, estimate })
    }
}

impl LimitAlgorithm for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn update(&mut self, sample: &Sample) -> f64 {
        let limit = self.limit();
        if sample.is_overload || sample.rtt > self.config.timeout {
            let cause = if sample.is_overload { Cause::Overload } else { Cause::TimedOut };
            self.estimate.move_to((limit * self.config.backoff_ratio).trunc(), cause);
        } else if sample.in_flight as f64 * 2.0 >= limit {
            self.estimate.move_to(limit + 1.0, Cause::InUse);
        } else {
            self.estimate.hold(Cause::Light);
        }
        self.limit()
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        self.estimate.set_range(min_limit, max_limit)
    }
}
