use super::{
    Cause, Estimate, LimitAlgorithm, Sample, check_count, check_queue_size, check_smoothing,
    check_tolerance,
};
use crate::primitives::ConfigError;

/// The parameters of [`Gradient2`]; the defaults are the original's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient2Config {
    /// The limit to begin with, from `min_limit` to `max_limit`; 20.
    pub initial: u32,
    /// The least that the limit may become, from 1; 20.
    pub min_limit: u32,
    /// The most that the limit may become, up to 1e9; 200.
    pub max_limit: u32,
    /// How much of a change is made, above 0 up to 1; 0.2.
    pub smoothing: f64,
    /// So many times the long-term latency are no reason to cut, from 1; 1.5.
    pub tolerance: f64,
    /// What the limit may exceed the need by, from 0 to 1e9; 4.
    pub queue_size: u32,
    /// How many samples the long-term latency is a mean of, from 1 to 1e9; 600.
    pub long_window: u32,
}

impl Default for Gradient2Config {
    fn default() -> Self {
        Self {
            initial: 20,
            min_limit: 20,
            max_limit: 200,
            smoothing: 0.2,
            tolerance: 1.5,
            queue_size: 4,
            long_window: 600,
        }
    }
}

/// The latency against its long-term mean: `Gradient2Limit` of Netflix's
/// concurrency-limits.
///
/// The limit moves towards limit × gradient + `queue_size`, where the gradient is
/// `tolerance` × long-term latency / latency, from 0.5 to 1. It is held while less
/// than half of it is in flight. An overload is a sample like any other. One that
/// takes no time is ignored.
///
/// Known fault: overload becomes part of the long-term latency, so that any steady
/// latency is soon normal and the limit grows without end.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient2 {
    config: Gradient2Config,
    estimate: Estimate,
    long_term: Mean,
}

impl Gradient2 {
    /// Begins at `initial`.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: Gradient2Config) -> Result<Self, ConfigError> {
        let estimate = Estimate::new(config.initial, config.min_limit, config.max_limit)?;
        check_smoothing(config.smoothing)?;
        check_tolerance(config.tolerance)?;
        check_queue_size(config.queue_size)?;
        check_count("long_window", config.long_window)?;
        Ok(Self { config, estimate, long_term: Mean::new(config.long_window) })
    }
}

/// An exponential moving mean that begins as a plain one.
#[derive(Clone, Debug, PartialEq)]
struct Mean {
    value: f64,
    factor: f64,
    sum: f64,
    count: f64,
}

impl Mean {
    const WARM_UP: f64 = 10.0;

    fn new(window: u32) -> Self {
        Self { value: 0.0, factor: 2.0 / (f64::from(window) + 1.0), sum: 0.0, count: 0.0 }
    }

    fn add(&mut self, sample: f64) -> f64 {
        if self.count < Self::WARM_UP {
            self.count += 1.0;
            self.sum += sample;
            self.value = self.sum / self.count;
        } else {
            self.value = self.value * (1.0 - self.factor) + sample * self.factor;
        }
        self.value
    }
}

impl LimitAlgorithm for Gradient2 {
    fn name(&self) -> &'static str {
        "gradient2"
    }

    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn update(&mut self, sample: &Sample) -> f64 {
        let short = sample.nanos();
        if short <= 0.0 {
            return self.limit();
        }
        let long = self.long_term.add(short);
        if long / short > 2.0 {
            self.long_term.value *= 0.95;
        }
        let before = self.estimate.value();
        if (sample.in_flight as f64) < before / 2.0 {
            self.estimate.hold(Cause::Light);
            return self.limit();
        }
        let gradient = (self.config.tolerance * long / short).clamp(0.5, 1.0);
        let aim = before * gradient + f64::from(self.config.queue_size);
        let smoothing = self.config.smoothing;
        let aim = before * (1.0 - smoothing) + aim * smoothing;
        self.estimate.move_to(aim, Cause::OverLongTerm(short / long));
        self.limit()
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        self.estimate.set_range(min_limit, max_limit)
    }
}
