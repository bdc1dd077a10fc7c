use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::core::Core;
use crate::bindings::{config, exit, imports};
use crate::primitives::Time;

/// How often they are asked.
const PAUSE: Duration = Duration::from_millis(100);

/// What is beyond is no more; so that a snapshot is JSON.
const MOST: f64 = 1e9;

/// The sources of pressure of a gate, which are asked outside of its lock.
#[derive(Default)]
pub(crate) struct Pressures {
    sources: Vec<Source>,
    /// Whether the gate looks at its own line.
    is_by_line: bool,
    /// When they are asked next, in nanoseconds. Relaxed: to ask twice does no harm.
    next: AtomicU64,
}

struct Source {
    name: Py<PyString>,
    call: Py<PyAny>,
    /// What it said last, as the bits of a number.
    said: AtomicU64,
    has_failed: AtomicBool,
}

impl Source {
    fn ask(&self, py: Python<'_>) -> PyResult<f64> {
        let said = self.call.bind(py).call0()?;
        said.extract().map_err(|error: PyErr| {
            if !error.is_instance_of::<PyTypeError>(py) {
                return error;
            }
            let (name, class) = (self.name.bind(py), said.get_type());
            PyTypeError::new_err(format!("pressure '{name}' must return a number, got a {class}"))
        })
    }
}

impl Pressures {
    /// By default there are none.
    pub(super) fn new(py: Python<'_>, sources: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        const RANGE: &str = "a sequence of pressures, or None (automatic: none)";
        let mut pressures = Self::default();
        let Some(given) = sources else { return Ok(pressures) };
        let items = given.try_iter().map_err(|_| config::wrong_type("pressure", RANGE, given))?;
        for source in items {
            let source = source?;
            let name = imports::pressure_name(&source)?;
            if imports::is_queue_wait(&source)? {
                pressures.is_by_line = true;
                continue;
            }
            pressures.sources.push(Source {
                name: PyString::new(py, &name).unbind(),
                call: source.unbind(),
                said: AtomicU64::new(0),
                has_failed: AtomicBool::new(false),
            });
        }
        Ok(pressures)
    }

    pub(super) const fn is_by_line(&self) -> bool {
        self.is_by_line
    }

    pub(super) fn is_from_outside(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Asks them, if it is time to, and tells the gate.
    ///
    /// # Errors
    /// What is no `Exception`, and what the clock raises.
    #[inline]
    pub(super) fn look(&self, py: Python<'_>, gate: &Core) -> PyResult<()> {
        if self.sources.is_empty() { Ok(()) } else { self.ask(py, gate) }
    }

    fn ask(&self, py: Python<'_>, gate: &Core) -> PyResult<()> {
        let now = gate.now(py)?;
        let next = self.next.load(Ordering::Relaxed);
        let later = now.after(PAUSE).as_nanos();
        let is_mine = now >= Time::from_nanos(next)
            && self
                .next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return Ok(());
        }
        let _calling = exit::Calling::new(py);
        let mut highest = 0.0_f64;
        for source in &self.sources {
            let said = match source.ask(py) {
                Ok(said) => said,
                // One that fails says nothing, and does not take the gate down.
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    if !source.has_failed.swap(true, Ordering::Relaxed) {
                        exit::report(py, error, None);
                    }
                    0.0
                }
                Err(error) => return Err(error),
            };
            // What is no number says nothing; what is infinite is as high as can be.
            let said = if said.is_nan() { 0.0 } else { said.clamp(-MOST, MOST) };
            source.said.store(said.to_bits(), Ordering::Relaxed);
            highest = highest.max(said);
        }
        gate.with(|state| state.note_pressure(highest));
        Ok(())
    }

    /// What they said last, by name.
    pub(super) fn said(&self) -> impl Iterator<Item = (&Py<PyString>, f64)> {
        let said = |source: &Source| f64::from_bits(source.said.load(Ordering::Relaxed));
        self.sources.iter().map(move |source| (&source.name, said(source)))
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.sources.iter().try_for_each(|source| visit.call(&source.call))
    }
}
