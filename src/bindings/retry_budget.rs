use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::clock::Clock;
use super::config;
use super::given::Given;
use super::locked::{BeginsAnew, Locked};
use super::names::Names;
use super::retry_permit::{Giver, Gives, TakesBack};
use crate::primitives::{RetryBudget as Budget, RetryBudgetConfig, RetryPermit as Right};

/// A bound on retries; see `sluicegate.RetryBudget`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct RetryBudget {
    core: Locked<Budget>,
}

/// Of both kinds of budget.
pub(crate) static NAMES: Names = Names::new("budget");

#[pymethods]
impl RetryBudget {
    #[new]
    #[pyo3(
        signature = (ratio = Given::NOTHING, *, floor = Given::NOTHING, window = Given::NOTHING, name = None, clock = None),
        text_signature = "(ratio=0.1, *, floor=0.1, window=10.0, name=None, clock=None)"
    )]
    fn new(
        py: Python<'_>,
        ratio: Given<'_, '_>,
        floor: Given<'_, '_>,
        window: Given<'_, '_>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut config = changed(RetryBudgetConfig::default(), ratio.get(), floor.get())?;
        if let Some(window) = window.get() {
            config.window = config::window(window)?;
        }
        let primitive = Budget::new(config)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Locked::new(primitive, name, clock) })
    }

    /// Count a call, of which retries may be a share.
    fn record_request(&self, py: Python<'_>) -> PyResult<()> {
        self.core.with_time_surely(py, Budget::record_request).1
    }

    /// Ask for a retry; never waits.
    fn try_retry(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let answer = slf.get().core.with_time(py, Budget::try_retry)?;
        Giver::Share(slf.clone().unbind()).answer(py, answer)
    }

    /// Change what is given, from now on and for what was counted.
    #[pyo3(signature = (*, ratio = None, floor = None))]
    fn update(
        &self,
        ratio: Option<&Bound<'_, PyAny>>,
        floor: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // Converted before the lock, since that may run Python: what is left out is
        // taken over under it.
        let given = changed(RetryBudgetConfig::default(), ratio, floor)?;
        self.core.with(|budget| {
            let old = *budget.config();
            budget.update(
                ratio.map_or(old.ratio, |_| given.ratio),
                floor.map_or(old.floor, |_| given.floor),
            )
        })?;
        Ok(())
    }

    /// What it is called in rejections, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (config, snapshot) =
            self.core.with_time(py, |budget, now| (*budget.config(), budget.snapshot(now)))?;
        let values = PyDict::new(py);
        values.set_item("ratio", config.ratio)?;
        values.set_item("floor", config.floor)?;
        values.set_item("window", config.window.as_secs_f64())?;
        values.set_item("requests", snapshot.requests)?;
        values.set_item("retries", snapshot.retries)?;
        values.set_item("held", snapshot.held)?;
        values.set_item("allowance", snapshot.allowance)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", snapshot.rejected)?;
        values.set_item("stray_releases", snapshot.stray_releases)?;
        Ok(values)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }
}

impl RetryBudget {
    pub(crate) fn core(&self) -> &(dyn Gives + 'static) {
        &self.core
    }
}

/// A configuration with what is given.
fn changed(
    mut config: RetryBudgetConfig,
    ratio: Option<&Bound<'_, PyAny>>,
    floor: Option<&Bound<'_, PyAny>>,
) -> PyResult<RetryBudgetConfig> {
    if let Some(ratio) = ratio {
        config.ratio = config::number("ratio", "a number from 0 to 1", ratio)?;
    }
    if let Some(floor) = floor {
        let range = "a number of retries a second from 0 to 1e6";
        config.floor = config::number("floor", range, floor)?;
    }
    Ok(config)
}

impl BeginsAnew for Budget {
    fn begin_anew(&mut self) {
        self.reset();
    }
}

impl TakesBack for Budget {
    fn release(&mut self, right: Right) {
        self.release(right);
    }

    fn count_stray_release(&mut self) {
        self.count_stray_release();
    }
}
