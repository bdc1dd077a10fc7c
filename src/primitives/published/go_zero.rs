//! go-zero: its breaker after Google's client-side throttling.

/// The probability that the breaker rejects.
///
/// `total` requests, `accepted` of them, in a window of 40 buckets; `failing`
/// counts the latest buckets with failures only, `working` those without any.
#[must_use]
pub fn rejection_probability(total: f64, accepted: f64, failing: f64, working: f64) -> f64 {
    const K: f64 = 1.5;
    const LEAST_K: f64 = 1.1;
    const BUCKETS: f64 = 40.0;
    const PROTECTED: f64 = 5.0;
    let k = (K - (K - LEAST_K) * failing / BUCKETS).max(LEAST_K);
    let ratio = (total - PROTECTED - k * accepted) / (total + 1.0);
    ratio.max(0.0) * (BUCKETS - working) / BUCKETS
}
