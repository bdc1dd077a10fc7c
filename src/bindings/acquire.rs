use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::{
    PyBaseException, PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTimeoutError,
};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use super::imports;
use super::permit::{self, Permit};
use super::semaphore::SemaphoreLimiter;
use super::waiter::{self, Parker, Station, Waiter};
use crate::primitives::{Admission, Ask, Claim, Outcome, Permit as Right, Reason, Ticket};

/// What a permit and a wait need of the limiter that they belong to.
pub(crate) trait Admits: Station {
    /// Admits at once if nobody waits, or says nothing: then [`join`](Self::join)
    /// decides.
    fn admit(&self, py: Python<'_>, ask: &Ask) -> PyResult<Option<Right>>;
    fn join(&self, py: Python<'_>, ask: &Ask, waiter: Waiter) -> PyResult<Admission>;
    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claim>;
    fn release(&self, py: Python<'_>, right: Right, outcome: Outcome) -> PyResult<()>;
    fn count_stray_release(&self);
    fn name(&self) -> &Py<PyString>;
}

/// The Python object of a limiter.
///
/// It is kept alive and shown to the collector, since it alone shows the
/// waiters: a permit out there keeps the tasks alive that wait for it.
pub(crate) enum Limiter {
    Semaphore(Py<SemaphoreLimiter>),
}

impl Limiter {
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Semaphore(limiter) => visit.call(limiter),
        }
    }
}

impl std::ops::Deref for Limiter {
    type Target = dyn Admits;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Semaphore(limiter) => limiter.get().core(),
        }
    }
}

/// A wish for a permit, for `with`, `async with` and `await`, once; when it comes
/// true it is the permit itself, which saves an object.
#[pyclass(frozen, extends = Permit, module = "sluicegate")]
pub(crate) struct Acquire {
    ask: Ask,
    stage: AtomicU8,
}

const NEW: u8 = 0;
/// `async with` has begun, and is going to await.
const ENTERED: u8 = 1;
const STARTED: u8 = 2;
const WAITING: u8 = 3;
const OVER: u8 = 4;
/// As new, but whoever made it has heard of a mistake already.
const REFUSED: u8 = 5;

impl Acquire {
    pub(crate) fn new(
        limiter: Limiter,
        ask: Ask,
        operation: Option<Py<PyString>>,
    ) -> PyClassInitializer<Self> {
        let wish = Self { ask, stage: AtomicU8::new(NEW) };
        PyClassInitializer::from(Permit::vacant(limiter, operation)).add_subclass(wish)
    }

    // Relaxed throughout: the stage guards against misuse. What it says about the
    // permit and the ticket is in the slot and under the lock.
    fn turn(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn start(&self, from: u8, to: u8) -> PyResult<()> {
        if self.turn(from, to) || (from == NEW && self.turn(REFUSED, to)) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("an acquire() can be used once; call acquire() again"))
    }

    /// One step of an await: the future to yield, or `None` when it holds the
    /// permit.
    fn step<'py>(&self, py: Python<'py>, permit: &Permit) -> PyResult<Option<Bound<'py, PyAny>>> {
        // A task drives it as the coroutine that it looks like, without __await__.
        let mut stage = self.stage.load(Ordering::Relaxed);
        if matches!(stage, NEW | REFUSED) && self.turn(stage, STARTED) {
            stage = STARTED;
        }
        let step = match stage {
            STARTED => self.begin(py, permit),
            WAITING => self.claim(py, permit),
            _ => {
                return Err(PyRuntimeError::new_err("an acquire() is awaited, not stepped"));
            }
        };
        match step {
            Ok(Step::Done(right)) => {
                self.stage.store(OVER, Ordering::Relaxed);
                permit.fill(right);
                Ok(None)
            }
            Ok(Step::Yield(future)) => Ok(Some(future)),
            Err(error) => {
                self.end(py, permit)?;
                Err(error)
            }
        }
    }

    fn begin<'py>(&self, py: Python<'py>, permit: &Permit) -> PyResult<Step<'py>> {
        let limiter = permit.limiter();
        if let Some(right) = limiter.admit(py, &self.ask)? {
            return Ok(Step::Done(right));
        }
        let event_loop = imports::running_loop(py)?.ok_or_else(|| {
            let text = "waiting for a permit needs a running asyncio event loop; \
                elsewhere use try_acquire(), or acquire_sync() in a thread";
            PyRuntimeError::new_err(text)
        })?;
        let (waiter, future) = waiter::task_waiter(&event_loop)?;
        let mut ask = self.ask;
        ask.home = Some(waiter::home_of(event_loop.as_unbound()));
        match limiter.join(py, &ask, waiter)? {
            Admission::Admitted(right) => Ok(Step::Done(right)),
            Admission::Rejected(_) => Err(timed_out(py, limiter, &self.ask)),
            Admission::Waiting(ticket) => {
                permit.set_ticket(ticket);
                self.stage.store(WAITING, Ordering::Relaxed);
                limiter.watch(py, &event_loop)?;
                Ok(Step::Yield(suspend(&future)?))
            }
        }
    }

    fn claim<'py>(&self, py: Python<'py>, permit: &Permit) -> PyResult<Step<'py>> {
        let limiter = permit.limiter();
        // Taken out, so that nobody else can claim it meanwhile, and put back
        // unless it is used up, so that an error on the way cancels it.
        let Some(ticket) = permit.take_ticket() else {
            return Err(PyRuntimeError::new_err("an acquire() is awaited by one task"));
        };
        loop {
            let claim = limiter.claim(py, ticket);
            if let Ok(Claim::Admitted(right)) = claim {
                return Ok(Step::Done(right));
            }
            permit.set_ticket(ticket);
            if let Claim::Rejected(refusal) = claim? {
                return Err(refused(py, limiter, &self.ask, refusal.reason));
            }
            let event_loop = imports::running_loop(py)?
                .ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))?;
            let (waiter, future) = waiter::task_waiter(&event_loop)?;
            if limiter.renew(ticket, waiter) {
                return Ok(Step::Yield(suspend(&future)?));
            }
        }
    }

    /// Gives up, whatever was reached.
    fn end(&self, py: Python<'_>, permit: &Permit) -> PyResult<()> {
        self.stage.store(OVER, Ordering::Relaxed);
        let ticket = permit.take_ticket();
        ticket.map_or(Ok(()), |ticket| permit.limiter().cancel(py, ticket))
    }
}

