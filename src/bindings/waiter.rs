//! How somebody waits (a task on a future, a thread that is parked), is woken,
//! and hands on what it cannot take. All that waits waits through here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::clock::Clock;
use super::{exit, fork, imports};
use crate::primitives::{Home, Ticket, Time, Wakes};

/// How often a parked thread looks up: for signals on the main thread, and for
/// work that only a clock brings.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(50);

/// What the waiting layer needs of a primitive together with its lock, clock
/// and timers: each call locks, unlocks, and then delivers the wakes.
pub(crate) trait Station: Send + Sync {
    fn cancel(&self, py: Python<'_>, ticket: Ticket) -> PyResult<()>;
    /// Takes what the ticket was granted back without delivering the wakes.
    fn withdraw(&self, now: Time, ticket: Ticket) -> Wakes<Waiter>;
    /// The same for a wake that did not reach a waiter who is there.
    fn unreached(&self, now: Time, ticket: Ticket, waiter: Waiter) -> Wakes<Waiter>;
    fn sweep(&self, py: Python<'_>, home: Option<Home>) -> PyResult<()>;
    /// Whether the ticket goes on waiting, with this to wake it.
    fn renew(&self, ticket: Ticket, waiter: Waiter) -> bool;
    fn waits(&self, home: Home) -> bool;
    fn has_unclaimed(&self, home: Option<Home>) -> bool;
    fn next_expiry(&self) -> Option<Time>;
    /// [`next_expiry`](Self::next_expiry) as of the last call, without the lock:
    /// for threads that are not attached.
    fn due(&self) -> Time;
    fn clock(&self) -> &Clock;
    /// Lets the timers of all loops know that a new expiry may be the next.
    fn watch(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()>;
    /// What the timer of a loop does, on that loop.
    fn fire(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()>;
    /// Takes note that the clock behind the default one has changed.
    fn follow(&self, py: Python<'_>) -> PyResult<()>;
    fn begin_anew(&self);
}

/// What somebody who waits is woken with.
pub(crate) enum Waiter {
    Task { event_loop: Py<PyAny>, future: Py<PyAny> },
    Thread(Arc<Parker>),
}

impl Waiter {
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Task { event_loop, future } => {
                visit.call(event_loop)?;
                visit.call(future)
            }
            Self::Thread(_) => Ok(()),
        }
    }

    /// Wakes; `false` if nobody can be woken any more. To wake twice does no harm.
    fn wake(&self, py: Python<'_>) -> PyResult<bool> {
        let (event_loop, future) = match self {
            Self::Thread(parker) => {
                parker.unpark();
                return Ok(true);
            }
            Self::Task { event_loop, future } => (event_loop.bind(py), future.bind(py)),
        };
        // The loop itself is asked, not the thread it ran in when the wait
        // began: a loop may be run again elsewhere.
        let is_here = imports::is_running_here(event_loop)?;
        let sent = if is_here {
            future.call_method1(intern!(py, "set_result"), (py.None(),))
        } else {
            let wake = wake_function(py)?;
            event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (wake, future))
        };
        match sent {
            Ok(_) => Ok(true),
            // Woken before, or cancelled and about to give its ticket back.
            Err(error) if error.is_instance(py, imports::invalid_state(py)?) => Ok(true),
            Err(_) if is_closed(event_loop)? => Ok(false),
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn is_closed(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    event_loop.call_method0(intern!(event_loop.py(), "is_closed"))?.is_truthy()
}

/// Tries again what an exception struck. One that does not strike twice came from
/// outside, from a signal handler, and says nothing about what was tried: it is
/// returned beside the result. One that goes on striking is reported, unless it is
/// no `Exception`. Only for what may be done twice.
pub(crate) fn insist<T>(
    py: Python<'_>,
    mut action: impl FnMut() -> PyResult<T>,
) -> (Option<T>, PyResult<()>) {
    const TRIES: usize = 4;
    let mut first_error = Ok(());
    for _ in 0..TRIES {
        match action() {
            Ok(result) => return (Some(result), first_error),
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    match first_error {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            exit::report(py, error, None);
            (None, Ok(()))
        }
        error => (None, error),
    }
}

/// Delivers the wakes of `station`. Whose loop is closed is passed over for the
/// next in line; whom the wake does not reach for any other reason is tried again
/// later. All are delivered, and the first error is returned: a `KeyboardInterrupt`
/// that struck on the way is not lost and loses nothing.
pub(crate) fn deliver(py: Python<'_>, station: &dyn Station, wakes: Wakes<Waiter>) -> PyResult<()> {
    if wakes.is_empty() {
        return Ok(());
    }
    let _calling = exit::Calling::new(py);
    let mut first_error = Ok(());
    let mut wakes = wakes.into_iter();
    let mut more = VecDeque::new();
    while let Some(wake) = wakes.next().or_else(|| more.pop_front()) {
        let (is_woken, error) = insist(py, || wake.waiter.wake(py));
        first_error = first_error.and(error);
        if is_woken == Some(true) {
            continue;
        }
        let (now, error) = station.clock().now_or_stand_still(py);
        first_error = first_error.and(error);
        more.extend(match is_woken {
            Some(_) => station.withdraw(now, wake.ticket),
            None => station.unreached(now, wake.ticket, wake.waiter),
        });
    }
    first_error
}

fn wake_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static WAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let wake = WAKE
        .get_or_try_init(py, || Ok::<_, PyErr>(wrap_pyfunction!(wake, py)?.into_any().unbind()))?;
    Ok(wake.bind(py))
}

/// Runs on the waiter's own loop.
#[pyfunction]
fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// The home of the tasks of a loop. The waiters keep the loop alive, so that
/// its address is its own for as long as it matters.
pub(crate) fn home_of(event_loop: &Py<PyAny>) -> Home {
    Home(event_loop.as_ptr() as u64)
}

/// The home of this thread as one that parks. Odd, so never a loop's address.
pub(crate) fn home_of_thread() -> Home {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HOME: Home = Home(NEXT.fetch_add(2, Ordering::Relaxed));
    }
    HOME.with(|home| *home)
}

/// Where the caller is: on a loop, or in a plain thread.
pub(crate) fn home(py: Python<'_>) -> PyResult<Home> {
    Ok(match imports::running_loop(py)? {
        Some(event_loop) => home_of(event_loop.as_unbound()),
        None => home_of_thread(),
    })
}

/// A future for one wait on the running loop, and the waiter that wakes it.
pub(crate) fn task_waiter<'py>(
    event_loop: &Bound<'py, PyAny>,
) -> PyResult<(Waiter, Bound<'py, PyAny>)> {
    let py = event_loop.py();
    let _calling = exit::Calling::new(py);
    let future = event_loop.call_method0(intern!(py, "create_future"))?;
    let waiter =
        Waiter::Task { event_loop: event_loop.clone().unbind(), future: future.clone().unbind() };
    Ok((waiter, future))
}

/// A flag that a thread sleeps on.
///
/// It is of the standard library and not of `parking_lot`, whose table of
/// parked threads is shared by the process: a fork while another thread enters
/// it would leave it locked in the child.
#[derive(Default)]
pub(crate) struct Parker {
    is_woken: Mutex<bool>,
    signal: Condvar,
}

impl Parker {
    pub(crate) fn unpark(&self) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.signal.notify_one();
    }

    /// Sleeps for at most `span`; whether it was woken.
    fn park(&self, span: Duration) -> bool {
        let is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.signal.wait_timeout_while(is_woken, span, |is_woken| !*is_woken);
        let (mut is_woken, _) = slept.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *is_woken)
    }
}

/// Parks this thread, detached, until it is woken. In between it attaches when
/// something falls due, which it serves for everybody, and on the main thread to
/// let signal handlers run; what they raise ends the wait.
pub(crate) fn park(py: Python<'_>, station: &dyn Station, parker: &Parker) -> PyResult<()> {
    let is_main = imports::is_main_thread(py)?;
    let generation = fork::generation();
    loop {
        let is_real = station.clock().is_system();
        let mut slept_from = station.clock().now(py)?;
        let is_woken = exit::detach(py, is_main, || {
            loop {
                let due = if is_real { station.due().since(slept_from) } else { LOOK_UP };
                let span = due.min(LOOK_UP);
                if parker.park(span) {
                    return true;
                }
                slept_from = slept_from.after(span);
                if is_main || !is_real || station.due() <= slept_from {
                    return false;
                }
            }
        });
        if is_woken {
            return Ok(());
        }
        py.check_signals()?;
        // A handler may have forked, and in the child nobody knows of this wait.
        if fork::generation() != generation {
            return Ok(());
        }
        station.sweep(py, Some(home_of_thread()))?;
    }
}
