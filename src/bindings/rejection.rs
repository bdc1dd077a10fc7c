use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::given::Given;
use super::{config, imports};
use crate::primitives::{Criticality, Reason, Rejection as Refusal};

/// A refusal, as a falsy value: why, when to come back, and how full it was.
#[pyclass(frozen, module = "sluicegate")]
pub(crate) struct Rejection {
    gate: Py<PyString>,
    refusal: Refusal,
}

impl Rejection {
    pub(crate) fn new(gate: Py<PyString>, refusal: Refusal) -> Self {
        Self { gate, refusal }
    }
}

const CRITICALITY: &str = "a Criticality, or its value from 0 to 3";

/// The values of a rejection, for pickling: the arguments of its constructor.
type Values<'py> = (Py<PyString>, &'static str, Option<f64>, u8, f64, u64, usize);

#[pymethods]
impl Rejection {
    #[new]
    #[pyo3(
        signature = (gate, reason, retry_after = None, criticality = Given::NOTHING, limit = 0.0, in_flight = 0, waiting = 0),
        text_signature = "(gate, reason, retry_after=None, criticality=2, limit=0.0, in_flight=0, waiting=0)"
    )]
    fn construct(
        gate: Py<PyString>,
        reason: &str,
        retry_after: Option<f64>,
        criticality: Given<'_, '_>,
        limit: f64,
        in_flight: u64,
        waiting: usize,
    ) -> PyResult<Self> {
        let reason = { Reason::ALL.into_iter().find(|known| known.as_str() == reason) }
            .ok_or_else(|| {
                PyValueError::new_err(format!("reason must be a Reason, got {reason:?}"))
            })?;
        let criticality = match criticality.get() {
            None => Criticality::default(),
            Some(value) => {
                let index: usize = config::integer("criticality", CRITICALITY, value)?;
                *Criticality::ALL.get(index).ok_or_else(|| {
                    PyValueError::new_err(format!("criticality must be {CRITICALITY}, got {index}"))
                })?
            }
        };
        let retry_after = match retry_after {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| {
                let range = "a number of seconds, 0 or more, or None";
                PyValueError::new_err(format!("retry_after must be {range}, got {seconds}"))
            })?),
        };
        let refusal = Refusal { reason, retry_after, criticality, limit, in_flight, waiting };
        Ok(Self { gate, refusal })
    }

    /// The name of the gate or limiter that refused.
    #[getter]
    fn gate(&self, py: Python<'_>) -> Py<PyString> {
        self.gate.clone_ref(py)
    }

    /// Why.
    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        imports::reason(py, self.refusal.reason)
    }

    /// Seconds after which it is worth coming back, if that is known.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.refusal.retry_after.map(|span| span.as_secs_f64())
    }

    /// The criticality of the work that was refused.
    #[getter]
    fn criticality<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        imports::criticality(py, self.refusal.criticality)
    }

    /// The HTTP status that says so: 429 over a rate or quota, 503 for all else.
    #[getter]
    fn status(&self) -> u16 {
        if self.refusal.reason == Reason::Rate { 429 } else { 503 }
    }

    /// The limit at that moment.
    #[getter]
    fn limit(&self) -> f64 {
        self.refusal.limit
    }

    /// The cost in flight at that moment.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.refusal.in_flight
    }

    /// How many waited in line at that moment.
    #[getter]
    fn waiting(&self) -> usize {
        self.refusal.waiting
    }

    fn __bool__(&self) -> bool {
        false
    }

    /// `with limiter.try_acquire():` says why it did not run.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(PyErr::from_value(imports::new_rejected(slf)?))
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyAny>) {}

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            self.refusal == other.refusal
                && self.gate.bind(py).to_cow().ok() == other.gate.bind(py).to_cow().ok()
        })
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        (&self.gate, self.refusal.reason.as_str()).into_pyobject(py)?.hash()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, Values<'py>) {
        let Self { gate, refusal } = slf.get();
        let values = (
            gate.clone_ref(slf.py()),
            refusal.reason.as_str(),
            refusal.retry_after.map(|span| span.as_secs_f64()),
            refusal.criticality as u8,
            refusal.limit,
            refusal.in_flight,
            refusal.waiting,
        );
        (slf.get_type(), values)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Refusal { reason, limit, in_flight, waiting, .. } = self.refusal;
        let gate = self.gate.bind(py).repr()?;
        Ok(format!(
            "Rejection({gate}, {:?}, limit={limit}, in_flight={in_flight}, waiting={waiting})",
            reason.as_str()
        ))
    }
}
