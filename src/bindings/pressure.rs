use std::time::Duration;

use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::clock::Clock;
use super::config;
use crate::primitives::{LagWindow as Window, Time, Usage};

/// How late an event loop is; see `sluicegate.pressure.loop_lag`.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct LagWindow {
    state: Mutex<Lags>,
    clock: Clock,
}

struct Lags {
    window: Window,
    last: Option<Time>,
}

#[pymethods]
impl LagWindow {
    #[new]
    #[pyo3(signature = (*, clock = None))]
    fn new(clock: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let state = Lags { window: Window::new(), last: None };
        Ok(Self { state: Mutex::new(state), clock: Clock::new(clock)? })
    }

    /// Take a sample: how much later than `interval` seconds after the one before it is.
    #[pyo3(signature = (interval, /))]
    fn sample(&self, py: Python<'_>, interval: f64) -> PyResult<()> {
        let now = self.clock.now(py)?;
        let interval = Duration::try_from_secs_f64(interval).unwrap_or_default();
        let mut state = self.state.lock();
        if let Some(last) = state.last.replace(now) {
            state.window.record(now, now.since(last).saturating_sub(interval));
        }
        Ok(())
    }

    /// Return the lag by `target` seconds.
    #[pyo3(signature = (target, /))]
    fn pressure(&self, py: Python<'_>, target: f64) -> PyResult<f64> {
        let now = self.clock.now(py)?;
        let target = Duration::try_from_secs_f64(target).unwrap_or_default();
        Ok(self.state.lock().window.pressure(now, target))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.clock.traverse(&visit)
    }
}

/// How busy a processor is; see `sluicegate.pressure.cpu`.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct CpuUsage {
    usage: Mutex<Usage>,
    clock: Clock,
}

#[pymethods]
impl CpuUsage {
    #[new]
    #[pyo3(signature = (*, clock = None))]
    fn new(clock: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self { usage: Mutex::new(Usage::new()), clock: Clock::new(clock)? })
    }

    /// Whether it is time to read the counters again.
    fn is_due(&self, py: Python<'_>) -> PyResult<bool> {
        let now = self.clock.now(py)?;
        Ok(self.usage.lock().is_due(now))
    }

    /// Take a reading of what was used and of what there was to use, since any moment.
    #[pyo3(signature = (used, available, /))]
    fn record(&self, py: Python<'_>, used: f64, available: f64) -> PyResult<()> {
        let now = self.clock.now(py)?;
        self.usage.lock().record(now, used, available);
        Ok(())
    }

    /// Return the usage by `target`, a share.
    #[pyo3(signature = (target, /))]
    fn pressure(&self, target: f64) -> f64 {
        self.usage.lock().pressure(target)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.clock.traverse(&visit)
    }
}

/// Check what a pressure is to be 1 at: a number above 0 and at most `most`.
#[pyfunction]
#[pyo3(signature = (value, most, /))]
pub(crate) fn target(value: &Bound<'_, PyAny>, most: f64) -> PyResult<f64> {
    let range = format!("a number above 0 and at most {most}");
    let target = config::number("target", &range, value)?;
    if target > 0.0 && target <= most {
        return Ok(target);
    }
    Err(config::out_of_range("target", &range, value))
}
