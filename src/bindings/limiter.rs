//! What every limiter is in Python, whatever its limit follows.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::acquire::{Acquire, Admits, Limiter, acquire_blocking};
use super::given::Given;
use super::names::Names;
use super::permit::Permit;
use super::rejection::Rejection;
use super::shared::{Hosted, Shared};
use super::wait::refuse_on_event_loop;
use super::waiter::{self, Station, Waiter};
use super::{config, imports};
use crate::primitives::{
    Admission, Ask, Claim, Outcome, Permit as Right, Rejection as Refusal,
    SemaphoreLimiter as Semaphore, Snapshot, Ticket, Time, Wakes,
};

/// A primitive that admits by a semaphore, and may learn from what is given back.
pub(crate) trait Limits: Hosted {
    fn semaphore(&self) -> &Semaphore<Waiter>;
    fn semaphore_mut(&mut self) -> &mut Semaphore<Waiter>;
    fn release(&mut self, now: Time, right: Right, outcome: Outcome) -> Wakes<Waiter>;
    /// Why the limit is what it is.
    fn because(&self) -> String;
}

/// What the class needs of such a primitive together with its lock and clock.
pub(crate) trait LimiterCore: Admits {
    /// Answers with a `Permit` of the owner, or a `Rejection`.
    fn try_acquire(
        &self,
        owner: &Bound<'_, BaseLimiter>,
        ask: Ask,
        operation: Option<Py<PyString>>,
    ) -> PyResult<Py<PyAny>>;
    fn look(&self) -> Figures;
    fn snapshot(&self, now: Time) -> (Snapshot, Option<Time>, String);
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
    fn clear(&self);
}

pub(crate) struct Figures {
    limit: f64,
    in_flight: u64,
    waiting: usize,
    saturation: f64,
}

/// What all limiters are, whatever their limit follows.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct BaseLimiter {
    core: Arc<dyn LimiterCore>,
}

impl BaseLimiter {
    pub(crate) fn new(core: Arc<dyn LimiterCore>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &(dyn Admits + 'static) {
        &*self.core
    }
}

#[pymethods]
impl BaseLimiter {
    /// Admit now or reject now; never waits, and overtakes nobody who waits.
    #[pyo3(signature = (cost = Given::NOTHING, /, *, operation = None), text_signature = "($self, cost=1, /, *, operation=None)")]
    fn try_acquire(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        operation: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let ask = config::ask(cost.get(), None)?;
        let operation = config::text("operation", operation)?;
        slf.get().core.try_acquire(slf, ask, operation)
    }

