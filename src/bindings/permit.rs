use parking_lot::Mutex;
use pyo3::exceptions::{PyResourceWarning, PyTimeoutError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::acquire::Limiter;
use super::{config, imports};
use crate::primitives::{Outcome, Permit as Right};

/// The right to be in flight, given back exactly once.
#[pyclass(frozen, weakref, module = "sluicegate")]
pub(crate) struct Permit {
    limiter: Limiter,
    held: Mutex<Held>,
    waited: f64,
}

struct Held {
    right: Option<Right>,
    /// Set inside the block to overrule the classification.
    outcome: Option<Outcome>,
    operation: Option<Py<PyString>>,
}

impl Permit {
    pub(crate) fn new(limiter: Limiter, right: Right, operation: Option<Py<PyString>>) -> Self {
        let waited = right.waited().as_secs_f64();
        let held = Mutex::new(Held {
            right: Some(right),
            outcome: None,
            operation,
        });
        Self {
            limiter,
            held,
            waited,
        }
    }

    /// Gives back with an outcome, unless one was set.
    fn give_back(&self, py: Python<'_>, classify: impl FnOnce() -> Outcome) -> PyResult<()> {
        let (right, outcome) = {
            let mut held = self.held.lock();
            (held.right.take(), held.outcome)
        };
        let Some(right) = right else {
            self.limiter.count_stray_release();
            return Ok(());
        };
        self.limiter.release(py, right, outcome.unwrap_or_else(classify))
    }

    /// The end of a `with` block.
    pub(crate) fn exit(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.give_back(py, || classify(exception))
    }
}

#[pymethods]
impl Permit {
    #[getter]
    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outcome = self.held.lock().outcome;
        outcome
            .map(|outcome| imports::outcome(py, outcome))
            .transpose()
    }

    #[setter]
    fn set_outcome(&self, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let outcome = value.map(outcome_from).transpose()?;
        self.held.lock().outcome = outcome;
        Ok(())
    }

    #[getter]
    fn operation(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.held
            .lock()
            .operation
            .as_ref()
            .map(|operation| operation.clone_ref(py))
    }

    #[setter]
    fn set_operation(&self, value: Option<Py<PyString>>) {
        let old = std::mem::replace(&mut self.held.lock().operation, value);
        drop(old);
    }

    #[getter]
    fn waited(&self) -> f64 {
        self.waited
    }

    #[pyo3(signature = (outcome = None, /), text_signature = "($self, outcome=Outcome.SUCCESS, /)")]
    fn release(&self, py: Python<'_>, outcome: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let outcome = outcome.map(outcome_from).transpose()?;
        if let Some(outcome) = outcome {
            self.held.lock().outcome = Some(outcome);
        }
        self.give_back(py, Outcome::default)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
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
        let state = if self.held.lock().right.is_some() {
            "held"
        } else {
            "released"
        };
        Ok(format!(
            "<Permit of {} ({state})>",
            self.limiter.name().bind(py).repr()?
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.limiter.traverse(&visit)
    }
}

impl Drop for Permit {
    /// Collected unreleased: gives back and warns.
    fn drop(&mut self) {
        let Some(right) = self.held.get_mut().right.take() else {
            return;
        };
        // At the exit of the interpreter nobody is left to be told.
        Python::try_attach(|py| {
            // A destructor must leave the current exception as it was.
            let pending = PyErr::take(py);
            let name = self.limiter.name().bind(py).to_string();
            let given_back = self.limiter.release(py, right, Outcome::Ignored);
            let text = format!("a permit of {name:?} was never released; it is given back now\0");
            let text = std::ffi::CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default();
            let warned = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), text, 1);
            if let Err(error) = given_back.and(warned) {
                error.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

fn outcome_from(value: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let py = value.py();
    for outcome in Outcome::ALL {
        if imports::outcome(py, outcome)?.is(value) {
            return Ok(outcome);
        }
    }
    let known = value.extract::<&str>().ok().and_then(|text| {
        Outcome::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    });
    let range = "Outcome.SUCCESS, Outcome.IGNORED or Outcome.OVERLOAD";
    known.ok_or_else(|| config::wrong_type("outcome", range, value))
}

/// What an exception (or `None`) that ends a block says about load.
pub(crate) fn classify(exception: &Bound<'_, PyAny>) -> Outcome {
    if exception.is_none() {
        return Outcome::Success;
    }
    let py = exception.py();
    // Our own refusals come first: one of them is also a TimeoutError.
    let is_ours = imports::rejected(py).and_then(|rejected| exception.is_instance(rejected));
    if !is_ours.unwrap_or(true) && exception.is_instance_of::<PyTimeoutError>() {
        Outcome::Overload
    } else {
        Outcome::Ignored
    }
}
