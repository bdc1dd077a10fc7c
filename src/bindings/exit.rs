//! Threads that are still there when the interpreter exits.
//!
//! `CPython` (before 3.14) ends a daemon thread that wants the interpreter back
//! while it is being finalized by `pthread_exit`. That unwinds through our frames,
//! if the thread is inside a call of ours, and aborts the process. So when the
//! interpreter is gone, threads other than the main one stay where none is needed:
//! parked for ever, as `CPython` itself keeps them from 3.14 on.
//!
//! Nothing tells a thread beforehand that finalization is about to begin. From our
//! exit handler on they hesitate, detached, and come back only if there still is an
//! interpreter then: a handler that was registered before ours runs that long, and
//! may be waiting for them.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;

use super::imports;

// Sequentially consistent: either a thread that enters sees that exit has begun,
// or exit sees that it is inside.
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicIsize = AtomicIsize::new(0);

const LONGEST: Duration = Duration::from_secs(1);
const HESITATION: Duration = Duration::from_millis(20);

/// A stretch in which this thread may lose the interpreter inside our frames,
/// since Python runs: exit waits for its end.
pub(crate) struct Calling(());

impl Calling {
    pub(crate) fn new(py: Python<'_>) -> Self {
        let calling = Self::enter();
        if IS_EXITING.load(Ordering::SeqCst) && !imports::is_main_thread(py).unwrap_or(true) {
            drop(calling);
            py.detach(hesitate);
            return Self::enter();
        }
        calling
    }

    fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

/// Reports an error that cannot be raised, by `sys.unraisablehook`.
pub(crate) fn report(py: Python<'_>, error: PyErr, context: Option<&Bound<'_, PyAny>>) {
    let _calling = Calling::new(py);
    error.write_unraisable(py, context);
}

/// Report an exception that nobody can be told, by `sys.unraisablehook`.
#[pyfunction]
#[pyo3(name = "report", signature = (error, context, /))]
pub(crate) fn report_from_python(error: &Bound<'_, PyAny>, context: &Bound<'_, PyAny>) {
    report(error.py(), PyErr::from_value(error.clone()), Some(context));
}

/// Drops an object of the user, whose finalizer may run Python.
pub(crate) fn discard(py: Python<'_>, object: Py<PyAny>) {
    let _calling = Calling::new(py);
    drop(object);
}

/// Comes back only if the interpreter is there for a while longer.
fn hesitate() {
    thread::sleep(HESITATION);
    // SAFETY: may be called at any time, attached or not.
    while unsafe { ffi::Py_IsInitialized() } == 0 {
        thread::park();
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        // Below zero where the one who forked was inside itself; it is not waited
        // for, since it is the one who exits.
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `action` detached, and attaches again unless exit has begun.
pub(crate) fn detach<T: Send>(
    py: Python<'_>,
    is_main: bool,
    action: impl FnOnce() -> T + Send,
) -> T {
    let (result, attaching) = py.detach(|| {
        let result = action();
        let mut attaching = Calling::enter();
        if IS_EXITING.load(Ordering::SeqCst) && !is_main {
            drop(attaching);
            hesitate();
            attaching = Calling::enter();
        }
        (result, attaching)
    });
    drop(attaching);
    result
}

/// In the child after a fork: the threads that were inside are not there.
pub(crate) fn begin_anew() {
    INSIDE.store(0, Ordering::SeqCst);
    IS_EXITING.store(false, Ordering::SeqCst);
}

pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(begin_exit, py)?,))?;
    Ok(())
}

/// Lets those who are inside finish, and the others hesitate.
#[pyfunction]
fn begin_exit(py: Python<'_>) {
    IS_EXITING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let since = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && since.elapsed() < LONGEST {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
