use super::{Cause, Estimate, LimitAlgorithm, Sample, check_count, check_smoothing};
use crate::primitives::ConfigError;
use crate::primitives::random::Random;

/// The parameters of [`Vegas`]; the defaults are the original's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VegasConfig {
    /// The limit to begin with, from `min_limit` to `max_limit`; 20.
    pub initial: u32,
    /// The least that the limit may become, from 1; 1, which in the original is
    /// fixed.
    pub min_limit: u32,
    /// The most that the limit may become, up to 1e9; 1000.
    pub max_limit: u32,
    /// How much of a change is made, above 0 up to 1; 1.
    pub smoothing: f64,
    /// The limit grows below a queue of so many times log10(limit), from 0 to
    /// 1000; 3.
    pub alpha: u32,
    /// The limit is cut above a queue of so many times log10(limit), and grows by
    /// so much if nothing is queued; from `alpha` to 1000; 6.
    pub beta: u32,
    /// The latency without load is learned anew after about so many times the
    /// limit of samples, from 1 to 1e9; `None` is never; 30.
    pub probe_multiplier: Option<u32>,
    /// Where chance begins: when exactly it probes; 0.
    pub seed: u64,
}

impl Default for VegasConfig {
    fn default() -> Self {
        Self {
            initial: 20,
            min_limit: 1,
            max_limit: 1000,
            smoothing: 1.0,
            alpha: 3,
            beta: 6,
            probe_multiplier: Some(30),
            seed: 0,
        }
    }
}

/// After TCP Vegas: `VegasLimit` of Netflix's concurrency-limits.
///
/// The queue is estimated as limit × (1 − lowest latency / latency), and the
/// limit is moved by log10(limit) so that the queue stays between `alpha` and
/// `beta` times that. It is held while less than half of it is in flight. A
/// sample that takes no time is ignored; the original throws.
///
/// Known fault: the latency without load is that of one sample, which a probe
/// takes under whatever load there is; with latencies that vary the limit goes
/// far below what is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Vegas {
    config: VegasConfig,
    estimate: Estimate,
    /// In nanoseconds; 0 before the first sample.
    lowest: f64,
    since_probe: f64,
    /// From 0.5 to 1, of the interval between two probes.
    jitter: f64,
    random: Random,
}

impl Vegas {
    /// Begins at `initial`.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: VegasConfig) -> Result<Self, ConfigError> {
        let estimate = Estimate::new(config.initial, config.min_limit, config.max_limit)?;
        check_smoothing(config.smoothing)?;
        if config.alpha > 1000 {
            return Err(ConfigError::new("alpha", config.alpha, "an integer from 0 to 1000"));
        }
        if !(config.alpha..=1000).contains(&config.beta) {
            return Err(ConfigError::new("beta", config.beta, "an integer from alpha to 1000"));
        }
        check_count("probe_multiplier", config.probe_multiplier.unwrap_or(1))?;
        let mut random = Random::new(config.seed);
        Ok(Self {
            config,
            estimate,
            lowest: 0.0,
            since_probe: 0.0,
            jitter: jitter(&mut random),
            random,
        })
    }

    fn is_probe_due(&self) -> bool {
        self.config.probe_multiplier.is_some_and(|multiplier| {
            self.since_probe >= self.jitter * f64::from(multiplier) * self.estimate.value()
        })
    }

    /// Where the limit should go, if anywhere, and why.
    fn aim(&self, sample: &Sample) -> (Option<f64>, Cause) {
        let estimate = self.estimate.value();
        let step = log10_root(estimate);
        if sample.is_overload {
            return (Some(estimate - step), Cause::Overload);
        }
        if sample.in_flight as f64 * 2.0 < estimate {
            return (None, Cause::Light);
        }
        let queue = (estimate * (1.0 - self.lowest / sample.nanos())).ceil();
        let alpha = f64::from(self.config.alpha) * step;
        let beta = f64::from(self.config.beta) * step;
        let aim = if queue <= step {
            Some(estimate + beta)
        } else if queue < alpha {
            Some(estimate + step)
        } else if queue > beta {
            Some(estimate - step)
        } else {
            None
        };
        (aim, Cause::Queued(queue))
    }
}

fn jitter(random: &mut Random) -> f64 {
    0.5 + 0.5 * random.unit()
}

/// The whole part of log10, at least 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a limit, from 1 to 1e9
fn log10_root(limit: f64) -> f64 {
    f64::from((limit as u32).max(1).ilog10().max(1))
}

impl LimitAlgorithm for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn update(&mut self, sample: &Sample) -> f64 {
        let rtt = sample.nanos();
        if rtt <= 0.0 {
            return self.limit();
        }
        self.since_probe += 1.0;
        if self.is_probe_due() {
            self.jitter = jitter(&mut self.random);
            self.since_probe = 0.0;
            self.lowest = rtt;
            self.estimate.hold(Cause::Probe);
            return self.limit();
        }
        if self.lowest <= 0.0 || rtt < self.lowest {
            self.lowest = rtt;
            self.estimate.hold(Cause::Fastest);
            return self.limit();
        }
        match self.aim(sample) {
            (None, cause) => self.estimate.hold(cause),
            (Some(aim), cause) => {
                let (min_limit, max_limit) = self.estimate.range();
                let aim = aim.clamp(f64::from(min_limit), f64::from(max_limit));
                let (smoothing, before) = (self.config.smoothing, self.estimate.value());
                self.estimate.move_to((1.0 - smoothing) * before + smoothing * aim, cause);
            }
        }
        self.limit()
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        self.estimate.set_range(min_limit, max_limit)
    }
}
