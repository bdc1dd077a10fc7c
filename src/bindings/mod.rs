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
mod clock;
mod config;
mod exit;
mod fork;
mod imports;
mod permit;
mod rejection;
mod semaphore;
mod shared;
mod timers;
mod waiter;

use pyo3::prelude::*;

/// The compiled core; use it through `sluicegate`.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::acquire::Acquire;
    #[pymodule_export]
    use super::clock::ManualClock;
    #[pymodule_export]
    use super::permit::Permit;
    #[pymodule_export]
    use super::rejection::Rejection;
    #[pymodule_export]
    use super::semaphore::SemaphoreLimiter;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::exit::install(module.py())?;
        super::fork::install(module.py())
    }
}
