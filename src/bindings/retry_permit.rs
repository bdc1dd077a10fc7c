use std::ffi::CString;

use parking_lot::Mutex;
use pyo3::exceptions::PyResourceWarning;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::locked::{BeginsAnew, Locked};
use super::permit::{in_destructor, released};
use super::rejection::{Kind, Rejection};
use super::retry_budget::RetryBudget;
use super::token_retry_budget::TokenRetryBudget;
use crate::primitives::{Rejection as Refusal, RetryPermit as Right};

/// What a primitive that gives retries takes back.
pub(crate) trait TakesBack: BeginsAnew + Send {
    fn release(&mut self, right: Right);
    fn count_stray_release(&mut self);
}

/// The same with its lock, whatever it is.
pub(crate) trait Gives: Send + Sync {
    fn release(&self, right: Right);
    fn count_stray_release(&self);
    fn name(&self) -> &Py<PyString>;
}

impl<P: TakesBack> Gives for Locked<P> {
    fn release(&self, right: Right) {
        self.with(|budget| budget.release(right));
    }

    fn count_stray_release(&self) {
        self.with(TakesBack::count_stray_release);
    }

    fn name(&self) -> &Py<PyString> {
        Locked::name(self)
    }
}

/// The Python object of a budget, kept alive by what it gave.
pub(crate) enum Giver {
    Share(Py<RetryBudget>),
    Tokens(Py<TokenRetryBudget>),
}

impl std::ops::Deref for Giver {
    type Target = dyn Gives;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Share(budget) => budget.get().core(),
            Self::Tokens(budget) => budget.get().core(),
        }
    }
}

impl Giver {
    /// The answer to whoever asked for a retry.
    pub(crate) fn answer(
        self,
        py: Python<'_>,
        answer: Result<Right, Refusal>,
    ) -> PyResult<Py<PyAny>> {
        match answer {
            Ok(right) => {
                let permit = RetryPermit { giver: self, right: Mutex::new(Some(right)) };
                Ok(Py::new(py, permit)?.into_any())
            }
            Err(refusal) => {
                let rejection =
                    Rejection::new(Kind::RetryBudget, self.name().clone_ref(py), refusal);
                Ok(Py::new(py, rejection)?.into_any())
            }
        }
    }
}

/// The right to one retry, from its back-off through its attempt, given back exactly
/// once.
#[pyclass(frozen, weakref, module = "sluicegate")]
pub(crate) struct RetryPermit {
    giver: Giver,
    right: Mutex<Option<Right>>,
}

#[pymethods]
impl RetryPermit {
    /// Give it back; a second call does nothing and is counted.
    fn release(&self) {
        let right = self.right.lock().take();
        match right {
            Some(right) => self.giver.release(right),
            None => self.giver.count_stray_release(),
        }
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        let is_held = this.right.lock().is_some();
        if !is_held {
            return Err(released(slf.py(), "retry", this.giver.name()));
        }
        Ok(slf)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyAny>) {
        self.release();
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.right.lock().is_some() { "held" } else { "released" };
        Ok(format!("<RetryPermit of {} ({state})>", self.giver.name().bind(py).repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.giver {
            Giver::Share(budget) => visit.call(budget),
            Giver::Tokens(budget) => visit.call(budget),
        }
    }
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        // Collected unreleased.
        let Some(right) = self.right.get_mut().take() else { return };
        in_destructor(|py| {
            self.giver.release(right);
            let name = self.giver.name().bind(py).to_string();
            let text = format!("a retry of {name:?} was never released; it is given back now");
            let text = CString::new(text).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1)
        });
    }
}