    /// Wait in line, in `async with`, `await`, or in a thread `with`.
    #[pyo3(signature = (cost = Given::NOTHING, /, *, operation = None, timeout = None), text_signature = "($self, cost=1, /, *, operation=None, timeout=None)")]
    fn acquire(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        operation: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Acquire>> {
        let ask = config::ask(cost.get(), config::timeout(timeout)?)?;
        let operation = config::text("operation", operation)?;
        Py::new(slf.py(), Acquire::new(limiter(slf), ask, operation))
    }

    /// Wait in line in this thread, which lets other threads run.
    #[pyo3(signature = (cost = Given::NOTHING, /, *, operation = None, timeout = None), text_signature = "($self, cost=1, /, *, operation=None, timeout=None)")]
    fn acquire_sync(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        operation: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Permit> {
        let py = slf.py();
        let ask = config::ask(cost.get(), config::timeout(timeout)?)?;
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

    /// What it is called in rejections, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// How many units may be in flight at once.
    #[getter]
    fn limit(&self) -> f64 {
        self.core.look().limit
    }

    /// The cost in flight, including what is granted and about to be claimed.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.core.look().in_flight
    }

    /// How many wait in line.
    #[getter]
    fn waiting(&self) -> usize {
        self.core.look().waiting
    }

    /// In flight / limit; 1 if the limit is 0.
    #[getter]
    fn saturation(&self) -> f64 {
        self.core.look().saturation
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.core.clock().now(py)?;
        let (snapshot, next_expiry, because) = self.core.snapshot(now);
        let values = PyDict::new(py);
        values.set_item("name", self.core.name())?;
        values.set_item("limit", snapshot.limit)?;
        values.set_item("limit_because", because)?;
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

fn limiter(owner: &Bound<'_, BaseLimiter>) -> Limiter {
    Limiter::Base(owner.clone().unbind())
}

static NAMES: Names = Names::new("limiter");

/// "limiter", "limiter-2", …, unless a name is given.
pub(crate) fn name(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyString>> {
    Ok(config::text("name", given)?.unwrap_or_else(|| NAMES.next(py)))
}

impl<P: Limits> Admits for Shared<P> {
    fn admit(&self, py: Python<'_>, ask: &Ask) -> PyResult<Option<Right>> {
        self.with_time(py, |state, now| {
            let state = state.semaphore_mut();
            if state.is_home_wanted() { None } else { state.admit(now, ask) }
        })
    }

    fn join(&self, py: Python<'_>, ask: &Ask, waiter: Waiter) -> PyResult<Admission> {
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let (admission, checked) = self.change(py, |state, now| {
            (state.semaphore_mut().acquire(now, ask, &mut waiter), Wakes::none())
        })?;
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
        let (claim, delivered) =
            self.change_surely(py, |state, now| state.semaphore_mut().claim(now, ticket));
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
        self.with(|state| state.semaphore_mut().count_stray_release());
    }

    fn name(&self) -> &Py<PyString> {
        Shared::name(self)
    }
}

impl<P: Limits> LimiterCore for Shared<P> {
    fn try_acquire(
        &self,
        owner: &Bound<'_, BaseLimiter>,
        ask: Ask,
        operation: Option<Py<PyString>>,
    ) -> PyResult<Py<PyAny>> {
        let py = owner.py();
        let answer = self.with_time(py, |state, now| {
            let state = state.semaphore_mut();
            (!state.is_home_wanted()).then(|| state.try_acquire(now, &ask))
        })?;
        let answer = match answer {
            Some(answer) => answer,
            None => try_acquire_from_here(py, self, ask)?,
        };
        match answer {
            Ok(right) => {
                let permit = Permit::new(limiter(owner), right, operation);
                Ok(Py::new(py, permit)?.into_any())
            }
            Err(refusal) => {
                let rejection = Rejection::new(Shared::name(self).clone_ref(py), refusal);
                Ok(Py::new(py, rejection)?.into_any())
            }
        }
    }

    fn look(&self) -> Figures {
        self.with(|state| {
            let state = state.semaphore();
            Figures {
                limit: state.limit(),
                in_flight: state.in_flight(),
                waiting: state.waiting(),
                saturation: state.saturation(),
            }
        })
    }

    fn snapshot(&self, now: Time) -> (Snapshot, Option<Time>, String) {
        self.with(|state| (state.semaphore().snapshot(now), state.next_expiry(), state.because()))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Shared::traverse(self, visit)
    }

    fn clear(&self) {
        Shared::clear(self);
    }
}

/// Off the fast path: who asks matters only while somebody waits.
#[cold]
fn try_acquire_from_here<P: Limits>(
    py: Python<'_>,
    shared: &Shared<P>,
    mut ask: Ask,
) -> PyResult<Result<Right, Refusal>> {
    ask.home = Some(waiter::home(py)?);
    let (answer, delivered) =
        shared.change(py, |state, now| state.semaphore_mut().try_acquire_behind(now, &ask))?;
    if let Err(error) = delivered {
        // What was admitted goes back.
        let returned = answer.map(|right| shared.release(py, right, Outcome::Ignored));
        return Err(returned.ok().and_then(Result::err).unwrap_or(error));
    }
    Ok(answer)
}
