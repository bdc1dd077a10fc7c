use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{
    PyBaseException, PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTimeoutError,
};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use super::imports;
use super::permit::Permit;
use super::waiter::{self, Parker, Station, Waiter};
use crate::primitives::{Admission, Ask, Claim, Outcome, Permit as Right, Ticket};

/// What a permit and a wait need of the limiter that they belong to.
pub(crate) trait Admits: Station {
    /// Admits now, or says nothing.
    fn admit(&self, py: Python<'_>, ask: &Ask) -> PyResult<Option<Right>>;
    fn join(&self, py: Python<'_>, ask: &Ask, waiter: Waiter) -> PyResult<Admission>;
    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claim>;
    fn release(&self, py: Python<'_>, right: Right, outcome: Outcome) -> PyResult<()>;
    fn count_stray_release(&self);
    fn name(&self) -> &Py<PyString>;
}

/// A limiter, and the Python object that owns it.
///
/// The object is kept alive and shown to the collector, since it alone shows
/// the waiters: a permit out there keeps the tasks alive that wait for it.
pub(crate) struct Limiter {
    owner: Py<PyAny>,
    core: Arc<dyn Admits>,
}

impl Limiter {
    pub(crate) fn new(owner: Py<PyAny>, core: Arc<dyn Admits>) -> Self {
        Self { owner, core }
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            owner: self.owner.clone_ref(py),
            core: self.core.clone(),
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)
    }
}

impl std::ops::Deref for Limiter {
    type Target = dyn Admits;

    fn deref(&self) -> &Self::Target {
        &*self.core
    }
}

/// A wish for a permit: for `with`, `async with` and `await`, once.
#[pyclass(frozen, weakref, module = "sluicegate")]
pub(crate) struct Acquire {
    limiter: Limiter,
    ask: Ask,
    operation: Option<Py<PyString>>,
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Await,
    With,
}

enum Progress {
    New,
    /// Being awaited, not tried yet.
    Started(Form),
    Waiting(Form, Ticket),
    /// Inside a `with` block.
    Inside(Py<Permit>),
    Over,
}

impl Acquire {
    pub(crate) fn new(limiter: Limiter, ask: Ask, operation: Option<Py<PyString>>) -> Self {
        Self {
            limiter,
            ask,
            operation,
            progress: Mutex::new(Progress::New),
        }
    }

    fn start(&self, form: Form) -> PyResult<()> {
        let mut progress = self.progress.lock();
        if matches!(*progress, Progress::New) {
            *progress = Progress::Started(form);
            return Ok(());
        }
        drop(progress);
        Err(PyRuntimeError::new_err(
            "an acquire() can be used once; call acquire() again",
        ))
    }

    fn set(&self, next: Progress) {
        let old = std::mem::replace(&mut *self.progress.lock(), next);
        drop(old);
    }

    fn permit(&self, py: Python<'_>, right: Right) -> PyResult<Py<Permit>> {
        let operation = self
            .operation
            .as_ref()
            .map(|operation| operation.clone_ref(py));
        Py::new(
            py,
            Permit::new(self.limiter.clone_ref(py), right, operation),
        )
    }

    fn finish(&self, py: Python<'_>, form: Form, right: Right) -> PyResult<Py<Permit>> {
        self.set(Progress::Over);
        let permit = self.permit(py, right)?;
        if form == Form::With {
            self.set(Progress::Inside(permit.clone_ref(py)));
        }
        Ok(permit)
    }

    fn timed_out(&self, py: Python<'_>) -> PyErr {
        self.set(Progress::Over);
        timed_out(py, &self.limiter, &self.ask)
    }

    /// One step of an await: what to yield, or the permit as an error.
    fn step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (form, ticket) = match *self.progress.lock() {
            Progress::Started(form) => (form, None),
            Progress::Waiting(form, ticket) => (form, Some(ticket)),
            _ => {
                let text = "an acquire() is awaited, not stepped";
                return Err(PyRuntimeError::new_err(text));
            }
        };
        let claimed = match ticket {
            Some(ticket) => self.claim(py, ticket),
            None => self.begin(py, form),
        };
        match claimed {
            Ok(Step::Done(right)) => {
                let permit = self.finish(py, form, right)?;
                Err(PyStopIteration::new_err(permit))
            }
            Ok(Step::Yield(future)) => Ok(future),
            Err(error) => {
                self.end(py)?;
                Err(error)
            }
        }
    }

    fn begin<'py>(&self, py: Python<'py>, form: Form) -> PyResult<Step<'py>> {
        if let Some(right) = self.limiter.admit(py, &self.ask)? {
            return Ok(Step::Done(right));
        }
        if self.ask.max_wait == Some(std::time::Duration::ZERO) {
            return Err(self.timed_out(py));
        }
        let event_loop = imports::running_loop(py)?.ok_or_else(|| {
            let text = "waiting for a permit needs a running asyncio event loop; \
                elsewhere use try_acquire(), or acquire_sync() in a thread";
            PyRuntimeError::new_err(text)
        })?;
        let (waiter, future) = waiter::task_waiter(&event_loop)?;
        let mut ask = self.ask;
        ask.home = Some(waiter::home_of(event_loop.as_unbound()));
        match self.limiter.join(py, &ask, waiter)? {
            Admission::Admitted(right) => Ok(Step::Done(right)),
            Admission::Rejected(_) => Err(self.timed_out(py)),
            Admission::Waiting(ticket) => {
                self.set(Progress::Waiting(form, ticket));
                self.limiter.watch(py, &event_loop)?;
                Ok(Step::Yield(suspend(&future)?))
            }
        }
    }

    fn claim<'py>(&self, py: Python<'py>, ticket: Ticket) -> PyResult<Step<'py>> {
        loop {
            match self.limiter.claim(py, ticket)? {
                Claim::Admitted(right) => return Ok(Step::Done(right)),
                Claim::Rejected(_) => return Err(self.timed_out(py)),
                Claim::Waiting => {}
            }
            let event_loop = imports::running_loop(py)?
                .ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))?;
            let (waiter, future) = waiter::task_waiter(&event_loop)?;
            if self.limiter.renew(ticket, waiter).is_ok() {
                return Ok(Step::Yield(suspend(&future)?));
            }
        }
    }

    /// Gives up, whatever was reached.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let old = std::mem::replace(&mut *self.progress.lock(), Progress::Over);
        match old {
            Progress::Waiting(_, ticket) => self.limiter.cancel(py, ticket),
            _ => Ok(()),
        }
    }

    fn exit(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let old = std::mem::replace(&mut *self.progress.lock(), Progress::Over);
        match old {
            Progress::Inside(permit) => permit.get().exit(py, exception),
            _ => Ok(()),
        }
    }
}

