use super::{
    Cause, Estimate, LimitAlgorithm, Sample, check_count, check_queue_size, check_smoothing,
    check_tolerance,
};
use crate::primitives::ConfigError;
use crate::primitives::random::Random;

/// The parameters of [`Gradient`]; the defaults are the original's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientConfig {
    /// The limit to begin with, from `min_limit` to `max_limit`; 50.
    pub initial: u32,
    /// The least that the limit may become, from 1; 1. With the usual
    /// `queue_size` it does not go below 4 in any case, as in the original.
    pub min_limit: u32,
    /// The most that the limit may become, up to 1e9; 1000.
    pub max_limit: u32,
    /// How much of a cut is made, above 0 up to 1; growth is never smoothed; 0.2.
    pub smoothing: f64,
    /// So many times the lowest latency are no reason to cut, from 1; 2.
    pub tolerance: f64,
    /// What an overload multiplies the limit by, before smoothing, from 0.5 to 1;
    /// 0.9.
    pub backoff_ratio: f64,
    /// What the limit may exceed the need by, from 0 to 1e9; `None` is √limit and
    /// at least 4, which is the default.
    pub queue_size: Option<u32>,
    /// The lowest latency is learned anew after so many samples, and up to as many
    /// again, by chance; from 1 to 1e9; `None` is never; 1000.
    pub probe_interval: Option<u32>,
    /// Where chance begins: when exactly it probes; 0.
    pub seed: u64,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self {
            initial: 50,
            min_limit: 1,
            max_limit: 1000,
            smoothing: 0.2,
            tolerance: 2.0,
            backoff_ratio: 0.9,
            queue_size: None,
            probe_interval: Some(1000),
            seed: 0,
        }
    }
}

/// The latency against the lowest: `GradientLimit` of Netflix's
/// concurrency-limits, which deprecates it and ships it.
///
/// The limit becomes limit × gradient + `queue_size`, where the gradient is
/// `tolerance` × lowest latency / latency, from 0.5 to 1. It is held while less
/// than half of it is in flight. A probe cuts it to the queue size and forgets the
/// lowest latency. A sample that takes no time teaches nothing but an overload.
///
/// Known fault: it aims at twice the latency without load, and a probe learns that
/// while the queue is still there.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    config: GradientConfig,
    estimate: Estimate,
    /// In nanoseconds; infinite if it is not known.
    lowest: f64,
    /// How many samples there are until the next probe.
    until_probe: f64,
    random: Random,
}

impl Gradient {
    /// Begins at `initial`.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: GradientConfig) -> Result<Self, ConfigError> {
        let estimate = Estimate::new(config.initial, config.min_limit, config.max_limit)?;
        check_smoothing(config.smoothing)?;
        check_tolerance(config.tolerance)?;
        if !(0.5..=1.0).contains(&config.backoff_ratio) {
            let range = "a number from 0.5 to 1";
            return Err(ConfigError::new("backoff_ratio", config.backoff_ratio, range));
        }
        check_queue_size(config.queue_size.unwrap_or(0))?;
        check_count("probe_interval", config.probe_interval.unwrap_or(1))?;
        let mut random = Random::new(config.seed);
        Ok(Self {
            config,
            estimate,
            lowest: f64::INFINITY,
            until_probe: interval(&config, &mut random),
            random,
        })
    }

    fn queue_size(&self) -> f64 {
        match self.config.queue_size {
            Some(queue_size) => f64::from(queue_size),
            None => self.limit().sqrt().trunc().max(4.0),
        }
    }
}

fn interval(config: &GradientConfig, random: &mut Random) -> f64 {
    let Some(interval) = config.probe_interval else { return f64::INFINITY };
    let interval = f64::from(interval);
    interval + (interval * random.unit()).trunc()
}

impl LimitAlgorithm for Gradient {
    fn name(&self) -> &'static str {
        "gradient"
    }

    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn update(&mut self, sample: &Sample) -> f64 {
        let rtt = sample.nanos();
        if rtt <= 0.0 && !sample.is_overload {
            return self.limit();
        }
        let (before, queue_size) = (self.estimate.value(), self.queue_size());
        if self.until_probe <= 0.0 {
            self.until_probe = interval(&self.config, &mut self.random);
            self.lowest = f64::INFINITY;
            self.estimate.move_to(queue_size, Cause::Probe);
            return self.limit();
        }
        self.until_probe -= 1.0;
        if rtt > 0.0 {
            self.lowest = self.lowest.min(rtt);
        }
        let (mut aim, cause) = if sample.is_overload {
            (before * self.config.backoff_ratio, Cause::Overload)
        } else if (sample.in_flight as f64) < before / 2.0 {
            self.estimate.hold(Cause::Light);
            return self.limit();
        } else {
            let gradient = (self.config.tolerance * self.lowest / rtt).clamp(0.5, 1.0);
            (before * gradient + queue_size, Cause::OverLowest(rtt / self.lowest))
        };
        if aim < before {
            let smoothing = self.config.smoothing;
            aim = before * (1.0 - smoothing) + smoothing * aim;
        }
        self.estimate.move_to(aim.max(queue_size), cause);
        self.limit()
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        self.estimate.set_range(min_limit, max_limit)
    }
}
