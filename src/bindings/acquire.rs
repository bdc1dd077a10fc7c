use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::gate::{Core as GateCore, Gate};
use super::limiter::BaseLimiter;
use super::operation::Operation;
use super::permit::{self, Permit};
use super::slot::Slot;
use super::wait::{
    self, Claimed, Done, Joined, NEW, OVER, Quest, REFUSED, Stage, Words, refuse_on_event_loop,
};
use super::waiter::{Station, Waiter};
use crate::primitives::{
    Admission, Ask, Claim, Home, Outcome, Permit as Right, Position, Rejection as Refusal, Ticket,
    Time,
};

/// What is asked for, but for its name.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    /// On the clock of the gate.
    pub(crate) deadline: Option<Time>,
    pub(crate) tokens: f64,
    /// Where who asks stands, if that is known.
    pub(crate) position: Option<Position>,
    pub(crate) is_retry: bool,
}

impl From<Ask> for Asked {
    fn from(ask: Ask) -> Self {
        Self { ask, deadline: None, tokens: 1.0, position: None, is_retry: false }
    }
}

/// What a permit and a wait need of the limiter that they belong to.
pub(crate) trait Admits: Station {
    /// Admits at once if nobody waits, or says nothing: then [`join`](Self::join)
    /// decides.
    fn admit(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
    ) -> PyResult<Option<Right>>;
    fn join(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
        waiter: Waiter,
    ) -> PyResult<Admission>;
    fn claim(&self, py: Python<'_>, asked: &Asked, ticket: Ticket) -> PyResult<Claim>;
    /// What is raised for who is not admitted.
    fn refused(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
        refusal: Refusal,
    ) -> PyErr;
    /// `operation` is what it was for, if that is known.
    fn release(
        &self,
        py: Python<'_>,
        right: Right,
        operation: Option<&Operation>,
        outcome: Outcome,
    ) -> PyResult<()>;
    /// What an exception (or `None`) that ends a block says about load, and what is to be raised
    /// once the permit is given back.
    fn classify(&self, exception: &Bound<'_, PyAny>) -> (Outcome, PyResult<()>) {
        (permit::classify(exception), Ok(()))
    }
    /// Takes back what was not used, as if it had never been given.
    fn annul(&self, py: Python<'_>, right: Right, tokens: f64) -> PyResult<()>;
    /// Charges what was not charged at the admission, or gives it back if it is negative.
    fn charge(&self, py: Python<'_>, tokens: f64) -> PyResult<()>;
    fn count_stray_release(&self);
    fn name(&self) -> &Py<PyString>;
}

/// The Python object of a limiter.
///
/// It is kept alive and shown to the collector, since it alone shows the
/// waiters: a permit out there keeps the tasks alive that wait for it.
pub(crate) enum Limiter {
    Base(Py<BaseLimiter>),
    Gate(Py<Gate>),
}

impl Limiter {
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Base(limiter) => visit.call(limiter),
            Self::Gate(gate) => visit.call(gate),
        }
    }
}

impl std::ops::Deref for Limiter {
    type Target = dyn Admits;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Base(limiter) => limiter.get().core(),
            Self::Gate(gate) => &**gate.get().core(),
        }
    }
}

/// A wish for a permit, for `async with`, `await` and, in a thread, `with`; once.
#[pyclass(frozen, extends = Permit, module = "sluicegate")]
pub(crate) struct Acquire {
    asked: Asked,
    stage: Stage,
}

impl Acquire {
    pub(crate) fn new(
        limiter: Limiter,
        asked: Asked,
        operation: Option<Py<PyString>>,
        inner: Option<Box<Inner>>,
    ) -> PyClassInitializer<Self> {
        let wish = Self { asked, stage: Stage::new() };
        let permit = Permit::vacant(limiter, asked.tokens, operation, inner);
        PyClassInitializer::from(permit).add_subclass(wish)
    }

    /// One step of an await: the future to yield, or `None` when it holds the
    /// permit.
    fn step<'py>(&self, py: Python<'py>, permit: &Permit) -> PyResult<Option<Bound<'py, PyAny>>> {
        let wish = permit.wish(&self.asked);
        let step =
            wait::step(py, &wish, &self.stage, permit.place(), |right| permit.fill(py, right));
        match step {
            Err(error) if wish.inner.is_some() => {
                permit.annul_inner(py)?;
                Err(error)
            }
            step => step,
        }
    }

    fn end(&self, py: Python<'_>, permit: &Permit) -> PyResult<()> {
        let wish = permit.wish(&self.asked);
        wait::end(py, wish.station(), &self.stage, permit.place())?;
        if permit.is_vacant() { permit.annul_inner(py) } else { Ok(()) }
    }
}

