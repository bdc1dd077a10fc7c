//! Every Python object that is imported, in one place.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::exit;
use crate::primitives::{Criticality, Outcome, Reason};

/// The loop that runs in this thread, if any.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let event_loop = GET.import(py, "asyncio", "_get_running_loop")?.call0()?;
    Ok((!event_loop.is_none()).then_some(event_loop))
}

/// The name of what else runs the tasks of this thread and would be blocked with it: gevent
/// or trio, if one of them is in use here.
pub(crate) fn other_loop(py: Python<'_>) -> PyResult<Option<&'static str>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    // What is not imported yet runs nothing.
    let modules = MODULES.import(py, "sys", "modules")?;
    if let Some(hubs) = modules.get_item(intern!(py, "gevent._hub_local"))?
        && !hubs.call_method0(intern!(py, "get_hub_if_exists"))?.is_none()
    {
        return Ok(Some("gevent"));
    }
    if let Some(trio) = modules.get_item(intern!(py, "trio.lowlevel"))?
        && trio.call_method0(intern!(py, "in_trio_run"))?.is_truthy()?
    {
        return Ok(Some("trio"));
    }
    Ok(None)
}

/// Whether this loop runs in this thread.
pub(crate) fn is_running_here(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(running_loop(event_loop.py())?.is_some_and(|running| running.is(event_loop)))
}

/// A `contextvars.ContextVar` that is `None` where it was not set.
pub(crate) fn new_context_variable<'py>(
    py: Python<'py>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    options.set_item("default", py.None())?;
    py.import("contextvars")?.getattr("ContextVar")?.call((name,), Some(&options))
}

/// Whether a call of it gives a coroutine, which somebody would have to await.
pub(crate) fn is_coroutine_function(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    static IS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let is = IS.import(function.py(), "sluicegate._guard", "is_coroutine_function")?;
    is.call1((function,))?.is_truthy()
}

/// What a future raises that is done already.
pub(crate) fn invalid_state(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(CLASS.import(py, "asyncio", "InvalidStateError")?.as_any())
}

/// Whether this is the thread that receives signals.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let main = MAIN.import(py, "threading", "main_thread")?.call0()?;
    Ok(main.is(CURRENT.import(py, "threading", "current_thread")?.call0()?))
}

/// `sluicegate.Rejected`.
pub(crate) fn rejected(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static REJECTED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    REJECTED.import(py, "sluicegate._errors", "Rejected")
}

/// A `sluicegate.QueueClosed`.
pub(crate) fn queue_closed(py: Python<'_>, name: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let text = format!("queue {name:?} is closed");
    let raised = CLASS.import(py, "sluicegate._errors", "QueueClosed");
    raised.and_then(|class| class.call1((text,))).map_or_else(|error| error, PyErr::from_value)
}

/// A `sluicegate.TimedOut`.
pub(crate) fn timed_out(py: Python<'_>, text: String) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let raised = CLASS.import(py, "sluicegate._errors", "TimedOut");
    raised.and_then(|class| class.call1((text,))).map_or_else(|error| error, PyErr::from_value)
}

/// `sluicegate.SluicegateError`.
pub(crate) fn our_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "sluicegate._errors", "SluicegateError")
}

/// An `asyncio.QueueEmpty`.
pub(crate) fn queue_empty(py: Python<'_>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let raised = CLASS.import(py, "asyncio", "QueueEmpty");
    raised.and_then(|class| class.call0()).map_or_else(|error| error, PyErr::from_value)
}

/// Writes a warning to the log of this name.
pub(crate) fn warn(py: Python<'_>, logger: &str, text: &str) -> PyResult<()> {
    log(py, logger, true, text)
}

/// `sluicegate.DeadlineExceeded`.
fn deadline_exceeded(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "sluicegate._errors", "DeadlineExceeded")
}

/// What is raised for a rejection with this reason: a `Rejected` that holds it, or a
/// `DeadlineExceeded`, which is also a `TimeoutError`.
pub(crate) fn new_rejected<'py>(
    rejection: &Bound<'py, PyAny>,
    reason: Reason,
) -> PyResult<Bound<'py, PyAny>> {
    if reason == Reason::Deadline {
        // An `OSError` as well, which has more to set up.
        return deadline_exceeded(rejection.py())?.call1((rejection,));
    }
    new_plainly_rejected(rejection)
}

