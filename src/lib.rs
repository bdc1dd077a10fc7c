//! Backpressure and load-shedding primitives.
//!
//! [`primitives`] holds the algorithms. They are pure: they know no clock, no
//! thread and no Python, take the current [`Time`](primitives::Time) as an
//! argument, and hand back whom to wake instead of waking anybody. Whoever
//! embeds them owns the lock, the clock and the waking.
//!
//! With the feature `python` the crate is also the extension module
//! `sluicegate._core`.

#![warn(missing_docs)]

pub mod primitives;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(feature = "python")]
mod bindings;