static WORDS: Words = Words {
    call: "an acquire()",
    again: "acquire()",
    waiting: "waiting for a permit",
    elsewhere: "try_acquire(), or acquire_sync() in a thread",
};

pub(crate) struct Wish<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) asked: &'a Asked,
    pub(crate) operation: &'a Operation,
    pub(crate) inner: Option<&'a Inner>,
}

/// A gate that is asked before another one, of which it guards a part.
pub(crate) struct Inner {
    pub(crate) limiter: Limiter,
    pub(crate) asked: Asked,
    pub(crate) right: Slot<Right>,
    /// How long it waited there, in nanoseconds. Relaxed: read by who holds the permit.
    pub(crate) waited: AtomicU64,
}

impl Inner {
    /// A second one, of somebody who asked twice at once, goes back.
    pub(crate) fn fill(&self, py: Python<'_>, right: Right) -> PyResult<()> {
        match self.right.fill(right) {
            None => Ok(()),
            Some(second) => self.limiter.annul(py, second, self.asked.tokens),
        }
    }

    pub(crate) fn new(limiter: Limiter, asked: Asked) -> Self {
        Self { limiter, asked, right: Slot::vacant(), waited: AtomicU64::new(0) }
    }
}

impl Quest for Wish<'_> {
    type Gain = Right;

    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn station(&self) -> &dyn Station {
        match self.pending() {
            Some(inner) => &*inner.limiter,
            None => &**self.limiter,
        }
    }

    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Right>> {
        if let Some(inner) = self.pending() {
            match inner.limiter.admit(py, &inner.asked, self.operation)? {
                Some(right) => inner.fill(py, right)?,
                None => return Ok(None),
            }
        }
        self.limiter.admit(py, self.asked, self.operation)
    }

    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Right>> {
        if let Some(inner) = self.pending() {
            self.refuse_if_shut(py)?;
            self.note_inner(inner);
            let mut asked = inner.asked;
            asked.ask.home = Some(home);
            return match inner.limiter.join(py, &asked, self.operation, waiter)? {
                Admission::Admitted(right) => {
                    let right = self.go_on(py, inner, right)?;
                    Ok(right.map_or(Joined::Again, Joined::Gained))
                }
                Admission::Waiting(ticket) => {
                    // It was closed meanwhile, perhaps before anybody knew of this wait.
                    if let Err(error) = self.refuse_if_shut(py) {
                        inner.limiter.cancel(py, ticket)?;
                        return Err(error);
                    }
                    Ok(Joined::Waiting(ticket))
                }
                Admission::Rejected(refusal) => {
                    Err(inner.limiter.refused(py, &inner.asked, self.operation, refusal))
                }
            };
        }
        let mut asked = *self.asked;
        asked.ask.home = Some(home);
        match self.limiter.join(py, &asked, self.operation, waiter)? {
            Admission::Admitted(right) => Ok(Joined::Gained(right)),
            Admission::Waiting(ticket) => Ok(Joined::Waiting(ticket)),
            Admission::Rejected(refusal) => Err(self.refused(py, refusal)),
        }
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Right>> {
        if let Some(inner) = self.pending() {
            return match inner.limiter.claim(py, &inner.asked, ticket)? {
                Claim::Admitted(right) => {
                    let right = self.go_on(py, inner, right)?;
                    Ok(right.map_or(Claimed::Again, Claimed::Gained))
                }
                Claim::Waiting => {
                    self.refuse_if_shut(py)?;
                    Ok(Claimed::Waiting)
                }
                Claim::Rejected(refusal) => {
                    Err(inner.limiter.refused(py, &inner.asked, self.operation, refusal))
                }
            };
        }
        match self.limiter.claim(py, self.asked, ticket)? {
            Claim::Admitted(right) => Ok(Claimed::Gained(right)),
            Claim::Waiting => Ok(Claimed::Waiting),
            Claim::Rejected(refusal) => Err(self.refused(py, refusal)),
        }
    }

    fn renew(&self, ticket: Ticket, waiter: Waiter) -> bool {
        let is_waiting = self.station().renew(ticket, waiter);
        // Who had no waiter when it was closed was not called.
        let is_shut = || self.pending().is_some() && self.gate().is_some_and(|gate| gate.is_shut());
        is_waiting && !is_shut()
    }
}