/// Made as `BaseException.__new__` does, without the constructor of `Rejected`: that
/// checks what is right here, and costs more than all the rest of raising it.
fn new_plainly_rejected<'py>(rejection: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = rejection.py();
    let class = rejected(py)?;
    let args = PyTuple::new(py, [rejection])?;
    // SAFETY: attached. `BaseException` is a type whose `tp_new` takes a subtype,
    // which `Rejected` is, a tuple, and keyword arguments or none. It returns a new
    // reference, or null with an exception set.
    unsafe {
        let base = ffi::PyExc_BaseException.cast::<ffi::PyTypeObject>();
        let slot = ffi::PyType_GetSlot(base, ffi::Py_tp_new);
        let new: ffi::newfunc = std::mem::transmute(slot);
        let raised = new(class.as_type_ptr(), args.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, raised)
    }
}

/// Writes a warning, or what is good to know, to the log of this name.
pub(crate) fn log(py: Python<'_>, logger: &str, is_warning: bool, text: &str) -> PyResult<()> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let _calling = exit::Calling::new(py);
    let logger = GET.import(py, "logging", "getLogger")?.call1((logger,))?;
    // Not as a format: there may be signs in it.
    let method = if is_warning { "warning" } else { "info" };
    logger.call_method1(method, ("%s", text)).map(drop)
}

/// What a source of pressure is called.
///
/// # Errors
/// If it is none.
pub(crate) fn pressure_name(source: &Bound<'_, PyAny>) -> PyResult<String> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let name_of = NAME_OF.import(source.py(), "sluicegate.pressure", "name_of")?;
    name_of.call1((source,))?.extract()
}

/// Whether it is the sign for the line of the gate itself.
pub(crate) fn is_queue_wait(source: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    source.is_instance(CLASS.import(source.py(), "sluicegate.pressure", "QueueWait")?)
}

/// Only a member is a reason, and not the text that it equals.
pub(crate) fn reason_from(value: &Bound<'_, PyAny>) -> PyResult<Reason> {
    for known in Reason::ALL {
        if reason(value.py(), known)?.is(value) {
            return Ok(known);
        }
    }
    Err(super::config::wrong_type("reason", "a Reason", value))
}

/// `sluicegate.Criticality`.
pub(crate) fn criticality_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CRITICALITY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CRITICALITY.import(py, "sluicegate._enums", "Criticality")
}

/// `sluicegate.Outcome`.
pub(crate) fn outcome_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static OUTCOME: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    OUTCOME.import(py, "sluicegate._enums", "Outcome")
}

/// `sluicegate.Reason`.
pub(crate) fn reason_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static REASON: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    REASON.import(py, "sluicegate._enums", "Reason")
}

pub(crate) fn criticality(py: Python<'_>, value: Criticality) -> PyResult<Bound<'_, PyAny>> {
    static MEMBERS: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let members = MEMBERS.get_or_try_init(py, || {
        members(criticality_type(py)?, Criticality::ALL.map(|value| value as u8))
    })?;
    members.bind(py).get_item(value.index())
}

pub(crate) fn outcome(py: Python<'_>, value: Outcome) -> PyResult<Bound<'_, PyAny>> {
    static MEMBERS: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let members = MEMBERS
        .get_or_try_init(py, || members(outcome_type(py)?, Outcome::ALL.map(Outcome::as_str)))?;
    members.bind(py).get_item(value.index())
}

pub(crate) fn reason(py: Python<'_>, value: Reason) -> PyResult<Bound<'_, PyAny>> {
    static MEMBERS: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let members = MEMBERS
        .get_or_try_init(py, || members(reason_type(py)?, Reason::ALL.map(Reason::as_str)))?;
    members.bind(py).get_item(value.index())
}

/// How often which outcome was seen, but for those that were not.
pub(crate) fn outcomes<'py>(py: Python<'py>, counts: &[u64; 3]) -> PyResult<Bound<'py, PyDict>> {
    let counted = PyDict::new(py);
    for outcome in Outcome::ALL.into_iter().filter(|outcome| counts[outcome.index()] > 0) {
        counted.set_item(self::outcome(py, outcome)?, counts[outcome.index()])?;
    }
    Ok(counted)
}

/// How often was rejected for which reason, but for those that were not.
pub(crate) fn reasons<'py>(py: Python<'py>, counts: &[u64; 12]) -> PyResult<Bound<'py, PyDict>> {
    let counted = PyDict::new(py);
    for reason in Reason::ALL.into_iter().filter(|reason| counts[reason.index()] > 0) {
        counted.set_item(self::reason(py, reason)?, counts[reason.index()])?;
    }
    Ok(counted)
}

/// The members of an enum that have these values.
fn members<'py, V, const N: usize>(
    class: &Bound<'py, PyType>,
    values: [V; N],
) -> PyResult<Py<PyTuple>>
where
    V: IntoPyObject<'py>,
{
    let py = class.py();
    let members =
        values.into_iter().map(|value| class.call1((value,))).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, members)?.unbind())
}
