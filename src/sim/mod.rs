//! A discrete-event simulator that drives the primitives, the very code that ships,
//! in virtual time.
//!
//! A [`Scenario`] says who sends what, through which [`Policy`], to which servers;
//! [`simulate`] plays it with a seed and gives a [`Report`]. The format of its file
//! is described in `tests/scenarios/load/README.md`.

mod arrivals;
mod changing;
mod distribution;
mod engine;
mod events;
mod expect;
mod file;
mod fleet;
mod job;
#[cfg(test)]
mod laws;
mod policy;
mod random;
mod record;
mod report;
mod scenario;
mod server;
mod speed;
mod stage;
mod trace;

use std::time::Duration;

pub use engine::simulate;
pub use expect::{Bound, Measure};
pub use policy::Policy;
pub use report::{Check, Report, Series};
pub use scenario::{Error, Scenario};

/// Saturates; not-a-number and what is negative are nothing.
fn seconds(span: f64) -> Duration {
    Duration::try_from_secs_f64(span).unwrap_or(if span > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    })
}
