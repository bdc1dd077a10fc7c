//! How errors speak of the ranges of parameters.

pub(crate) const INITIAL: &str = "a number from min_limit to max_limit";
pub(crate) const MIN_LIMIT: &str = "a number above 0 and at most 1e9";
pub(crate) const MAX_LIMIT: &str = "a number from min_limit to 1e9";
pub(crate) const LATENCY_TARGET: &str = "a number of seconds above 0 and at most 3600, or None";
