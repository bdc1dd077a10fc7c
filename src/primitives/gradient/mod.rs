//! A limit that follows latency: the project's own adaptive limiter.
//!
//! What was published fails somewhere, each in its own way (see [`limits`](super::limits)). This
//! one compares the mean latency of a window with a baseline that is kept for each operation,
//! cuts only if the difference is significant, lets overload never become the baseline, and asks
//! by an experiment whether latency depends on the limit at all before it takes a slower service
//! for an overloaded one.
//!
//! The parts are apart: `limiter` admits, `estimate` takes in what happens, `decision` makes a limit
//! of what `window` has summed up, `baseline`, `peak` and `cuts` remember, and `shift` finds out.

mod baseline;
mod because;
mod config;
mod crowd;
mod cuts;
mod decision;
mod estimate;
mod limiter;
mod peak;
pub(crate) mod ranges;
mod shift;
mod window;

use super::limits::Change;
pub use because::{Because, Cause};
pub use config::GradientConfig;
pub use limiter::{GradientLimiter, GradientSnapshot};
