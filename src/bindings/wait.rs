//! One wait, from the first try to the claim, for whatever is waited for: by a
//! task, step by step, or by a thread that is parked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use super::imports;
use super::waiter::{self, Parker, Station, Waiter};
use crate::primitives::{Home, Ticket};

/// What somebody wants and may have to wait for.
pub(crate) trait Quest {
    type Gain;

    fn words(&self) -> &'static Words;
    fn station(&self) -> &dyn Station;
    /// Gains at once if nobody waits, or says nothing: then [`join`](Self::join)
    /// decides.
    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Self::Gain>>;
    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Self::Gain>>;
    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Self::Gain>>;
    /// Whether the ticket goes on waiting, with this to wake it; else it is to be claimed.
    fn renew(&self, ticket: Ticket, waiter: Waiter) -> bool {
        self.station().renew(ticket, waiter)
    }
}

pub(crate) enum Joined<G> {
    Gained(G),
    Waiting(Ticket),
    /// It got the first of two things, and is to join again for the second.
    Again,
}

/// What came of a wait.
pub(crate) enum Claimed<G> {
    Gained(G),
    /// It waits on.
    Waiting,
    /// As of [`Joined::Again`]; the ticket is used up.
    Again,
}

impl<G> From<Option<G>> for Claimed<G> {
    fn from(gained: Option<G>) -> Self {
        gained.map_or(Self::Waiting, Self::Gained)
    }
}

impl<G> Joined<G> {
    pub(crate) fn gained(self) -> Option<G> {
        match self {
            Self::Gained(gained) => Some(gained),
            Self::Waiting(_) | Self::Again => None,
        }
    }
}

/// How errors speak of a wait.
pub(crate) struct Words {
    /// "an `acquire()`"
    pub(crate) call: &'static str,
    /// "`acquire()`"
    pub(crate) again: &'static str,
    /// "waiting for a permit"
    pub(crate) waiting: &'static str,
    /// "`try_acquire()`, or `acquire_sync()` in a thread"
    pub(crate) elsewhere: &'static str,
}

pub(crate) const NEW: u8 = 0;
/// `async with` has begun, and is going to await.
pub(crate) const ENTERED: u8 = 1;
const STARTED: u8 = 2;
const WAITING: u8 = 3;
pub(crate) const OVER: u8 = 4;
/// As new, but whoever made it has heard of a mistake already.
pub(crate) const REFUSED: u8 = 5;

/// How far a wait has come. Relaxed throughout: the stage guards against misuse.
/// What it says about the gain and the ticket is elsewhere and under a lock.
pub(crate) struct Stage(AtomicU8);

impl Stage {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(NEW))
    }

    pub(crate) fn turn(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unused(&mut self) -> bool {
        *self.0.get_mut() == NEW
    }

    pub(crate) fn enter(&self, words: &Words) -> PyResult<()> {
        self.start(NEW, ENTERED, words)
    }

    pub(crate) fn finish(&self, words: &Words) -> PyResult<()> {
        self.start(NEW, OVER, words)
    }

    pub(crate) fn begin(&self, words: &Words) -> PyResult<()> {
        if self.turn(ENTERED, STARTED) { Ok(()) } else { self.start(NEW, STARTED, words) }
    }

    fn start(&self, from: u8, to: u8, words: &Words) -> PyResult<()> {
        if self.turn(from, to) || (from == NEW && self.turn(REFUSED, to)) {
            return Ok(());
        }
        let Words { call, again, .. } = words;
        Err(PyRuntimeError::new_err(format!("{call} can be used once; call {again} again")))
    }
}

/// The place in line of one that waits.
#[derive(Default)]
pub(crate) struct Place(Mutex<Option<Ticket>>);

impl Place {
    fn put(&self, ticket: Ticket) {
        *self.0.lock() = Some(ticket);
    }

    fn take(&self) -> Option<Ticket> {
        self.0.lock().take()
    }

    /// For the last owner.
    pub(crate) fn take_mut(&mut self) -> Option<Ticket> {
        self.0.get_mut().take()
    }
}

enum Step<'py, G> {
    Gained(G),
    Yield(Bound<'py, PyAny>),
}

