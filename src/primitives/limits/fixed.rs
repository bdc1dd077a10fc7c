use super::{Cause, Estimate, LimitAlgorithm, MOST, Sample, ranges};
use crate::primitives::ConfigError;

/// The parameters of [`Fixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedConfig {
    /// The limit, from 1 to 1e9.
    pub limit: u32,
}

/// A limit that never moves: `FixedLimit` of Netflix's concurrency-limits.
///
/// Known fault: it is right for one capacity only, and capacities change.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    estimate: Estimate,
}

impl Fixed {
    /// A limit that never moves.
    ///
    /// # Errors
    /// If the limit is out of its range.
    pub fn new(config: FixedConfig) -> Result<Self, ConfigError> {
        let FixedConfig { limit } = config;
        if !(1..=MOST).contains(&limit) {
            return Err(ConfigError::new("limit", limit, ranges::LIMIT));
        }
        let mut estimate = Estimate::new(limit, limit, limit)?;
        estimate.hold(Cause::Fixed);
        Ok(Self { estimate })
    }
}

impl LimitAlgorithm for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn update(&mut self, _sample: &Sample) -> f64 {
        self.limit()
    }

    fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        let (own, _) = self.estimate.range();
        for (parameter, value) in [("min_limit", min_limit), ("max_limit", max_limit)] {
            if value != own {
                return Err(ConfigError::new(parameter, value, "left alone at a fixed limit"));
            }
        }
        Ok(())
    }
}
