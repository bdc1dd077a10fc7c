use std::ffi::CString;

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::permit::in_destructor;
use super::queue::{Get, Putting};
use super::wait::{self, NEW, OVER, Place, Quest, REFUSED, Stage};

/// What an await is for that gains an object and no permit: `None` for tokens, an
/// item for a queue.
pub(crate) trait Errand: Quest<Gain = Py<PyAny>> + Send + Sync {
    /// Shows the collector the Python object that it waits at, and what else it holds.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

/// The awaitable of what is no permit, for `await`, once. It looks like a coroutine,
/// so that everything that takes a coroutine takes it.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Wait {
    errand: Errands,
    stage: Stage,
    place: Place,
}

/// Those of a queue are inside, which saves an allocation for each item.
pub(crate) enum Errands {
    Get(Get),
    Put(Putting),
    Other(Box<dyn Errand>),
}

impl std::ops::Deref for Errands {
    type Target = dyn Errand;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Get(errand) => errand,
            Self::Put(errand) => errand,
            Self::Other(errand) => &**errand,
        }
    }
}

impl Wait {
    pub(crate) fn new(errand: impl Errand + 'static) -> Self {
        Self::of(Errands::Other(Box::new(errand)))
    }

    pub(crate) fn of(errand: Errands) -> Self {
        Self { errand, stage: Stage::new(), place: Place::default() }
    }

    fn step<'py>(&self, py: Python<'py>) -> PyResult<Step<'py>> {
        let mut gained = None;
        let gain = |object| {
            gained = Some(object);
            Ok(())
        };
        let yielded = wait::step(py, &*self.errand, &self.stage, &self.place, gain)?;
        Ok(yielded.map_or_else(
            || Step::Return(gained.unwrap_or_else(|| py.None()).into_bound(py)),
            Step::Yield,
        ))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        wait::end(py, self.errand.station(), &self.stage, &self.place)
    }
}

enum Step<'py> {
    Yield(Bound<'py, PyAny>),
    Return(Bound<'py, PyAny>),
}

#[pymethods]
impl Wait {
    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        this.stage.begin(this.errand.words())?;
        Ok(slf)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.step(py)? {
            Step::Yield(future) => Ok(Some(future)),
            // The end of an iterator has no value as it is.
            Step::Return(gained) if gained.is_none() => Ok(None),
            Step::Return(gained) => {
                wait::stop_with(&gained);
                Ok(None)
            }
        }
    }

    #[pyo3(signature = (_value, /))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        _value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.step(py)? {
            Step::Yield(future) => Ok(future),
            Step::Return(gained) => Err(wait::stop_iteration(&gained)),
        }
    }

    #[pyo3(signature = (class_, value = None, traceback = None, /))]
    fn throw(
        &self,
        class_: &Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.end(class_.py())?;
        Err(wait::thrown(class_, value, traceback)?)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py)
    }

    fn __repr__(&self) -> String {
        let state = match self.stage.get() {
            NEW | REFUSED => "not awaited yet",
            OVER => "over",
            _ => "waiting",
        };
        format!("<{} ({state})>", self.errand.words().again)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.errand.traverse(&visit)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Collected while it waits: by a loop that was closed under it.
        if let Some(ticket) = self.place.take_mut() {
            in_destructor(|py| self.errand.station().cancel(py, ticket));
        }
        if self.stage.is_unused() {
            in_destructor(|py| {
                let text = format!("{} was never awaited", self.errand.words().again);
                let text = CString::new(text).unwrap_or_default();
                PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
            });
        }
    }
}
