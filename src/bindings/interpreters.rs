//! Sub-interpreters: the Python objects that are kept here for the process belong
//! to one interpreter, and would be used, and freed, in another.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

const MAIN: i64 = 0;

/// # Errors
/// `ImportError` in every interpreter but the main one.
pub(crate) fn refuse_all_but_the_main() -> PyResult<()> {
    // SAFETY: a module is initialised attached, so that there is a current
    // interpreter.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if current == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err("sluicegate works in the main interpreter only"))
}