enum Step<'py> {
    Done(Right),
    Yield(Bound<'py, PyAny>),
}

/// What awaiting a future yields to the loop. A future is its own awaitable, and
/// `iter` saves the look-up of a method.
fn suspend<'py>(future: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match future.try_iter()?.next() {
        Some(yielded) => yielded,
        None => Err(PyRuntimeError::new_err("a new future is done already")),
    }
}

#[pymethods]
impl Acquire {
    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if !slf.get().turn(ENTERED, STARTED) {
            slf.get().start(NEW, STARTED)?;
        }
        Ok(slf)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let yielded = slf.get().step(slf.py(), slf.as_super().get())?;
        if yielded.is_none() {
            // The end of an iterator is no value and, if it has one to return, a
            // StopIteration. Set directly it costs 100 ns less than by a PyErr,
            // which makes an instance of it.
            // SAFETY: attached, and both objects are alive.
            unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, slf.as_ptr()) };
        }
        Ok(yielded)
    }

    #[pyo3(signature = (_value, /))]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        _value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let yielded = slf.get().step(slf.py(), slf.as_super().get())?;
        yielded.ok_or_else(|| PyStopIteration::new_err(slf.clone().unbind()))
    }

    #[pyo3(signature = (class, value = None, traceback = None, /))]
    fn throw(
        slf: &Bound<'_, Self>,
        class: &Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        slf.get().end(py, slf.as_super().get())?;
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

    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().end(slf.py(), slf.as_super().get())
    }

    fn __aenter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().start(NEW, ENTERED)?;
        Ok(slf)
    }

    fn __aexit__(
        slf: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<&'static Py<Done>> {
        static DONE: PyOnceLock<Py<Done>> = PyOnceLock::new();
        slf.as_super().get().exit(slf.py(), exception)?;
        DONE.get_or_try_init(slf.py(), || Py::new(slf.py(), Done))
    }

    /// Waits in this thread; as the permit that it is already, it does nothing.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (py, this, permit) = (slf.py(), slf.get(), slf.as_super().get());
        if permit.is_held() {
            return Ok(slf);
        }
        if let Err(error) = refuse_on_event_loop(py, "with acquire()", "async with acquire()") {
            this.turn(NEW, REFUSED);
            return Err(error);
        }
        this.start(NEW, OVER)?;
        permit.fill(acquire_blocking(py, permit.limiter(), &this.ask)?);
        Ok(slf)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let permit = slf.as_super().get();
        let state = match slf.get().stage.load(Ordering::Relaxed) {
            NEW | REFUSED => "not used yet",
            OVER => return permit.__repr__(slf.py()),
            _ => "waiting",
        };
        Ok(format!("<Acquire of {} ({state})>", permit.limiter().name().bind(slf.py()).repr()?))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if *self.stage.get_mut() == NEW {
            permit::in_destructor(|py| {
                let class = py.get_type::<PyRuntimeWarning>();
                PyErr::warn(py, &class, c"acquire() was never used: nothing was acquired", 1)
            });
        }
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
            Ok(Claim::Rejected(refusal)) => break Err(refused(py, limiter, &ask, refusal.reason)),
            Err(error) => break Err(error),
            Ok(Claim::Waiting) => {
                if !limiter.renew(ticket, Waiter::Thread(parker.clone())) {
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

fn refused(py: Python<'_>, limiter: &Limiter, ask: &Ask, reason: Reason) -> PyErr {
    match reason {
        Reason::Wait => timed_out(py, limiter, ask),
        _ => PyRuntimeError::new_err("this wait began before a fork, in the parent process"),
    }
}

fn timed_out(py: Python<'_>, limiter: &Limiter, ask: &Ask) -> PyErr {
    let name = limiter.name().bind(py).to_string();
    let span = ask.max_wait.unwrap_or_default().as_secs_f64();
    PyTimeoutError::new_err(format!("no permit of {name:?} within {span} s"))
}
