use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyResourceWarning, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::acquire::{Asked, Inner, Limiter, Wish};
use super::given::Given;
use super::operation::Operation;
use super::slot::Slot;
use super::wait::{self, Place};
use super::{config, exit, imports, scope};
use crate::primitives::{Outcome, Permit as Right, Time};

/// The right to be in flight, given back exactly once.
#[pyclass(frozen, subclass, module = "sluicegate")]
pub(crate) struct Permit {
    limiter: Limiter,
    right: Slot<Right>,
    /// In line, for one that is still to be filled.
    place: Place,
    /// How long it waited, in nanoseconds.
    waited: AtomicU64,
    /// The index of an outcome that was set to overrule the classification;
    /// [`NOT_SET`] otherwise.
    outcome: AtomicU8,
    operation: Operation,
    /// What of the rate is charged for it, as the bits of a number.
    tokens: AtomicU64,
    /// When the work was done that it is timed for, in nanoseconds, if it is held for longer.
    answered: AtomicU64,
    /// When the work began that it is timed for, if it was held before.
    begun: AtomicU64,
    holds: Holds,
    /// What an inner gate gave for the same work.
    inner: Option<Box<Inner>>,
}

const NOT_SET: u8 = u8::MAX;
const NOT_YET: u64 = u64::MAX;

impl Permit {
    pub(crate) fn new(
        limiter: Limiter,
        right: Right,
        tokens: f64,
        operation: Option<Py<PyString>>,
        inner: Option<Box<Inner>>,
    ) -> Self {
        let tokens = if right.is_unasked() { f64::NAN } else { tokens };
        let waited = nanos(right.waited());
        Self::with(limiter, Slot::full(right), waited, tokens, operation, inner)
    }

    /// A permit that is still to be filled: an [`Acquire`](super::acquire::Acquire).
    pub(crate) fn vacant(
        limiter: Limiter,
        tokens: f64,
        operation: Option<Py<PyString>>,
        inner: Option<Box<Inner>>,
    ) -> Self {
        Self::with(limiter, Slot::vacant(), 0, tokens, operation, inner)
    }

    fn with(
        limiter: Limiter,
        right: Slot<Right>,
        waited: u64,
        tokens: f64,
        operation: Option<Py<PyString>>,
        inner: Option<Box<Inner>>,
    ) -> Self {
        Self {
            limiter,
            right,
            place: Place::default(),
            waited: AtomicU64::new(waited),
            outcome: AtomicU8::new(NOT_SET),
            operation: Operation::new(operation),
            tokens: AtomicU64::new(tokens.to_bits()),
            answered: AtomicU64::new(NOT_YET),
            begun: AtomicU64::new(NOT_YET),
            holds: Holds::default(),
            inner,
        }
    }

    /// A second one, of somebody who asked twice at once, goes back.
    pub(crate) fn fill(&self, py: Python<'_>, right: Right) -> PyResult<()> {
        if right.is_unasked() {
            // Nothing was taken for it, or it was given back: there is nothing to settle.
            self.tokens.store(f64::NAN.to_bits(), Ordering::Relaxed);
        }
        let waited = nanos(right.waited()).saturating_add(self.waited_inside());
        self.waited.store(waited, Ordering::Relaxed);
        match self.right.fill(right) {
            None => Ok(()),
            Some(second) => {
                let tokens = f64::from_bits(self.tokens.load(Ordering::Relaxed));
                let tokens = if tokens.is_nan() { 0.0 } else { tokens };
                self.limiter.annul(py, second, tokens)
            }
        }
    }