impl Wish<'_> {
    /// The inner gate, while it has not admitted.
    fn pending(&self) -> Option<&Inner> {
        self.inner.filter(|inner| !inner.right.is_there())
    }

    /// What is asked after an inner one, if that is a gate.
    fn gate(&self) -> Option<&Arc<GateCore>> {
        match self.limiter {
            Limiter::Gate(gate) => Some(gate.get().core()),
            Limiter::Base(_) => None,
        }
    }

    fn note_inner(&self, inner: &Inner) {
        if let (Some(gate), Limiter::Gate(part)) = (self.gate(), &inner.limiter) {
            gate.add_part(part.get().core());
        }
    }

    /// Whoever would be rejected after the inner gate need not wait for that.
    fn refuse_if_shut(&self, py: Python<'_>) -> PyResult<()> {
        self.gate().map_or(Ok(()), |gate| gate.refuse_if_shut(py, self.asked, self.operation))
    }

    /// The inner gate has admitted: asks the other one.
    fn go_on(&self, py: Python<'_>, inner: &Inner, right: Right) -> PyResult<Option<Right>> {
        inner.waited.store(permit::nanos(right.waited()), Ordering::Relaxed);
        inner.fill(py, right)?;
        let admitted = self.limiter.admit(py, self.asked, self.operation);
        if admitted.is_err()
            && let Some(right) = inner.right.take()
        {
            // Before anybody asks again whose ticket this is: by its number it may be that
            // of somebody else at the other gate.
            inner.limiter.annul(py, right, inner.asked.tokens)?;
        }
        admitted
    }

    fn refused(&self, py: Python<'_>, refusal: Refusal) -> PyErr {
        self.limiter.refused(py, self.asked, self.operation, refusal)
    }
}

/// Waits in this thread, detached.
pub(crate) fn acquire_blocking(
    py: Python<'_>,
    limiter: Limiter,
    asked: &Asked,
    operation: Option<Py<PyString>>,
    inner: Option<Box<Inner>>,
) -> PyResult<Permit> {
    let permit = Permit::vacant(limiter, asked.tokens, operation, inner);
    permit.block(py, asked)?;
    Ok(permit)
}

#[pymethods]
impl Acquire {
    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().stage.begin(&WORDS)?;
        Ok(slf)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let yielded = slf.get().step(slf.py(), slf.as_super().get())?;
        if yielded.is_none() {
            wait::stop_with(slf.as_any());
        }
        Ok(yielded)
    }

    /// Go one step, as a coroutine does.
    #[pyo3(signature = (_value, /))]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        _value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let yielded = slf.get().step(slf.py(), slf.as_super().get())?;
        yielded.ok_or_else(|| wait::stop_iteration(slf.as_any()))
    }

    /// Leave the line and raise, as a coroutine does.
    #[pyo3(signature = (class_, value = None, traceback = None, /))]
    fn throw(
        slf: &Bound<'_, Self>,
        class_: &Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        slf.get().end(py, slf.as_super().get())?;
        Err(wait::thrown(class_, value, traceback)?)
    }

    /// Leave the line, as a coroutine does; a permit that it is already stays held.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().end(slf.py(), slf.as_super().get())
    }

    fn __aenter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().stage.enter(&WORDS)?;
        Ok(slf)
    }

    fn __aexit__(
        slf: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<&'static Py<Done>> {
        slf.as_super().get().exit(slf.py(), exception)?;
        Done::shared(slf.py())
    }

    /// Waits in this thread; as the permit that it is already, it does nothing.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (py, this, permit) = (slf.py(), slf.get(), slf.as_super().get());
        if permit.is_held() {
            return Ok(slf);
        }
        permit.refuse_if_released(py)?;
        if let Err(error) = refuse_on_event_loop(py, "with acquire()", "async with acquire()") {
            this.stage.turn(NEW, REFUSED);
            return Err(error);
        }
        this.stage.finish(&WORDS)?;
        permit.block(py, &this.asked)?;
        Ok(slf)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let permit = slf.as_super().get();
        let state = match slf.get().stage.get() {
            NEW | REFUSED => "not used yet",
            OVER => return permit.__repr__(slf.py()),
            _ => "waiting",
        };
        Ok(format!("<Acquire of {} ({state})>", permit.limiter().name().bind(slf.py()).repr()?))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if self.stage.is_unused() {
            permit::in_destructor(|py| {
                let class = py.get_type::<PyRuntimeWarning>();
                PyErr::warn(py, &class, c"acquire() was never used: nothing was acquired", 1)
            });
        }
    }
}
