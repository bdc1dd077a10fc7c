use std::time::Duration;

use super::ranges;
use crate::primitives::{ConfigError, MAX_LIMIT};

/// The parameters of a [`GradientLimiter`](super::GradientLimiter).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientConfig {
    /// The limit to begin with, and what an idle service comes back to; from `min_limit` to
    /// `max_limit`; 20.
    pub initial: f64,
    /// The least that the limit may become, above 0; 1. Below 1 it rests between two of its works.
    pub min_limit: f64,
    /// The most that the limit may become, up to 1e9; 1,000.
    pub max_limit: f64,
    /// What 95 % are to take at most, above 0, whatever the latency without load is: nothing is cut
    /// while they do. `None` aims at twice the baseline, on the mean; the default.
    pub latency_target: Option<Duration>,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self { initial: 20.0, min_limit: 1.0, max_limit: 1000.0, latency_target: None }
    }
}

impl GradientConfig {
    /// # Errors
    /// If a parameter is out of its range.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_range()?;
        if !(self.min_limit..=self.max_limit).contains(&self.initial) {
            return Err(ConfigError::new("initial", self.initial, ranges::INITIAL));
        }
        Ok(())
    }

    /// # Errors
    /// If a parameter other than `initial`, which is over by now, is out of its range.
    pub(super) fn check_range(&self) -> Result<(), ConfigError> {
        if !(self.min_limit > 0.0 && self.min_limit <= MAX_LIMIT) {
            return Err(ConfigError::new("min_limit", self.min_limit, ranges::MIN_LIMIT));
        }
        if !(self.min_limit..=MAX_LIMIT).contains(&self.max_limit) {
            return Err(ConfigError::new("max_limit", self.max_limit, ranges::MAX_LIMIT));
        }
        if self.latency_target.is_some_and(|target| target.is_zero()) {
            return Err(ConfigError::new("latency_target", 0, ranges::LATENCY_TARGET));
        }
        Ok(())
    }
}
