//! What every limiter is in Python, whatever its limit follows.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use super::acquire::{Acquire, Admits, Asked, Limiter, acquire_blocking};
use super::given::Given;
use super::names::Names;
use super::operation::Operation;
use super::permit::Permit;
use super::rejection::{Kind, Rejection};
use super::shared::{Hosted, Shared};
use super::wait::{self, refuse_on_event_loop};
use super::waiter::{self, Station, Waiter};
use super::{config, imports};
use crate::primitives::gradient::{Because, GradientConfig};
use crate::primitives::{
    Admission, Ask, Claim, GateLimit, Outcome, Permit as Right, Reason, Rejection as Refusal,
    SemaphoreLimiter as Semaphore, Snapshot, Ticket, Time, Wakes,
};

/// A primitive that admits by a semaphore, and may learn from what is given back.
pub(crate) trait Limits: Hosted {
    /// Whether it is of use to know which operation ended.
    const LEARNS_BY_OPERATION: bool = false;

    fn semaphore(&self) -> &Semaphore<Waiter>;
    fn semaphore_mut(&mut self) -> &mut Semaphore<Waiter>;

    #[inline]
    fn admit(&mut self, now: Time, ask: &Ask) -> Option<Right> {
        self.semaphore_mut().admit(now, ask)
    }

    #[inline]
    fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Right, Refusal> {
        self.semaphore_mut().try_acquire(now, ask)
    }

    fn try_acquire_behind(
        &mut self,
        now: Time,
        ask: &Ask,
    ) -> (Result<Right, Refusal>, Wakes<Waiter>) {
        self.semaphore_mut().try_acquire_behind(now, ask)
    }

    fn acquire(&mut self, now: Time, ask: &Ask, waiter: &mut Option<Waiter>) -> Admission {
        self.semaphore_mut().acquire(now, ask, waiter)
    }

    fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<Waiter>) {
        self.semaphore_mut().claim(now, ticket)
    }

    fn release(
        &mut self,
        now: Time,
        right: Right,
        operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<Waiter>;

    /// What the limit of a gate is that is made like this.
    fn gate_limit(&self) -> GateLimit;

    /// Why the limit is what it is.
    fn because(&self) -> String;

    /// The same in figures, where there are any.
    fn estimate(&self) -> Option<(Because, GradientConfig)> {
        None
    }
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
    fn gate_limit(&self) -> GateLimit;
    fn snapshot(&self, now: Time) -> State;
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
    fn clear(&self);
}

pub(crate) struct Figures {
    limit: f64,
    in_flight: u64,
    waiting: usize,
    saturation: f64,
}

pub(crate) struct State {
    limiter: Snapshot,
    next_expiry: Option<Time>,
    because: String,
    estimate: Option<(Because, GradientConfig)>,
}

/// What all limiters are, whatever their limit follows.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct BaseLimiter {
    core: Arc<dyn LimiterCore>,
    /// The gate that it was given to, which goes on with its limit.
    owner: PyOnceLock<Py<PyString>>,
}

impl BaseLimiter {
    pub(crate) fn new(core: Arc<dyn LimiterCore>) -> Self {
        Self { core, owner: PyOnceLock::new() }
    }

    /// The limit of a gate that is made like this.
    ///
    /// # Errors
    /// If it is in use already.
    pub(crate) fn gate_limit(&self, py: Python<'_>) -> PyResult<GateLimit> {
        self.refuse_if_given_away(py)?;
        let Figures { in_flight, waiting, .. } = self.core.look();
        if in_flight > 0 || waiting > 0 {
            let name = self.core.name().bind(py).to_string();
            return Err(PyValueError::new_err(format!(
                "limit must be a limiter that is not in use yet, got {name:?} with {in_flight} in \
                 flight and {waiting} waiting"
            )));
        }
        Ok(self.core.gate_limit())
    }

    /// From now on the gate of that name admits by its limit.
    pub(crate) fn give_to(&self, py: Python<'_>, gate: &Py<PyString>) -> PyResult<()> {
        self.owner.set(py, gate.clone_ref(py)).map_err(|_| self.given_away(py))
    }

    /// # Errors
    /// If it belongs to a gate.
    #[inline]
    pub(crate) fn refuse_if_given_away(&self, py: Python<'_>) -> PyResult<()> {
        if self.owner.get(py).is_none() { Ok(()) } else { Err(self.given_away(py)) }
    }

