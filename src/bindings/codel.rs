use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::clock::Clock;
use super::config;
use super::given::Given;
use super::locked::{BeginsAnew, Locked};
use crate::primitives::Codel as Controller;

/// The controlled-delay algorithm of folly; see `sluicegate.classic.Codel`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct Codel {
    core: Locked<Controller>,
}

impl BeginsAnew for Controller {
    /// What it has seen is as true in the child.
    fn begin_anew(&mut self) {}
}

#[pymethods]
impl Codel {
    #[new]
    #[pyo3(
        signature = (*, target = Given::NOTHING, interval = Given::NOTHING, clock = None),
        text_signature = "(*, target=0.005, interval=0.1, clock=None)"
    )]
    fn new(
        py: Python<'_>,
        target: Given<'_, '_>,
        interval: Given<'_, '_>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        const SECONDS: &str = "a number of seconds above 0 and at most 3600";
        let span = |parameter, value: Given<'_, '_>, default| {
            value.get().map_or(Ok(default), |value| config::seconds(parameter, SECONDS, value))
        };
        let target = span("target", target, Controller::TARGET)?;
        let interval = span("interval", interval, Controller::INTERVAL)?;
        let clock = Clock::new(clock)?;
        let controller = Controller::new(clock.now(py)?, target, interval)?;
        let name = pyo3::types::PyString::new(py, "codel").unbind();
        Ok(Self { core: Locked::new(controller, name, clock) })
    }

    /// Say whether an item that is dequeued now is to be rejected.
    #[pyo3(signature = (delay, /))]
    fn overloaded(&self, py: Python<'_>, delay: &Bound<'_, PyAny>) -> PyResult<bool> {
        let delay = config::seconds("delay", "a number of seconds from 0 to 3600", delay)?;
        self.core.with_time(py, |controller, now| controller.is_overloaded(now, delay))
    }

    /// The smallest delay of this interval by twice the target, in percent, at most
    /// 100.
    #[getter]
    fn load(&self) -> f64 {
        self.core.with(|controller| controller.load())
    }

    /// The target delay, in seconds.
    #[getter]
    fn target(&self) -> f64 {
        self.core.with(|controller| controller.target().as_secs_f64())
    }

    /// Over how many seconds the smallest delay is taken.
    #[getter]
    fn interval(&self) -> f64 {
        self.core.with(|controller| controller.interval().as_secs_f64())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }
}
