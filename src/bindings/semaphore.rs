use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::acquire::{Acquire, Admits, Limiter, acquire_blocking};
use super::clock::Clock;
use super::names::Names;
use super::permit::Permit;
use super::rejection::Rejection;
use super::shared::{Hosted, Shared};
use super::wait::refuse_on_event_loop;
use super::waiter::{self, Station, Waiter};
use super::{config, imports};
use crate::primitives::{
    Admission, Ask, Claim, Outcome, Permit as Right, Rejection as Refusal,
    SemaphoreLimiter as Semaphore, Ticket, Time, Waitable, Wakes,
};

/// A fixed limit; see `sluicegate.SemaphoreLimiter`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct SemaphoreLimiter {
    core: Arc<Core>,
}

type Core = Shared<Semaphore<Waiter>>;

static NAMES: Names = Names::new("limiter");

#[pymethods]
impl SemaphoreLimiter {
    #[new]
    #[pyo3(signature = (limit, *, name = None, clock = None))]
    fn new(
        py: Python<'_>,
        limit: &Bound<'_, PyAny>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let limit = config::number("limit", "a number above 0 and at most 1e9", limit)?;
        let primitive = Semaphore::new(limit)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Shared::new(primitive, name, clock) })
    }

    #[pyo3(signature = (cost = None, /, *, operation = None), text_signature = "($self, cost=1, /, *, operation=None)")]
    fn try_acquire(
        slf: &Bound<'_, Self>,
        cost: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let core = &slf.get().core;
        let ask = config::ask(cost, None)?;
        let operation = config::text("operation", operation)?;
        let answer = core.with_time(py, |state, now| {
            (!state.is_home_wanted()).then(|| state.try_acquire(now, &ask))
        })?;
        let answer = match answer {
            Some(answer) => answer,
            None => Self::try_acquire_from_here(slf, ask)?,
        };
        match answer {
            Ok(right) => {
                let permit = Permit::new(limiter(slf), right, operation);
                Ok(Py::new(py, permit)?.into_any())
            }
            Err(refusal) => {
                let rejection = Rejection::new(core.name().clone_ref(py), refusal);
                Ok(Py::new(py, rejection)?.into_any())
            }
        }
    }

    #[pyo3(signature = (cost = None, /, *, operation = None, timeout = None), text_signature = "($self, cost=1, /, *, operation=None, timeout=None)")]
    fn acquire(
        slf: &Bound<'_, Self>,
        cost: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Acquire>> {
        let ask = config::ask(cost, config::timeout(timeout)?)?;
        let operation = config::text("operation", operation)?;
        Py::new(slf.py(), Acquire::new(limiter(slf), ask, operation))
    }

    #[pyo3(signature = (cost = None, /, *, operation = None, timeout = None), text_signature = "($self, cost=1, /, *, operation=None, timeout=None)")]
    fn acquire_sync(
        slf: &Bound<'_, Self>,
        cost: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Permit> {
        let py = slf.py();
        let ask = config::ask(cost, config::timeout(timeout)?)?;
        let operation = config::text("operation", operation)?;
        refuse_on_event_loop(
            py,
            "acquire_sync(), or a function that is not async under guard(),",
            "await acquire(), or an async function",
        )?;
        let limiter = limiter(slf);
        let right = acquire_blocking(py, &limiter, &ask)?;
        Ok(Permit::new(limiter, right, operation))
    }

    #[pyo3(signature = (*, limit = None))]
    fn update(&self, py: Python<'_>, limit: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(limit) = limit else { return Ok(()) };
        let range = "a number from 0 (admits nobody) to 1e9";
        let limit = config::number("limit", range, limit)?;
        let (updated, delivered) =
            self.core.change(py, |state, now| match state.update(now, limit) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            })?;
        updated?;
        delivered
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    #[getter]
    fn limit(&self) -> f64 {
        self.core.with(|state| state.limit())
    }

    #[getter]
    fn in_flight(&self) -> u64 {
        self.core.with(|state| state.in_flight())
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.core.with(|state| state.waiting())
    }

    #[getter]
    fn saturation(&self) -> f64 {
        self.core.with(|state| state.saturation())
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.core.clock().now(py)?;
        let (snapshot, next_expiry) =
            self.core.with(|state| (state.snapshot(now), state.next_expiry()));
        let values = PyDict::new(py);
        values.set_item("limit", snapshot.limit)?;
        values.set_item("in_flight", snapshot.in_flight)?;
        values.set_item("waiting", snapshot.waiting)?;
        values.set_item("oldest_wait", snapshot.oldest_wait.as_secs_f64())?;
        values.set_item("saturation", snapshot.saturation)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", imports::reasons(py, &snapshot.rejected)?)?;
        values.set_item("outcomes", imports::outcomes(py, &snapshot.outcomes)?)?;
        values.set_item("revoked", snapshot.revoked)?;
        values.set_item("stray_releases", snapshot.stray_releases)?;
        values.set_item("next_expiry", next_expiry.map(Time::as_secs_f64))?;
        Ok(values)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }

    fn __clear__(&self) {
        self.core.clear();
    }
}

fn limiter(owner: &Bound<'_, SemaphoreLimiter>) -> Limiter {
    Limiter::Semaphore(owner.clone().unbind())
}

impl SemaphoreLimiter {
    /// Off the fast path: who asks matters only while somebody waits.
    #[cold]
    fn try_acquire_from_here(
        slf: &Bound<'_, Self>,
        mut ask: Ask,
    ) -> PyResult<Result<Right, Refusal>> {
        let (py, core) = (slf.py(), &slf.get().core);
        ask.home = Some(waiter::home_here(py)?);
        let (answer, delivered) =
            core.change(py, |state, now| state.try_acquire_behind(now, &ask))?;
        if let Err(error) = delivered {
            // What was admitted goes back.
            let returned = answer.map(|right| core.release(py, right, Outcome::Ignored));
            return Err(returned.ok().and_then(Result::err).unwrap_or(error));
        }
        Ok(answer)
    }

    pub(crate) fn core(&self) -> &(dyn Admits + 'static) {
        &*self.core
    }
}

impl Admits for Core {
    fn admit(&self, py: Python<'_>, ask: &Ask) -> PyResult<Option<Right>> {
        let admitted = |state: &mut Semaphore<_>, now| {
            if state.is_home_wanted() { None } else { state.admit(now, ask) }
        };
        self.with_time(py, admitted)
    }

    fn join(&self, py: Python<'_>, ask: &Ask, waiter: Waiter) -> PyResult<Admission> {
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let (admission, checked) =
            self.change(py, |state, now| (state.acquire(now, ask, &mut waiter), Wakes::none()))?;
        let Err(error) = checked else {
            return Ok(admission);
        };
        match admission {
            Admission::Admitted(right) => self.release(py, right, Outcome::Ignored)?,
            Admission::Waiting(ticket) => self.cancel(py, ticket)?,
            Admission::Rejected(_) => {}
        }
        Err(error)
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claim> {
        let (claim, delivered) = self.change_surely(py, |state, now| state.claim(now, ticket));
        let Err(error) = delivered else {
            return Ok(claim);
        };
        if let Claim::Admitted(right) = claim {
            self.release(py, right, Outcome::Ignored)?;
        }
        Err(error)
    }

    fn release(&self, py: Python<'_>, right: Right, outcome: Outcome) -> PyResult<()> {
        self.change_surely(py, |state, now| ((), state.release(now, right, outcome))).1
    }

    fn count_stray_release(&self) {
        self.with(Semaphore::count_stray_release);
    }

    fn name(&self) -> &Py<PyString> {
        Shared::name(self)
    }
}

impl Hosted for Semaphore<Waiter> {}