/// One step of an await: the future to yield, unless `gain` got what it is for.
#[inline]
pub(crate) fn step<'py, Q: Quest + ?Sized>(
    py: Python<'py>,
    quest: &Q,
    stage: &Stage,
    place: &Place,
    gain: impl FnOnce(Q::Gain) -> PyResult<()>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // A task drives it as the coroutine that it looks like, without __await__.
    let mut at = stage.get();
    if matches!(at, NEW | REFUSED) && stage.turn(at, STARTED) {
        at = STARTED;
    }
    let step = match at {
        STARTED => begin(py, quest, stage, place),
        WAITING => claim(py, quest, stage, place),
        _ => {
            let text = format!("{} is awaited, not stepped", quest.words().call);
            return Err(PyRuntimeError::new_err(text));
        }
    };
    match step {
        Ok(Step::Gained(gained)) => {
            stage.0.store(OVER, Ordering::Relaxed);
            gain(gained).map(|()| None)
        }
        Ok(Step::Yield(future)) => Ok(Some(future)),
        Err(error) => {
            end(py, quest.station(), stage, place)?;
            Err(error)
        }
    }
}

#[inline]
fn begin<'py, Q: Quest + ?Sized>(
    py: Python<'py>,
    quest: &Q,
    stage: &Stage,
    place: &Place,
) -> PyResult<Step<'py, Q::Gain>> {
    if let Some(gained) = quest.attempt(py)? {
        return Ok(Step::Gained(gained));
    }
    join(py, quest, stage, place)
}

#[cold]
fn join<'py, Q: Quest + ?Sized>(
    py: Python<'py>,
    quest: &Q,
    stage: &Stage,
    place: &Place,
) -> PyResult<Step<'py, Q::Gain>> {
    let event_loop = imports::running_loop(py)?.ok_or_else(|| {
        let Words { waiting, elsewhere, .. } = quest.words();
        let text =
            format!("{waiting} needs a running asyncio event loop; elsewhere use {elsewhere}");
        PyRuntimeError::new_err(text)
    })?;
    let home = waiter::home_of(event_loop.as_unbound());
    loop {
        let (waiter, future) = waiter::task_waiter(&event_loop)?;
        match quest.join(py, home, waiter)? {
            Joined::Gained(gained) => return Ok(Step::Gained(gained)),
            Joined::Again => {}
            Joined::Waiting(ticket) => {
                place.put(ticket);
                stage.0.store(WAITING, Ordering::Relaxed);
                quest.station().watch(py, &event_loop)?;
                return match suspend(&future)? {
                    Some(yielded) => Ok(Step::Yield(yielded)),
                    None => claim(py, quest, stage, place),
                };
            }
        }
    }
}

fn claim<'py, Q: Quest + ?Sized>(
    py: Python<'py>,
    quest: &Q,
    stage: &Stage,
    place: &Place,
) -> PyResult<Step<'py, Q::Gain>> {
    loop {
        // Taken out, so that nobody else can claim it meanwhile, and put back unless it
        // is used up, so that an error on the way cancels it.
        let Some(ticket) = place.take() else {
            return Err(awaited_twice(quest.words()));
        };
        match quest.claim(py, ticket) {
            Ok(Claimed::Gained(gained)) => return Ok(Step::Gained(gained)),
            Ok(Claimed::Again) => return join(py, quest, stage, place),
            Ok(Claimed::Waiting) => place.put(ticket),
            Err(error) => {
                place.put(ticket);
                return Err(error);
            }
        }
        let event_loop = imports::running_loop(py)?
            .ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))?;
        let (waiter, future) = waiter::task_waiter(&event_loop)?;
        if quest.renew(ticket, waiter)
            && let Some(yielded) = suspend(&future)?
        {
            return Ok(Step::Yield(yielded));
        }
    }
}

fn awaited_twice(words: &Words) -> PyErr {
    PyRuntimeError::new_err(format!("{} is awaited by one task", words.call))
}

/// Gives up, whatever was reached.
pub(crate) fn end(
    py: Python<'_>,
    station: &dyn Station,
    stage: &Stage,
    place: &Place,
) -> PyResult<()> {
    stage.0.store(OVER, Ordering::Relaxed);
    place.take().map_or(Ok(()), |ticket| station.cancel(py, ticket))
}

