use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::CoDelQueue;
use super::errand::{Get, GetFor};
use crate::bindings::wait::{self, Done, refuse_on_event_loop};
use crate::bindings::wait_for::{Errands, Wait};
use crate::primitives::Work;

/// An item for `async with` or, in a thread, `with`, once; the block is the work on it.
#[pyclass(frozen, generic, module = "sluicegate._core")]
pub(crate) struct Take {
    queue: Py<CoDelQueue>,
    timeout: Option<Duration>,
    stage: Mutex<Stage>,
}

enum Stage {
    New,
    /// Waits, or has ended.
    Used,
    Working(Work),
}

impl Take {
    pub(crate) fn new(queue: &Bound<'_, CoDelQueue>, timeout: Option<Duration>) -> Self {
        Self { queue: queue.clone().unbind(), timeout, stage: Mutex::new(Stage::New) }
    }

    pub(crate) fn begin(&self, work: Work) {
        let before = self.swap(Stage::Working(work));
        self.abandon(before);
    }

    /// Unlocked again when it returns, as the scrutinee of a `match` would not be.
    fn swap(&self, stage: Stage) -> Stage {
        std::mem::replace(&mut *self.stage.lock(), stage)
    }

    fn enter(&self) -> PyResult<()> {
        match self.swap(Stage::Used) {
            Stage::New => Ok(()),
            before => {
                let used = self.swap(before);
                self.abandon(used);
                let text = "a take() can be used once; call take() again";
                Err(PyRuntimeError::new_err(text))
            }
        }
    }

    fn exit(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.swap(Stage::Used) {
            Stage::Working(work) => self.queue.get().core().finish(py, work, exception.is_none()),
            Stage::New | Stage::Used => Ok(()),
        }
    }

    fn abandon(&self, stage: Stage) {
        if let Stage::Working(work) = stage {
            self.queue.get().core().with(|items| items.abandon(work));
        }
    }

    fn get(slf: &Bound<'_, Self>) -> Get {
        let this = slf.get();
        Get::new(this.queue.bind(slf.py()), this.timeout, GetFor::Take(slf.clone().unbind()))
    }
}

#[pymethods]
impl Take {
    fn __aenter__(slf: &Bound<'_, Self>) -> PyResult<Wait> {
        slf.get().enter()?;
        Ok(Wait::of(Errands::Get(Self::get(slf))))
    }

    fn __aexit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<&'static Py<Done>> {
        self.exit(py, exception)?;
        Done::shared(py)
    }

    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        refuse_on_event_loop(py, "with take()", "async with take()")?;
        slf.get().enter()?;
        wait::block(py, &Self::get(slf))
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

    fn __repr__(&self) -> String {
        let state = match &*self.stage.lock() {
            Stage::New => "not used yet",
            Stage::Used => "used",
            Stage::Working(_) => "at work",
        };
        format!("<Take ({state})>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let stage = std::mem::replace(self.stage.get_mut(), Stage::Used);
        self.abandon(stage);
    }
}
