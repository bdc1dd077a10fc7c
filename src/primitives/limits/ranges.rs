//! How errors speak of the ranges of parameters that more than one algorithm has.

pub(crate) const LIMIT: &str = "an integer from 1 to 1e9";
pub(crate) const INITIAL: &str = "an integer from min_limit to max_limit";
pub(crate) const MAX_LIMIT: &str = "an integer from min_limit to 1e9";
pub(crate) const SMOOTHING: &str = "a number above 0 and at most 1";
pub(crate) const TOLERANCE: &str = "a finite number, 1 or more";
pub(crate) const QUEUE_SIZE: &str = "an integer from 0 to 1e9";
pub(crate) const COUNT: &str = "an integer from 1 to 1e9";