/// What awaiting a future yields to the loop; `None` if it is done already, woken by
/// what happened since it was made. A future is its own awaitable, and `iter` saves
/// the look-up of a method.
fn suspend<'py>(future: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    future.try_iter()?.next().transpose()
}

/// Waits in this thread, detached.
pub(crate) fn block<Q: Quest + ?Sized>(py: Python<'_>, quest: &Q) -> PyResult<Q::Gain> {
    if let Some(gained) = quest.attempt(py)? {
        return Ok(gained);
    }
    let parker = Arc::new(Parker::default());
    loop {
        let waiter = Waiter::Thread(parker.clone());
        let ticket = match quest.join(py, waiter::home_of_thread(), waiter)? {
            Joined::Gained(gained) => return Ok(gained),
            Joined::Again => continue,
            Joined::Waiting(ticket) => ticket,
        };
        if let Some(gained) = block_for(py, quest, ticket, &parker)? {
            return Ok(gained);
        }
    }
}

/// The same from the line on; `None` if it is to join again.
fn block_for<Q: Quest + ?Sized>(
    py: Python<'_>,
    quest: &Q,
    ticket: Ticket,
    parker: &Arc<Parker>,
) -> PyResult<Option<Q::Gain>> {
    let station = quest.station();
    let end = loop {
        if let Err(error) = waiter::park(py, station, parker) {
            break Err(error);
        }
        match quest.claim(py, ticket) {
            Ok(Claimed::Gained(gained)) => return Ok(Some(gained)),
            Ok(Claimed::Again) => return Ok(None),
            Ok(Claimed::Waiting) => {
                if !quest.renew(ticket, Waiter::Thread(parker.clone())) {
                    parker.unpark();
                }
            }
            Err(error) => break Err(error),
        }
    };
    station.cancel(py, ticket)?;
    end
}

/// A blocked event loop answers nobody, so that this is refused always and not
/// only when it would block.
pub(crate) fn refuse_on_event_loop(py: Python<'_>, what: &str, instead: &str) -> PyResult<()> {
    if imports::running_loop(py)?.is_some() {
        return Err(PyRuntimeError::new_err(format!(
            "{what} would block the event loop that runs in this thread; use {instead}"
        )));
    }
    match imports::other_loop(py)? {
        None => Ok(()),
        Some(library) => Err(PyRuntimeError::new_err(format!(
            "{what} would block {library}, which runs in this thread; use what does not wait, such \
             as try_acquire()"
        ))),
    }
}

/// Ends a step of an iterator with a value.
///
/// The end of an iterator is no value and, if it has one to return, a
/// `StopIteration`. Set directly it costs 100 ns less than by a `PyErr`, which
/// makes an instance of it.
pub(crate) fn stop_with(value: &Bound<'_, PyAny>) {
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>() {
        // The interpreter would take it apart.
        stop_iteration(value).restore(value.py());
        return;
    }
    // SAFETY: attached, and both objects are alive.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.as_ptr()) };
}

/// The same as an error.
pub(crate) fn stop_iteration(value: &Bound<'_, PyAny>) -> PyErr {
    PyStopIteration::new_err((value.clone().unbind(),))
}

/// What a ticket is told that the child of a fork knows nothing of.
pub(crate) fn from_before_a_fork() -> PyErr {
    PyRuntimeError::new_err("this wait began before a fork, in the parent process")
}

/// What `throw()` of a coroutine raises.
pub(crate) fn thrown(
    class: &Bound<'_, PyAny>,
    value: Option<Bound<'_, PyAny>>,
    traceback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let py = class.py();
    let value = match value {
        Some(value) if value.is_instance_of::<PyBaseException>() => value,
        _ if class.is_instance_of::<PyBaseException>() => class.clone(),
        Some(value) => class.call1((value,))?,
        None => class.call0()?,
    };
    if let Some(traceback) = traceback {
        value.setattr(intern!(py, "__traceback__"), traceback)?;
    }
    Ok(PyErr::from_value(value))
}

/// An await that is over before it begins.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Done;

impl Done {
    pub(crate) fn shared(py: Python<'_>) -> PyResult<&'static Py<Self>> {
        static DONE: PyOnceLock<Py<Done>> = PyOnceLock::new();
        DONE.get_or_try_init(py, || Py::new(py, Self))
    }
}

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