enum Step<'py> {
    Done(Right),
    Yield(Bound<'py, PyAny>),
}

/// What awaiting a future yields to the loop.
fn suspend<'py>(future: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let steps = future.call_method0(pyo3::intern!(future.py(), "__await__"))?;
    match steps.cast_into::<PyIterator>()?.next() {
        Some(yielded) => yielded,
        None => Err(PyRuntimeError::new_err("a new future is done already")),
    }
}

#[pymethods]
impl Acquire {
    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        // `async with` has started it already.
        if !matches!(*slf.get().progress.lock(), Progress::Started(Form::With)) {
            slf.get().start(Form::Await)?;
        }
        Ok(slf)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py)
    }

    #[pyo3(signature = (_value, /))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        _value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.step(py)
    }

    #[pyo3(signature = (class, value = None, traceback = None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.end(py)?;
        let value = match value {
            Some(value) if value.is_instance_of::<PyBaseException>() => value,
            _ if class.is_instance_of::<PyBaseException>() => class.clone(),
            Some(value) => class.call1((value,))?,
            None => class.call0()?,
        };
        if let Some(traceback) = traceback {
            value.setattr(pyo3::intern!(py, "__traceback__"), traceback)?;
        }
        Err(PyErr::from_value(value))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().start(Form::With)?;
        Ok(slf)
    }

    fn __aexit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Done> {
        self.exit(py, exception)?;
        Ok(Done)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Permit>> {
        refuse_on_event_loop(py, "with acquire()", "async with acquire()")?;
        self.start(Form::With)?;
        let right = acquire_blocking(py, &self.limiter, &self.ask);
        self.finish(
            py,
            Form::With,
            right.inspect_err(|_| self.set(Progress::Over))?,
        )
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = match *self.progress.lock() {
            Progress::New => "not used yet",
            Progress::Started(_) | Progress::Waiting(..) => "waiting",
            Progress::Inside(_) => "inside",
            Progress::Over => "over",
        };
        Ok(format!(
            "<Acquire of {} ({state})>",
            self.limiter.name().bind(py).repr()?
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(progress) = self.progress.try_lock()
            && let Progress::Inside(permit) = &*progress
        {
            visit.call(permit)?;
        }
        self.limiter.traverse(&visit)
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let is_unused = match self.progress.get_mut() {
            Progress::New => true,
            Progress::Waiting(..) => false,
            _ => return,
        };
        Python::try_attach(|py| {
            // A destructor must leave the current exception as it was.
            let pending = PyErr::take(py);
            let ended = if is_unused {
                let class = py.get_type::<PyRuntimeWarning>();
                PyErr::warn(
                    py,
                    &class,
                    c"acquire() was never used: nothing was acquired",
                    1,
                )
            } else {
                self.end(py)
            };
            if let Err(error) = ended {
                error.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

/// An await that is over before it begins.
#[pyclass(frozen, module = "sluicegate._core")]
struct Done;

#[pymethods]
impl Done {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }
}

/// Waits in this thread, detached.
pub(crate) fn acquire_blocking(py: Python<'_>, limiter: &Limiter, ask: &Ask) -> PyResult<Right> {
    if let Some(right) = limiter.admit(py, ask)? {
        return Ok(right);
    }
    let parker = Arc::new(Parker::default());
    let mut ask = *ask;
    ask.home = Some(waiter::home_of_thread());
    let ticket = match limiter.join(py, &ask, Waiter::Thread(parker.clone()))? {
        Admission::Admitted(right) => return Ok(right),
        Admission::Rejected(_) => return Err(timed_out(py, limiter, &ask)),
        Admission::Waiting(ticket) => ticket,
    };
    let end = loop {
        if let Err(error) = waiter::park(py, &**limiter, &parker) {
            break Err(error);
        }
        match limiter.claim(py, ticket) {
            Ok(Claim::Admitted(right)) => return Ok(right),
            Ok(Claim::Rejected(_)) => break Err(timed_out(py, limiter, &ask)),
            Err(error) => break Err(error),
            Ok(Claim::Waiting) => {
                if limiter
                    .renew(ticket, Waiter::Thread(parker.clone()))
                    .is_err()
                {
                    parker.unpark();
                }
            }
        }
    };
    limiter.cancel(py, ticket)?;
    end
}

/// A blocked event loop answers nobody, so that this is refused always and not
/// only when it would block.
pub(crate) fn refuse_on_event_loop(py: Python<'_>, what: &str, instead: &str) -> PyResult<()> {
    match imports::running_loop(py)? {
        None => Ok(()),
        Some(_) => Err(PyRuntimeError::new_err(format!(
            "{what} would block the event loop that runs in this thread; use {instead}"
        ))),
    }
}

fn timed_out(py: Python<'_>, limiter: &Limiter, ask: &Ask) -> PyErr {
    let name = limiter.name().bind(py).to_string();
    let span = ask.max_wait.unwrap_or_default().as_secs_f64();
    PyTimeoutError::new_err(format!("no permit of {name:?} within {span} s"))
}
