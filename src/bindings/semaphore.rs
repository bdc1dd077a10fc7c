use std::sync::Arc;

use pyo3::prelude::*;

use super::clock::Clock;
use super::config;
use super::limiter::{self, BaseLimiter, Limits};
use super::shared::{Hosted, Shared};
use super::waiter::Waiter;
use crate::primitives::{
    GateLimit, Outcome, Permit as Right, SemaphoreLimiter as Semaphore, Time, Wakes,
};

/// A fixed limit; see `sluicegate.SemaphoreLimiter`.
#[pyclass(frozen, subclass, extends = BaseLimiter, module = "sluicegate._core")]
pub(crate) struct SemaphoreLimiter {
    core: Arc<Shared<Semaphore<Waiter>>>,
}

#[pymethods]
impl SemaphoreLimiter {
    #[new]
    #[pyo3(signature = (limit, *, name = None, clock = None))]
    fn new(
        py: Python<'_>,
        limit: &Bound<'_, PyAny>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let limit = config::number("limit", "a number above 0 and at most 1e9", limit)?;
        let primitive = Semaphore::new(limit)?;
        let clock = Clock::new(clock)?;
        let core = Shared::new(primitive, limiter::name(py, name)?, clock);
        let base = PyClassInitializer::from(BaseLimiter::new(core.clone()));
        Ok(base.add_subclass(Self { core }))
    }

    /// Change the limit: from 0, which admits nobody, to 1e9.
    #[pyo3(signature = (*, limit = None))]
    fn update(slf: &Bound<'_, Self>, limit: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        slf.as_super().get().refuse_if_given_away(py)?;
        let Some(limit) = limit else { return Ok(()) };
        let range = "a number from 0 (admits nobody) to 1e9";
        let limit = config::number("limit", range, limit)?;
        let (updated, delivered) =
            this.core.change(py, |state, now| match state.update(now, limit) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            })?;
        updated?;
        delivered
    }
}

impl Hosted for Semaphore<Waiter> {
    type Listener = ();
}

impl Limits for Semaphore<Waiter> {
    fn semaphore(&self) -> &Self {
        self
    }

    fn semaphore_mut(&mut self) -> &mut Self {
        self
    }

    #[inline]
    fn release(
        &mut self,
        now: Time,
        right: Right,
        _operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<Waiter> {
        self.release(now, right, outcome)
    }

    fn gate_limit(&self) -> GateLimit {
        GateLimit::Fixed(self.limit())
    }

    fn because(&self) -> String {
        "fixed".into()
    }
}
