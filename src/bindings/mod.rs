//! The extension module `sluicegate._core`: converts, locks, reads the clock,
//! waits and wakes. No algorithm lives here.
//!
//! One rule holds everywhere: while a lock of ours is held, no Python object is
//! made, called, compared or dropped, and our locks are taken only while
//! attached to the interpreter. What the primitives hand back (wakes, waiters)
//! is delivered or dropped after the lock is released.

// Slots of Python classes take `self` whether they need it or not.
#![allow(clippy::unused_self)]

mod acquire;
mod bucket;
mod clock;
mod config;
mod exit;
mod fork;
mod imports;
mod interpreters;
mod keyed_bucket;
#[allow(dead_code)] // not all of it is used yet
mod locked;
mod names;
mod permit;
mod rejection;
mod semaphore;
mod shared;
mod timers;
mod wait;
mod wait_for;
mod waiter;

use pyo3::prelude::*;

/// The compiled core; use it through `sluicegate`.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    use super::{
        acquire, bucket, clock, exit, fork, interpreters, keyed_bucket, permit, rejection,
        semaphore,
    };

    // The classes are added here and not by `#[pymodule_export]`, which would make
    // them before an interpreter is refused, for all interpreters.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreters::refuse_all_but_the_main()?;
        module.add_class::<acquire::Acquire>()?;
        module.add_class::<bucket::TokenBucket>()?;
        module.add_class::<clock::ManualClock>()?;
        module.add_class::<keyed_bucket::KeyedTokenBucket>()?;
        module.add_class::<permit::Permit>()?;
        module.add_class::<rejection::Rejection>()?;
        module.add_class::<semaphore::SemaphoreLimiter>()?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        exit::install(module.py())?;
        fork::install(module.py())
    }
}
