//! Envoy: the gradient controller of its adaptive-concurrency filter, and its
//! admission control.

use std::time::Duration;

/// The parameters of [`next_limit`]; the defaults are Envoy's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientConfig {
    /// What the lowest latency may be exceeded by, as a share of it; 0.25.
    pub buffer: f64,
    /// The least that the limit may become; 3.
    pub min_limit: u32,
    /// The most that the limit may become; 1000.
    pub max_limit: u32,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self { buffer: 0.25, min_limit: 3, max_limit: 1000 }
    }
}

/// The limit after one update interval: `x + √x` with `x = limit × gradient`,
/// where the gradient is `lowest × (1 + buffer) / latency`, from 0.5 to 2.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
pub fn next_limit(limit: u32, lowest: Duration, latency: Duration, config: &GradientConfig) -> u32 {
    let ratio = lowest.as_secs_f64() * (1.0 + config.buffer) / latency.as_secs_f64();
    let x = f64::from(limit) * ratio.clamp(0.5, 2.0);
    ((x + x.sqrt()) as u32).min(config.max_limit).max(config.min_limit)
}

/// The probability that admission control rejects a request: `((n − s / 0.95) /
/// (n + 1)) ^ (1 / aggression)` for `s` successes of `n` requests, at most 0.8.
#[must_use]
pub fn rejection_probability(requests: f64, successes: f64, aggression: f64) -> f64 {
    const SUCCESS_THRESHOLD: f64 = 0.95;
    const MOST: f64 = 0.8;
    let excess = (requests - successes / SUCCESS_THRESHOLD).max(0.0);
    (excess / (requests + 1.0)).powf(1.0 / aggression).min(MOST)
}
