use std::time::Duration;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::clock::Clock;
use super::config;
use crate::primitives::Time;

/// The moment after which nobody wants the answer any more.
#[pyclass(frozen, weakref, module = "sluicegate")]
pub(crate) struct Deadline {
    clock: Clock,
    moment: Time,
    /// How much time there was, if it was a stranger who chose it.
    by_stranger: Option<Duration>,
}

impl Deadline {
    /// In so much time from now on, by the default clock.
    pub(crate) fn in_span(py: Python<'_>, span: Duration) -> PyResult<Self> {
        Self::on(py, Clock::Default, span)
    }

    fn on(py: Python<'_>, clock: Clock, span: Duration) -> PyResult<Self> {
        let moment = clock.now(py)?.after(span);
        Ok(Self { clock, moment, by_stranger: None })
    }

    /// When it is on another clock, which says that it is `now`.
    ///
    /// # Errors
    /// What its own clock raises, if it is not the same.
    pub(crate) fn moment_on(&self, py: Python<'_>, clock: &Clock, now: Time) -> PyResult<Time> {
        if self.clock.is_same(clock) {
            return Ok(self.moment);
        }
        Ok(now.after(self.left(py)?))
    }

    /// What is left of it; zero once it is over.
    ///
    /// # Errors
    /// What its clock raises.
    pub(crate) fn left(&self, py: Python<'_>) -> PyResult<Duration> {
        Ok(self.moment.since(self.clock.now(py)?))
    }

    /// Whether a stranger chose it, and half of it is over: what comes too late then says nothing
    /// about load. And what its clock raises, which stands still then.
    pub(crate) fn is_a_strangers_fault(&self, py: Python<'_>) -> (bool, PyResult<()>) {
        let Some(span) = self.by_stranger else { return (false, Ok(())) };
        let (now, told) = self.clock.now_or_stand_still(py);
        (self.moment.since(now) <= span / 2, told)
    }

    /// Whether it can be compared with another one whatever time it is.
    pub(crate) fn is_on_the_clock_of(&self, other: &Self) -> bool {
        self.clock.is_same(&other.clock)
    }

    /// Whether it comes before another one.
    ///
    /// # Errors
    /// What their clocks raise, if they are not the same.
    pub(crate) fn is_before(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if self.clock.is_same(&other.clock) {
            return Ok(self.moment < other.moment);
        }
        Ok(self.left(py)? < other.left(py)?)
    }
}

#[pymethods]
impl Deadline {
    /// Make the one that is so many seconds from now.
    #[classmethod]
    #[pyo3(signature = (seconds, /, *, clock = None))]
    fn after(
        _class: &Bound<'_, PyType>,
        seconds: &Bound<'_, PyAny>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        const RANGE: &str = "a number of seconds from now, at most 3600";
        let span = config::seconds_from_now("seconds", RANGE, seconds)?;
        Self::on(seconds.py(), Clock::new(clock)?, span)
    }

    /// Make one that a caller has chosen whom nobody trusts.
    #[classmethod]
    #[pyo3(signature = (seconds, /))]
    fn _by_stranger(_class: &Bound<'_, PyType>, seconds: &Bound<'_, PyAny>) -> PyResult<Self> {
        const RANGE: &str = "a number of seconds from now, at most 3600";
        let span = config::seconds_from_now("seconds", RANGE, seconds)?;
        Ok(Self { by_stranger: Some(span), ..Self::in_span(seconds.py(), span)? })
    }

    /// Return how many seconds are left; 0 once it is over.
    fn remaining(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.left(py)?.as_secs_f64())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let left = self.left(py)?;
        if left.is_zero() {
            return Ok("<Deadline: over>".into());
        }
        Ok(format!("<Deadline: {:.3} s left>", left.as_secs_f64()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.clock.traverse(&visit)
    }
}
