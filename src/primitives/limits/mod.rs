//! The published limit algorithms: each makes a concurrency limit from samples
//! of latency, true to its original.
//!
//! The five are those of [Netflix's concurrency-limits][netflix], with its
//! defaults. They are baselines, for comparison and for people who come from
//! them: each has a known fault, named where it is defined.
//!
//! What differs from the originals: a configuration that cannot be is refused
//! instead of logged, the limit is within its range always, a latency of zero
//! is ignored instead of thrown or divided by, and chance comes from a seed.
//!
//! [netflix]: https://github.com/Netflix/concurrency-limits

mod aimd;
mod because;
mod estimate;
mod fixed;
mod gradient;
mod gradient2;
pub(crate) mod ranges;
mod vegas;
mod window;

use std::time::Duration;

pub use aimd::{Aimd, AimdConfig};
pub use because::{Because, Cause, Change};
pub use estimate::Estimate;
pub use fixed::{Fixed, FixedConfig};
pub use gradient::{Gradient, GradientConfig};
pub use gradient2::{Gradient2, Gradient2Config};
pub use vegas::{Vegas, VegasConfig};
pub use window::{Window, WindowConfig};

use super::ConfigError;
use estimate::MOST;

/// What one unit of work, or a window of them, says about load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took from its admission to its end.
    pub rtt: Duration,
    /// How much was in flight when it was admitted, itself included.
    pub in_flight: u64,
    /// Whether it ended in [`Outcome::Overload`](super::Outcome::Overload); what
    /// the originals call a drop.
    pub is_overload: bool,
}

impl Sample {
    /// The time that it took, in nanoseconds.
    fn nanos(&self) -> f64 {
        saturating_nanos(self.rtt) as f64
    }
}

/// A rule that makes a limit from samples.
pub trait LimitAlgorithm {
    /// Its name, in lower case.
    fn name(&self) -> &'static str;

    /// The limit, its range, and why it is what it is.
    fn estimate(&self) -> &Estimate;

    /// The limit: whole units, within its range.
    fn limit(&self) -> f64 {
        self.estimate().limit()
    }

    /// Takes a sample in and returns the limit from now on.
    fn update(&mut self, sample: &Sample) -> f64;

    /// Changes the range, and moves the limit into it.
    ///
    /// # Errors
    /// As at the construction; and if there is no range to change.
    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError>;
}

/// Any of the published limit algorithms.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the variants are named after what they hold
pub enum Algorithm {
    Fixed(Fixed),
    Aimd(Aimd),
    Vegas(Vegas),
    Gradient(Gradient),
    Gradient2(Gradient2),
}

macro_rules! each {
    ($algorithm:expr, $inner:ident => $action:expr) => {
        match $algorithm {
            Algorithm::Fixed($inner) => $action,
            Algorithm::Aimd($inner) => $action,
            Algorithm::Vegas($inner) => $action,
            Algorithm::Gradient($inner) => $action,
            Algorithm::Gradient2($inner) => $action,
        }
    };
}

impl LimitAlgorithm for Algorithm {
    fn name(&self) -> &'static str {
        each!(self, inner => inner.name())
    }

    fn estimate(&self) -> &Estimate {
        each!(self, inner => inner.estimate())
    }

    fn update(&mut self, sample: &Sample) -> f64 {
        each!(self, inner => inner.update(sample))
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        each!(self, inner => inner.set_range(min_limit, max_limit))
    }
}

macro_rules! into_algorithm {
    ($($kind:ident),*) => {
        $(impl From<$kind> for Algorithm {
            fn from(algorithm: $kind) -> Self {
                Self::$kind(algorithm)
            }
        })*
    };
}

into_algorithm!(Fixed, Aimd, Vegas, Gradient, Gradient2);

fn check_smoothing(smoothing: f64) -> Result<(), ConfigError> {
    if smoothing > 0.0 && smoothing <= 1.0 {
        Ok(())
    } else {
        Err(ConfigError::new("smoothing", smoothing, ranges::SMOOTHING))
    }
}

fn check_tolerance(tolerance: f64) -> Result<(), ConfigError> {
    if tolerance >= 1.0 && tolerance.is_finite() {
        Ok(())
    } else {
        Err(ConfigError::new("tolerance", tolerance, ranges::TOLERANCE))
    }
}

fn check_count(parameter: &'static str, count: u32) -> Result<(), ConfigError> {
    if (1..=MOST).contains(&count) {
        Ok(())
    } else {
        Err(ConfigError::new(parameter, count, ranges::COUNT))
    }
}

fn check_queue_size(queue_size: u32) -> Result<(), ConfigError> {
    if queue_size <= MOST {
        Ok(())
    } else {
        Err(ConfigError::new("queue_size", queue_size, ranges::QUEUE_SIZE))
    }
}

fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
