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
mod answer;
mod backoff;
mod bucket;
mod classic;
mod clock;
mod codel;
mod config;
mod context_variable;
mod deadline;
mod default_clock;
mod entrance;
mod exit;
mod fork;
mod gate;
mod given;
mod gradient;
mod imports;
mod interpreters;
mod keyed_bucket;
mod kill_switch;
mod limiter;
mod locked;
mod names;
mod operation;
mod permit;
mod pressure;
mod queue;
mod rejection;
mod rejection_text;
mod retry_budget;
mod retry_permit;
mod scope;
mod semaphore;
mod shared;
mod simulate;
mod slot;
mod sync;
mod throttle;
mod timers;
mod token_retry_budget;
mod wait;
mod wait_for;
mod waiter;

use pyo3::prelude::*;

/// The compiled core; use it through `sluicegate`.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    use super::{
        acquire, answer, backoff, bucket, classic, clock, codel, deadline, default_clock, entrance,
        exit, fork, gate, gradient, interpreters, keyed_bucket, limiter, permit, pressure, queue,
        rejection, retry_budget, retry_permit, scope, semaphore, simulate, throttle,
        token_retry_budget,
    };

    // The classes are added here and not by `#[pymodule_export]`, which would make
    // them before an interpreter is refused, for all interpreters.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreters::refuse_all_but_the_main()?;
        module.add_class::<acquire::Acquire>()?;
        module.add_class::<answer::Answer>()?;
        module.add_class::<backoff::Backoff>()?;
        module.add_class::<bucket::TokenBucket>()?;
        module.add_class::<classic::Algorithm>()?;
        module.add_class::<classic::ClassicLimiter>()?;
        module.add_class::<classic::Window>()?;
        module.add_class::<clock::ManualClock>()?;
        module.add_class::<codel::Codel>()?;
        module.add_class::<entrance::Entrance>()?;
        module.add_class::<gate::Gate>()?;
        module.add_class::<deadline::Deadline>()?;
        module.add_class::<gradient::GradientLimiter>()?;
        module.add_class::<keyed_bucket::KeyedTokenBucket>()?;
        module.add_class::<limiter::BaseLimiter>()?;
        module.add_class::<permit::Permit>()?;
        module.add_class::<pressure::CpuUsage>()?;
        module.add_class::<pressure::LagWindow>()?;
        module.add_class::<queue::CoDelQueue>()?;
        module.add_class::<queue::Take>()?;
        module.add_class::<rejection::Rejection>()?;
        module.add_class::<retry_budget::RetryBudget>()?;
        module.add_class::<retry_permit::RetryPermit>()?;
        module.add_class::<scope::Detached>()?;
        module.add_class::<scope::Scope>()?;
        module.add_class::<semaphore::SemaphoreLimiter>()?;
        module.add_class::<throttle::AdaptiveThrottle>()?;
        module.add_class::<token_retry_budget::TokenRetryBudget>()?;
        module.add_function(wrap_pyfunction!(pressure::target, module)?)?;
        module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
        module.add_function(wrap_pyfunction!(simulate::variants, module)?)?;
        module.add_function(wrap_pyfunction!(default_clock::default_clock, module)?)?;
        module.add_function(wrap_pyfunction!(default_clock::set_default_clock, module)?)?;
        module.add_function(wrap_pyfunction!(exit::report_from_python, module)?)?;
        module.add_function(wrap_pyfunction!(scope::current, module)?)?;
        module.add_function(wrap_pyfunction!(scope::outcome_from_python, module)?)?;
        module.add_function(wrap_pyfunction!(scope::remaining, module)?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        exit::install(module.py())?;
        fork::install(module.py())
    }
}
