use std::time::Duration;

use super::{Sample, check_count, saturating_nanos};
use crate::primitives::{ConfigError, Time};

/// The parameters of [`Window`]; the defaults are the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// The least that a window lasts; above 0; 1 s.
    pub min_duration: Duration,
    /// The most that a window lasts for the sake of its latency, from
    /// `min_duration`; 1 s.
    pub max_duration: Duration,
    /// Fewer samples keep a window open, from 1 to 1e9; 10.
    pub min_samples: u32,
    /// Faster samples are ignored, overload or not; 100 µs.
    pub min_rtt: Duration,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            min_duration: Duration::from_secs(1),
            max_duration: Duration::from_secs(1),
            min_samples: 10,
            min_rtt: Duration::from_micros(100),
        }
    }
}

/// Makes one sample of many: `WindowedLimit` of Netflix's concurrency-limits, with
/// its average window.
///
/// A window lasts for twice the lowest latency of the one before, from
/// `min_duration` to `max_duration`, and closes with the first sample after that.
/// Its sample is the mean latency, the most that was in flight, and an overload if
/// there was one.
///
/// Unlike in the original, a window with fewer than `min_samples` is not thrown
/// away; it stays open until it has them, however long that takes. So does the
/// first one, which the original closes with its first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    config: WindowConfig,
    /// When it may close; `None` before the first sample.
    end: Option<Time>,
    samples: Samples,
}

impl Window {
    /// An empty window.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: WindowConfig) -> Result<Self, ConfigError> {
        if config.min_duration.is_zero() {
            return Err(ConfigError::new("min_duration", 0, "a number of seconds above 0"));
        }
        if config.max_duration < config.min_duration {
            let range = "a number of seconds, min_duration or more";
            let seconds = config.max_duration.as_secs_f64();
            return Err(ConfigError::new("max_duration", seconds, range));
        }
        check_count("min_samples", config.min_samples)?;
        Ok(Self { config, end: None, samples: Samples::default() })
    }

    /// Its parameters.
    #[must_use]
    pub const fn config(&self) -> &WindowConfig {
        &self.config
    }

    /// Takes in a sample that ended `now`, and returns that of the whole window if
    /// this closes it.
    pub fn add(&mut self, now: Time, sample: &Sample) -> Option<Sample> {
        if sample.rtt < self.config.min_rtt {
            return None;
        }
        self.samples.add(sample);
        let Some(end) = self.end else {
            self.end = Some(now.after(self.duration()));
            return None;
        };
        if now <= end || self.samples.count < u64::from(self.config.min_samples) {
            return None;
        }
        self.end = Some(now.after(self.duration()));
        std::mem::take(&mut self.samples).merged()
    }

    fn duration(&self) -> Duration {
        let wanted = Duration::from_nanos(self.samples.lowest.saturating_mul(2));
        wanted.clamp(self.config.min_duration, self.config.max_duration)
    }
}

/// The samples of a window, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Samples {
    lowest: u64,
    sum: u64,
    count: u64,
    max_in_flight: u64,
    is_overload: bool,
}

impl Samples {
    fn add(&mut self, sample: &Sample) {
        let nanos = saturating_nanos(sample.rtt);
        self.lowest = if self.count == 0 { nanos } else { self.lowest.min(nanos) };
        self.sum = self.sum.saturating_add(nanos);
        self.count += 1;
        self.max_in_flight = self.max_in_flight.max(sample.in_flight);
        self.is_overload |= sample.is_overload;
    }

    fn merged(self) -> Option<Sample> {
        let rtt = Duration::from_nanos(self.sum.checked_div(self.count)?);
        Some(Sample { rtt, in_flight: self.max_in_flight, is_overload: self.is_overload })
    }
}
