//! Threads that are parked when the interpreter exits.
//!
//! A daemon thread that attaches while the interpreter is being finalized is
//! ended by `CPython` (before 3.14) with `pthread_exit`, which unwinds through our
//! frames and aborts the process. So a parked thread stays parked from the moment
//! when exit begins.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

// Sequentially consistent: either a thread that attaches sees that exit has
// begun, or exit sees that it is attaching.
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static ATTACHING: AtomicUsize = AtomicUsize::new(0);

const LONGEST: Duration = Duration::from_secs(1);

/// Runs `action` detached. While the interpreter exits it does not come back,
/// except on the main thread, which is the one that exits.
pub(crate) fn detach<T: Send>(
    py: Python<'_>,
    is_main: bool,
    action: impl FnOnce() -> T + Send,
) -> T {
    let result = py.detach(|| {
        let result = action();
        ATTACHING.fetch_add(1, Ordering::SeqCst);
        if IS_EXITING.load(Ordering::SeqCst) && !is_main {
            ATTACHING.fetch_sub(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        result
    });
    ATTACHING.fetch_sub(1, Ordering::SeqCst);
    result
}

pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?
        .call_method1("register", (wrap_pyfunction!(begin_exit, py)?,))?;
    Ok(())
}

/// Lets those who are attaching finish, and nobody begin.
#[pyfunction]
fn begin_exit(py: Python<'_>) {
    IS_EXITING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let since = Instant::now();
        while ATTACHING.load(Ordering::SeqCst) > 0 && since.elapsed() < LONGEST {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
