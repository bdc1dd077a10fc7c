//! The one context variable: which link of a chain is the innermost here. The stable
//! ABI of `CPython` 3.11 has no functions for it, so that its methods are called.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::imports;
use super::scope::Scope;

struct Methods {
    get: Py<PyAny>,
    set: Py<PyAny>,
    reset: Py<PyAny>,
}

fn methods(py: Python<'_>) -> PyResult<&'static Methods> {
    static METHODS: PyOnceLock<Methods> = PyOnceLock::new();
    METHODS.get_or_try_init(py, || {
        let variable = imports::new_context_variable(py, "sluicegate")?;
        let method = |name| variable.getattr(name).map(Bound::unbind);
        Ok(Methods { get: method("get")?, set: method("set")?, reset: method("reset")? })
    })
}

#[inline]
pub(crate) fn get(py: Python<'_>) -> PyResult<Option<Py<Scope>>> {
    let value = methods(py)?.get.bind(py).call0()?;
    if value.is_none() {
        return Ok(None);
    }
    Ok(Some(value.cast_into::<Scope>()?.unbind()))
}

pub(crate) fn set(py: Python<'_>, link: Option<&Bound<'_, Scope>>) -> PyResult<()> {
    set_with_token(py, link).map(drop)
}

/// The same with what undoes it, in the same context.
pub(crate) fn set_with_token(
    py: Python<'_>,
    link: Option<&Bound<'_, Scope>>,
) -> PyResult<Py<PyAny>> {
    Ok(methods(py)?.set.bind(py).call1((link,))?.unbind())
}

pub(crate) fn reset(py: Python<'_>, token: Py<PyAny>) -> PyResult<()> {
    methods(py)?.reset.bind(py).call1((token,)).map(drop)
}