    #[cold]
    fn given_away(&self, py: Python<'_>) -> PyErr {
        let name = self.core.name().bind(py).to_string();
        let owner = self.owner.get(py).map(|owner| owner.bind(py).to_string());
        PyRuntimeError::new_err(format!(
            "limiter {name:?} belongs to gate {:?}: acquire and update there",
            owner.unwrap_or_default()
        ))
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
        slf.get().refuse_if_given_away(slf.py())?;
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
        slf.get().refuse_if_given_away(slf.py())?;
        let ask = config::ask(cost.get(), config::timeout(timeout)?)?;
        let operation = config::text("operation", operation)?;
        Py::new(slf.py(), Acquire::new(limiter(slf), ask.into(), operation, None))
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
        slf.get().refuse_if_given_away(py)?;
        let ask = config::ask(cost.get(), config::timeout(timeout)?)?;
        let operation = config::text("operation", operation)?;
        refuse_on_event_loop(
            py,
            "acquire_sync(), or a function that is not async under guard(),",
            "await acquire(), or an async function",
        )?;
        acquire_blocking(py, limiter(slf), &ask.into(), operation, None)
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
        let State { limiter: snapshot, next_expiry, because, estimate } = self.core.snapshot(now);
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
        if let Some((because, config)) = estimate {
            let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
            values.set_item("min_limit", config.min_limit)?;
            values.set_item("max_limit", config.max_limit)?;
            values.set_item("latency_target", seconds(config.latency_target))?;
            values.set_item("baseline", seconds(because.baseline))?;
            values.set_item("recent", seconds(because.recent))?;
            values.set_item("slowdown", because.slowdown)?;
            values.set_item("significance", because.significance)?;
            values.set_item("cap", because.cap)?;
        }
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
    fn admit(
        &self,
        py: Python<'_>,
        asked: &Asked,
        _operation: &Operation,
    ) -> PyResult<Option<Right>> {
        self.with_time(py, |state, now| {
            if state.semaphore().is_home_wanted() { None } else { state.admit(now, &asked.ask) }
        })
    }

    fn join(
        &self,
        py: Python<'_>,
        asked: &Asked,
        _operation: &Operation,
        waiter: Waiter,
    ) -> PyResult<Admission> {
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let (admission, checked) = self.change(py, |state, now| {
            (state.acquire(now, &asked.ask, &mut waiter), Wakes::none())
        })?;
        let Err(error) = checked else {
            return Ok(admission);
        };
        match admission {
            Admission::Admitted(right) => self.release(py, right, None, Outcome::Ignored)?,
            Admission::Waiting(ticket) => self.cancel(py, ticket)?,
            Admission::Rejected(_) => {}
        }
        Err(error)
    }

    fn claim(&self, py: Python<'_>, _asked: &Asked, ticket: Ticket) -> PyResult<Claim> {
        let (claim, delivered) = self.change_surely(py, |state, now| state.claim(now, ticket));
        let Err(error) = delivered else {
            return Ok(claim);
        };
        if let Claim::Admitted(right) = claim {
            self.release(py, right, None, Outcome::Ignored)?;
        }
        Err(error)
    }

    fn release(
        &self,
        py: Python<'_>,
        right: Right,
        operation: Option<&Operation>,
        outcome: Outcome,
    ) -> PyResult<()> {
        // Read before the lock, and let go of after it.
        let name = operation.filter(|_| P::LEARNS_BY_OPERATION).and_then(|name| name.get(py));
        let text = name.as_ref().map(|name| config::operation_text(name.bind(py)));
        let text = text.as_deref();
        self.change_surely(py, |state, now| ((), state.release(now, right, text, outcome))).1
    }

    fn refused(
        &self,
        py: Python<'_>,
        asked: &Asked,
        _operation: &Operation,
        refusal: Refusal,
    ) -> PyErr {
        if refusal.reason != Reason::Wait {
            return wait::from_before_a_fork();
        }
        let name = Shared::name(self).bind(py).to_string();
        let span = asked.ask.max_wait.unwrap_or_default().as_secs_f64();
        imports::timed_out(py, format!("no permit of {name:?} within {span} s"))
    }

    /// No limiter is inside of another.
    fn annul(&self, py: Python<'_>, right: Right, _tokens: f64) -> PyResult<()> {
        self.release(py, right, None, Outcome::Ignored)
    }

    /// There is no rate.
    fn charge(&self, _py: Python<'_>, _tokens: f64) -> PyResult<()> {
        Ok(())
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
            (!state.semaphore().is_home_wanted()).then(|| state.try_acquire(now, &ask))
        })?;
        let answer = match answer {
            Some(answer) => answer,
            None => try_acquire_from_here(py, self, ask)?,
        };
        match answer {
            Ok(right) => {
                let permit = Permit::new(limiter(owner), right, 0.0, operation, None);
                Ok(Py::new(py, permit)?.into_any())
            }
            Err(refusal) => {
                let name = Shared::name(self).clone_ref(py);
                let rejection = Rejection::new(Kind::Limiter, name, refusal);
                let rejection = rejection.with_operation(operation);
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

    fn gate_limit(&self) -> GateLimit {
        self.with(|state| Limits::gate_limit(state))
    }

    fn snapshot(&self, now: Time) -> State {
        self.with(|state| State {
            limiter: state.semaphore().snapshot(now),
            next_expiry: state.next_expiry(),
            because: state.because(),
            estimate: state.estimate(),
        })
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
        shared.change(py, |state, now| state.try_acquire_behind(now, &ask))?;
    if let Err(error) = delivered {
        // What was admitted goes back.
        let returned = answer.map(|right| shared.release(py, right, None, Outcome::Ignored));
        return Err(returned.ok().and_then(Result::err).unwrap_or(error));
    }
    Ok(answer)
}
