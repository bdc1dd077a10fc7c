use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::clock::Clock;
use super::given::Given;
use super::locked::{BeginsAnew, Locked};
use super::names::Names;
use super::permit::outcome_from;
use super::rejection::{Kind, Rejection};
use super::{config, exit, imports, kill_switch, scope};
use crate::primitives::{
    AdaptiveThrottle as Throttle, Criticality, Outcome, Reason, Rejection as Refusal,
    ThrottleConfig,
};

/// Client-side throttling; see `sluicegate.AdaptiveThrottle`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct AdaptiveThrottle {
    core: Locked<Throttle>,
    /// Whether everything is allowed, and counted.
    is_disabled: bool,
}

static NAMES: Names = Names::new("throttle");

#[pymethods]
impl AdaptiveThrottle {
    #[new]
    #[pyo3(
        signature = (*, k = Given::NOTHING, window = Given::NOTHING, max_rejection = Given::NOTHING, min_requests = Given::NOTHING, name = None, clock = None),
        text_signature = "(*, k=2.0, window=30.0, max_rejection=0.9, min_requests=10, name=None, clock=None)"
    )]
    fn new(
        py: Python<'_>,
        k: Given<'_, '_>,
        window: Given<'_, '_>,
        max_rejection: Given<'_, '_>,
        min_requests: Given<'_, '_>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (k, max_rejection, min_requests) = (k.get(), max_rejection.get(), min_requests.get());
        let mut config = changed(ThrottleConfig::default(), k, max_rejection, min_requests)?;
        if let Some(window) = window.get() {
            config.window = config::window(window)?;
        }
        let primitive = Throttle::new(config)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        let core = Locked::new(primitive, name, clock);
        Ok(Self { core, is_disabled: kill_switch::is_on() })
    }

    /// Whether to send a request now; it counts as one either way.
    #[pyo3(signature = (criticality = None, /))]
    fn allow(&self, py: Python<'_>, criticality: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let criticality = config::criticality(criticality)?;
        let draw = self.draw();
        self.core.with_time(py, |throttle, now| throttle.allow(now, criticality, draw))
    }

    /// The same with a given draw, for tests.
    #[pyo3(signature = (criticality, draw, /))]
    fn _allow(
        &self,
        py: Python<'_>,
        criticality: Option<&Bound<'_, PyAny>>,
        draw: f64,
    ) -> PyResult<bool> {
        let criticality = config::criticality(criticality)?;
        self.core.with_time(py, |throttle, now| throttle.allow(now, criticality, draw))
    }

    /// The same for guarded calls: raises `Rejected`.
    fn _admit(&self, py: Python<'_>, criticality: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let criticality = config::criticality(criticality)?;
        let draw = self.draw();
        let in_flight = self.core.with_time(py, |throttle, now| {
            (!throttle.allow(now, criticality, draw)).then(|| throttle.in_flight())
        })?;
        match in_flight {
            None => Ok(()),
            Some(in_flight) => Err(self.rejected(py, criticality, in_flight)),
        }
    }

    /// Say how a request that was allowed ended; whatever is not OVERLOAD is an accept.
    #[pyo3(signature = (outcome, /))]
    fn record(&self, py: Python<'_>, outcome: &Bound<'_, PyAny>) -> PyResult<()> {
        self.record_outcome(py, outcome_from(outcome)?)
    }

    /// Say that a request that was allowed was not sent after all.
    fn withdraw(&self, py: Python<'_>) -> PyResult<()> {
        self.core.with_time_surely(py, Throttle::withdraw).1
    }

    /// Records what `classify` says of a result or an exception. If it fails, or says
    /// what is no outcome, that is reported, and says nothing about the backend.
    fn _record_as(
        &self,
        py: Python<'_>,
        classify: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _calling = exit::Calling::new(py);
        let outcome = classify.call1((value,)).and_then(|outcome| outcome_from(&outcome));
        let error = match outcome {
            Ok(outcome) => {
                let (outcome, told) = scope::outcome_here(py, outcome);
                return told.and(self.record_outcome(py, outcome));
            }
            Err(error) if error.is_instance_of::<PyException>(py) => {
                exit::report(py, error, Some(classify));
                Ok(())
            }
            Err(error) => Err(error),
        };
        error.and(self.record_outcome(py, Outcome::Ignored))
    }

    /// How likely the next request is to be refused, if it is CRITICAL; from 0 to 1.
    #[getter]
    fn rejection_probability(&self, py: Python<'_>) -> PyResult<f64> {
        let class = Criticality::default();
        self.core.with_time(py, |throttle, now| throttle.rejection_probability(now, class))
    }

    /// Change what is given, from now on and for what was counted.
    #[pyo3(signature = (*, k = None, max_rejection = None, min_requests = None))]
    fn update(
        &self,
        k: Option<&Bound<'_, PyAny>>,
        max_rejection: Option<&Bound<'_, PyAny>>,
        min_requests: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // Converted before the lock, since that may run Python: what is left out is
        // taken over under it.
        let given = changed(ThrottleConfig::default(), k, max_rejection, min_requests)?;
        self.core.with(|throttle| {
            let old = *throttle.config();
            throttle.update(
                k.map_or(old.k, |_| given.k),
                max_rejection.map_or(old.max_rejection, |_| given.max_rejection),
                min_requests.map_or(old.min_requests, |_| given.min_requests),
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
        let (config, snapshot) = self
            .core
            .with_time(py, |throttle, now| (*throttle.config(), throttle.snapshot(now)))?;
        let values = PyDict::new(py);
        values.set_item("k", config.k)?;
        values.set_item("window", config.window.as_secs_f64())?;
        values.set_item("max_rejection", config.max_rejection)?;
        values.set_item("min_requests", config.min_requests)?;
        values.set_item("requests", snapshot.requests)?;
        values.set_item("accepts", snapshot.accepts)?;
        values.set_item("in_flight", snapshot.in_flight)?;
        let (probabilities, rejected) = (PyDict::new(py), PyDict::new(py));
        for class in Criticality::ALL {
            let name = imports::criticality(py, class)?;
            let index = class.index();
            probabilities.set_item(&name, snapshot.rejection_probability[index])?;
            if snapshot.rejected[index] > 0 {
                rejected.set_item(name, snapshot.rejected[index])?;
            }
        }
        values.set_item("rejection_probability", probabilities)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", rejected)?;
        values.set_item("outcomes", imports::outcomes(py, &snapshot.outcomes)?)?;
        Ok(values)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }
}

impl AdaptiveThrottle {
    /// Nothing is refused by a draw of 1.
    fn draw(&self) -> f64 {
        if self.is_disabled { 1.0 } else { fastrand::f64() }
    }

    fn record_outcome(&self, py: Python<'_>, outcome: Outcome) -> PyResult<()> {
        self.core.with_time_surely(py, |throttle, now| throttle.record(now, outcome)).1
    }

    #[cold]
    fn rejected(&self, py: Python<'_>, criticality: Criticality, in_flight: u64) -> PyErr {
        let refusal = Refusal { in_flight, ..Refusal::new(Reason::Throttled, criticality) };
        let name = self.core.name().clone_ref(py);
        Rejection::new(Kind::Throttle, name, refusal).into_error(py)
    }
}

/// A configuration with what is given.
fn changed(
    mut config: ThrottleConfig,
    k: Option<&Bound<'_, PyAny>>,
    max_rejection: Option<&Bound<'_, PyAny>>,
    min_requests: Option<&Bound<'_, PyAny>>,
) -> PyResult<ThrottleConfig> {
    if let Some(k) = k {
        config.k = config::number("k", "a number from 1 to 1e6", k)?;
    }
    if let Some(max_rejection) = max_rejection {
        config.max_rejection =
            config::number("max_rejection", "a number from 0 to 1", max_rejection)?;
    }
    if let Some(min_requests) = min_requests {
        let range = "an integer from 0 to 1e9";
        config.min_requests = config::integer("min_requests", range, min_requests)?;
    }
    Ok(config)
}

impl BeginsAnew for Throttle {
    fn begin_anew(&mut self) {
        self.reset();
    }
}
