use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use super::clock::Clock;
use super::config;
use super::limiter::{self, BaseLimiter, Limits};
use super::shared::{Hosted, Shared};
use super::waiter::Waiter;
use crate::primitives::gradient::{Because, GradientConfig, ranges};
use crate::primitives::{
    Admission, Ask, Claim, GateLimit, GradientLimiter as Gradient, Outcome, Permit as Right,
    Rejection as Refusal, SemaphoreLimiter as Semaphore, Ticket, Time, Wakes,
};

/// See `sluicegate.GradientLimiter`.
#[pyclass(frozen, subclass, extends = BaseLimiter, module = "sluicegate._core")]
pub(crate) struct GradientLimiter {
    core: Arc<Shared<Gradient<Waiter>>>,
}

#[pymethods]
impl GradientLimiter {
    #[new]
    #[pyo3(signature = (*, initial, min_limit, max_limit, latency_target, name = None, clock = None))]
    fn new(
        py: Python<'_>,
        initial: &Bound<'_, PyAny>,
        min_limit: &Bound<'_, PyAny>,
        max_limit: &Bound<'_, PyAny>,
        latency_target: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let config = GradientConfig {
            initial: config::number("initial", ranges::INITIAL, initial)?,
            min_limit: config::number("min_limit", ranges::MIN_LIMIT, min_limit)?,
            max_limit: config::number("max_limit", ranges::MAX_LIMIT, max_limit)?,
            latency_target: target(latency_target)?,
        };
        let primitive = Gradient::new(config)?;
        let clock = Clock::new(clock)?;
        let core = Shared::new(primitive, limiter::name(py, name)?, clock);
        let base = PyClassInitializer::from(BaseLimiter::new(core.clone()));
        Ok(base.add_subclass(Self { core }))
    }

    /// Change what is given; `None` leaves it as it is.
    #[pyo3(signature = (*, min_limit = None, max_limit = None, latency_target = None))]
    fn update(
        slf: &Bound<'_, Self>,
        min_limit: Option<&Bound<'_, PyAny>>,
        max_limit: Option<&Bound<'_, PyAny>>,
        latency_target: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        slf.as_super().get().refuse_if_given_away(py)?;
        if min_limit.is_none() && max_limit.is_none() && latency_target.is_none() {
            return Ok(());
        }
        let number = |parameter, range, value: Option<&Bound<'_, PyAny>>| {
            value.map(|value| config::number(parameter, range, value)).transpose()
        };
        let min_limit = number("min_limit", ranges::MIN_LIMIT, min_limit)?;
        let max_limit = number("max_limit", ranges::MAX_LIMIT, max_limit)?;
        let latency_target = target(latency_target)?;
        let (updated, delivered) = this.core.change(py, |state, now| {
            let config = *state.config();
            let (least, most) =
                (min_limit.unwrap_or(config.min_limit), max_limit.unwrap_or(config.max_limit));
            match state.update(now, least, most, latency_target.or(config.latency_target)) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            }
        })?;
        updated?;
        delivered
    }
}

fn target(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    value.map(|value| config::seconds("latency_target", ranges::LATENCY_TARGET, value)).transpose()
}

impl Hosted for Gradient<Waiter> {
    type Listener = ();
}

impl Limits for Gradient<Waiter> {
    const LEARNS_BY_OPERATION: bool = true;

    fn semaphore(&self) -> &Semaphore<Waiter> {
        &self.semaphore
    }

    fn semaphore_mut(&mut self) -> &mut Semaphore<Waiter> {
        &mut self.semaphore
    }

    #[inline]
    fn admit(&mut self, now: Time, ask: &Ask) -> Option<Right> {
        self.admit(now, ask)
    }

    #[inline]
    fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Right, Refusal> {
        self.try_acquire(now, ask)
    }

    fn try_acquire_behind(
        &mut self,
        now: Time,
        ask: &Ask,
    ) -> (Result<Right, Refusal>, Wakes<Waiter>) {
        self.try_acquire_behind(now, ask)
    }

    fn acquire(&mut self, now: Time, ask: &Ask, waiter: &mut Option<Waiter>) -> Admission {
        self.acquire(now, ask, waiter)
    }

    fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<Waiter>) {
        self.claim(now, ticket)
    }

    #[inline]
    fn release(
        &mut self,
        now: Time,
        right: Right,
        operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<Waiter> {
        self.release(now, right, operation, outcome)
    }

    fn gate_limit(&self) -> GateLimit {
        GateLimit::Gradient(*self.config())
    }

    fn because(&self) -> String {
        self.because().to_string()
    }

    fn estimate(&self) -> Option<(Because, GradientConfig)> {
        Some((self.because(), *self.config()))
    }
}