    /// How long it waited at the inner gate, in nanoseconds.
    fn waited_inside(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.waited.load(Ordering::Relaxed))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.right.is_there()
    }

    /// Work under a permit that was given back would be in flight uncounted.
    pub(crate) fn refuse_if_released(&self, py: Python<'_>) -> PyResult<()> {
        if self.right.is_taken() {
            Err(released(py, "permit", self.limiter.name()))
        } else {
            Ok(())
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(crate) fn wish<'a>(&'a self, asked: &'a Asked) -> Wish<'a> {
        let inner = self.inner.as_deref();
        Wish { limiter: &self.limiter, asked, operation: &self.operation, inner }
    }

    /// Waits in this thread until it is filled.
    pub(crate) fn block(&self, py: Python<'_>, asked: &Asked) -> PyResult<()> {
        match wait::block(py, &self.wish(asked)) {
            Ok(right) => self.fill(py, right),
            Err(error) => self.annul_inner(py).and(Err(error)),
        }
    }

    pub(crate) fn is_vacant(&self) -> bool {
        self.right.is_vacant()
    }

    /// The outer gate did not admit: what the inner one gave goes back unused.
    pub(crate) fn annul_inner(&self, py: Python<'_>) -> PyResult<()> {
        let Some(inner) = &self.inner else { return Ok(()) };
        match inner.right.take() {
            Some(right) => inner.limiter.annul(py, right, inner.asked.tokens),
            None => Ok(()),
        }
    }

    /// Gives back with an outcome, unless one was set; or notes it, if the work goes on
    /// elsewhere.
    fn give_back(&self, py: Python<'_>, classify: impl FnOnce() -> Outcome) -> PyResult<()> {
        if self.holds.is_extended() && self.right.is_there() {
            if self.chosen_outcome().is_none() {
                self.choose_outcome(Some(classify()));
            }
            return if self.holds.end_block() { self.end(py, Outcome::default) } else { Ok(()) };
        }
        self.end(py, classify)
    }

    fn end(&self, py: Python<'_>, classify: impl FnOnce() -> Outcome) -> PyResult<()> {
        let Some(mut right) = self.right.take() else {
            if self.right.is_vacant() {
                return Err(PyRuntimeError::new_err("nothing to release: it was not acquired yet"));
            }
            self.limiter.count_stray_release();
            return Ok(());
        };
        let outcome = self.chosen_outcome().unwrap_or_else(classify);
        let (idle, timed) = self.idle(py);
        right.begin_later(self.unbegun(&right) + idle);
        let released = self.limiter.release(py, right, Some(&self.operation), outcome).and(timed);
        if self.inner.is_none() {
            return released;
        }
        released.and(self.release_inner(py, outcome, idle))
    }

    #[cold]
    fn release_inner(&self, py: Python<'_>, outcome: Outcome, idle: Duration) -> PyResult<()> {
        let Some(inner) = &self.inner else { return Ok(()) };
        match inner.right.take() {
            Some(mut right) => {
                // To wait for the outer gate was no work.
                let waited = self.waited.load(Ordering::Relaxed);
                let outside = Duration::from_nanos(waited - self.waited_inside());
                right.begin_later(outside.max(self.unbegun(&right)) + idle);
                inner.limiter.release(py, right, Some(&self.operation), outcome)
            }
            None => Ok(()),
        }
    }

    /// For how long it was held before the work began.
    fn unbegun(&self, right: &Right) -> Duration {
        match self.begun.load(Ordering::Relaxed) {
            NOT_YET => Duration::ZERO,
            begun => Time::from_nanos(begun).since(right.started()),
        }
    }

    /// For how long it was held after the answer; what is no `Exception` is returned beside it.
    fn idle(&self, py: Python<'_>) -> (Duration, PyResult<()>) {
        match self.answered.load(Ordering::Relaxed) {
            NOT_YET => (Duration::ZERO, Ok(())),
            answered => {
                let (now, error) = self.limiter.clock().now_or_stand_still(py);
                (now.since(Time::from_nanos(answered)), error)
            }
        }
    }

    fn chosen_outcome(&self) -> Option<Outcome> {
        // Relaxed: nothing else is published with it.
        Outcome::ALL.get(usize::from(self.outcome.load(Ordering::Relaxed))).copied()
    }

    fn choose_outcome(&self, outcome: Option<Outcome>) {
        let index = outcome.map_or(NOT_SET, |outcome| outcome as u8);
        self.outcome.store(index, Ordering::Relaxed);
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.limiter.traverse(visit)?;
        self.inner.as_ref().map_or(Ok(()), |inner| inner.limiter.traverse(visit))
    }

    /// The end of what a server has answered.
    pub(crate) fn end_with(&self, py: Python<'_>, outcome: Outcome) -> PyResult<()> {
        let mut told = Ok(());
        let given_back = self.give_back(py, || {
            let (outcome, error) = scope::outcome_here(py, outcome);
            told = error;
            outcome
        });
        told.and(given_back)
    }

    pub(crate) fn name(&self, operation: Py<PyString>) {
        self.operation.set(Some(operation));
    }

    /// The end of a `with` block.
    pub(crate) fn exit(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut raised = Ok(());
        let given_back = self.give_back(py, || {
            let (outcome, error) = self.limiter.classify(exception);
            let (outcome, told) = scope::outcome_here(py, outcome);
            raised = error.and(told);
            outcome
        });
        raised.and(given_back)
    }
}

/// The futures that a permit is held for, besides its block.
#[derive(Default)]
struct Holds(AtomicU32);

/// The block is over.
const BLOCK_OVER: u32 = 1 << 31;

impl Holds {
    /// Relaxed throughout: the right itself is taken by an exchange.
    fn is_extended(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nothing holds it any more.
    fn remove(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) == BLOCK_OVER + 1
    }

    fn end_block(&self) -> bool {
        matches!(self.0.fetch_or(BLOCK_OVER, Ordering::Relaxed), 0 | BLOCK_OVER)
    }
}

/// What a future calls that a permit is held for.
#[pyclass(frozen, module = "sluicegate._core")]
struct Extension {
    permit: Py<Permit>,
    is_over: AtomicBool,
}

#[pymethods]
impl Extension {
    fn __call__(&self, py: Python<'_>, _future: &Bound<'_, PyAny>) -> PyResult<()> {
        let permit = self.permit.get();
        if !self.is_over.swap(true, Ordering::Relaxed) && permit.holds.remove() {
            return permit.end(py, Outcome::default);
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.permit)
    }
}

#[pymethods]
impl Permit {
    /// Set it inside the block to overrule how its end is classified.
    #[getter]
    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.chosen_outcome().map(|outcome| imports::outcome(py, outcome)).transpose()
    }

    #[setter]
    fn set_outcome(&self, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let outcome = value.map(outcome_from).transpose()?;
        self.choose_outcome(outcome);
        Ok(())
    }

    /// What kind of work it is for; may be set until the release.
    #[getter]
    fn operation(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.operation.get(py)
    }

    #[setter]
    fn set_operation(&self, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.operation.set(config::text("operation", value)?);
        Ok(())
    }

    /// How long it waited in line, in seconds.
    #[getter]
    fn waited(&self) -> f64 {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed)).as_secs_f64()
    }

    /// Give it back; a second call does nothing and is counted.
    #[pyo3(signature = (outcome = Given::NOTHING, /), text_signature = "($self, outcome=..., /)")]
    fn release(&self, py: Python<'_>, outcome: Given<'_, '_>) -> PyResult<()> {
        if let Some(outcome) = outcome.get() {
            self.choose_outcome(Some(outcome_from(outcome)?));
        }
        self.give_back(py, Outcome::default)
    }

    /// Say what it cost of the rate: the difference is charged or given back.
    #[pyo3(signature = (*, tokens))]
    fn settle(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<()> {
        const RANGE: &str = "a number of tokens from 0 to 1e9";
        let tokens = config::number("tokens", RANGE, tokens)?;
        if !(0.0..=1e9).contains(&tokens) {
            return Err(PyValueError::new_err(format!("tokens must be {RANGE}, got {tokens}")));
        }
        if self.right.is_vacant() {
            return Err(PyRuntimeError::new_err("nothing to settle: it was not acquired yet"));
        }
        let charged = f64::from_bits(self.tokens.load(Ordering::Relaxed));
        if charged.is_nan() {
            return Ok(());
        }
        let charged = f64::from_bits(self.tokens.swap(tokens.to_bits(), Ordering::Relaxed));
        let more = tokens - charged;
        self.limiter.charge(py, more)?;
        self.inner.as_ref().map_or(Ok(()), |inner| inner.limiter.charge(py, more))
    }

    /// Say that the work begins: what it was held for until now is not timed.
    fn begun(&self, py: Python<'_>) -> PyResult<()> {
        if self.right.is_there() {
            // Relaxed: of two that are told at once either will do.
            let now = self.limiter.clock().now(py)?;
            self.begun.store(now.as_nanos(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Say that the answer is given: what it is held for from now on is not timed.
    pub(crate) fn answered(&self, py: Python<'_>) -> PyResult<()> {
        if self.right.is_there() && self.answered.load(Ordering::Relaxed) == NOT_YET {
            // Relaxed: of two that are told at once either will do.
            let now = self.limiter.clock().now(py)?;
            self.answered.store(now.as_nanos(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Hold it until a future is done, too.
    #[pyo3(signature = (future, /))]
    fn extend_to(slf: &Bound<'_, Self>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let permit = slf.get();
        if !permit.is_held() {
            return Err(PyRuntimeError::new_err("a permit that is not held cannot be extended"));
        }
        let over = Extension { permit: slf.clone().unbind(), is_over: AtomicBool::new(false) };
        let over = Bound::new(slf.py(), over)?;
        permit.holds.add();
        let added = future.call_method1(intern!(slf.py(), "add_done_callback"), (&over,));
        if added.is_err() && !over.get().is_over.swap(true, Ordering::Relaxed) {
            permit.holds.remove();
        }
        added.map(drop)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().refuse_if_released(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.exit(py, exception)
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.is_held() { "held" } else { "released" };
        Ok(format!("<Permit of {} ({state})>", self.limiter.name().bind(py).repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Collected while it waits: by a loop that was closed under it.
        if let Some(ticket) = self.place.take_mut() {
            let inner = self.inner.as_ref().filter(|inner| !inner.right.is_there());
            let limiter = inner.map_or(&self.limiter, |inner| &inner.limiter);
            in_destructor(|py| limiter.cancel(py, ticket));
        }
        if self.inner.is_some() && self.right.is_vacant() {
            in_destructor(|py| self.annul_inner(py));
        }
        // Collected unreleased.
        if let Some(right) = self.right.take_mut() {
            in_destructor(|py| {
                let name = self.limiter.name().bind(py).to_string();
                self.limiter.release(py, right, Some(&self.operation), Outcome::Ignored)?;
                self.release_inner(py, Outcome::Ignored, Duration::ZERO)?;
                let text = format!("a permit of {name:?} was never released; it is given back now");
                let text = CString::new(text).unwrap_or_default();
                PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1)
            });
        }
    }
}

/// What entering a permit raises that was given back.
#[cold]
pub(crate) fn released(py: Python<'_>, what: &str, name: &Py<PyString>) -> PyErr {
    let name = name.bind(py).to_string();
    PyRuntimeError::new_err(format!(
        "this {what} of {name:?} was released already and cannot be entered; take another one"
    ))
}

/// Runs Python from a destructor, which must not raise and must leave the
/// current exception as it was. At the exit of the interpreter nobody is left to
/// be told.
pub(crate) fn in_destructor(action: impl FnOnce(Python<'_>) -> PyResult<()>) {
    Python::try_attach(|py| {
        let _calling = exit::Calling::new(py);
        let pending = PyErr::take(py);
        if let Err(error) = action(py) {
            error.write_unraisable(py, None);
        }
        if let Some(pending) = pending {
            pending.restore(py);
        }
    });
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Only a member is an outcome, and not the text that it equals.
pub(crate) fn outcome_from(value: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let py = value.py();
    for outcome in Outcome::ALL {
        if imports::outcome(py, outcome)?.is(value) {
            return Ok(outcome);
        }
    }
    let range = "Outcome.SUCCESS, Outcome.IGNORED or Outcome.OVERLOAD";
    Err(config::wrong_type("outcome", range, value))
}

/// What an exception (or `None`) that ends a block says about load.
pub(crate) fn classify(exception: &Bound<'_, PyAny>) -> Outcome {
    if exception.is_none() {
        return Outcome::Success;
    }
    let py = exception.py();
    // Our own come first: some of them are also a TimeoutError.
    let is_ours = imports::our_error(py).and_then(|ours| exception.is_instance(ours));
    if !is_ours.unwrap_or(true) && exception.is_instance_of::<PyTimeoutError>() {
        Outcome::Overload
    } else {
        Outcome::Ignored
    }
}
