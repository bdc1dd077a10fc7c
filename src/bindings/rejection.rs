use std::fmt::Write;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::given::Given;
use super::rejection_text::describe;
use super::{config, imports};
use crate::primitives::{Criticality, Reason, Rejection as Refusal};

/// What it is that rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gate,
    Limiter,
    Queue,
    Bucket,
    Throttle,
    RetryBudget,
    Destination,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Gate,
        Self::Limiter,
        Self::Queue,
        Self::Bucket,
        Self::Throttle,
        Self::RetryBudget,
        Self::Destination,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Limiter => "limiter",
            Self::Queue => "queue",
            Self::Bucket => "bucket",
            Self::Throttle => "throttle",
            Self::RetryBudget => "retry budget",
            Self::Destination => "destination",
        }
    }
}

/// A refusal, as a falsy value: why, when to come back, and how full it was.
#[pyclass(frozen, module = "sluicegate")]
pub(crate) struct Rejection {
    kind: Kind,
    gate: Py<PyString>,
    operation: Option<Py<PyString>>,
    refusal: Refusal,
}

impl Rejection {
    #[inline]
    pub(crate) const fn new(kind: Kind, gate: Py<PyString>, refusal: Refusal) -> Self {
        Self { kind, gate, operation: None, refusal }
    }

    #[inline]
    pub(crate) fn with_operation(self, operation: Option<Py<PyString>>) -> Self {
        Self { operation, ..self }
    }

    /// What is raised for it.
    pub(crate) fn into_error(self, py: Python<'_>) -> PyErr {
        Bound::new(py, self).map_or_else(|error| error, |rejection| error(&rejection))
    }
}

#[inline]
fn error(rejection: &Bound<'_, Rejection>) -> PyErr {
    let reason = rejection.get().refusal.reason;
    imports::new_rejected(rejection, reason).map_or_else(|error| error, PyErr::from_value)
}

const CRITICALITY: &str = "a Criticality, or its value from 0 to 3";
const SECONDS: &str = "a number of seconds, 0 or more, or None";

/// The values of a rejection, for pickling: the arguments of its constructor.
type Values<'py> = (
    Py<PyString>,
    &'static str,
    Option<f64>,
    u8,
    f64,
    u64,
    usize,
    Option<usize>,
    Option<Py<PyString>>,
    &'static str,
    Option<u8>,
    Option<f64>,
);

#[pymethods]
impl Rejection {
    #[new]
    #[pyo3(
        signature = (gate, reason, retry_after = None, criticality = Given::NOTHING, limit = 0.0, in_flight = 0, waiting = 0, max_waiting = None, operation = None, kind = "gate", threshold = None, time_left = None),
        text_signature = "(gate, reason, retry_after=None, criticality=2, limit=0.0, in_flight=0, waiting=0, max_waiting=None, operation=None, kind=\"gate\", threshold=None, time_left=None)"
    )]
    #[allow(clippy::too_many_arguments)] // what a rejection says
    fn construct(
        gate: Py<PyString>,
        reason: &str,
        retry_after: Option<f64>,
        criticality: Given<'_, '_>,
        limit: f64,
        in_flight: u64,
        waiting: usize,
        max_waiting: Option<usize>,
        operation: Option<&Bound<'_, PyAny>>,
        kind: &str,
        threshold: Option<&Bound<'_, PyAny>>,
        time_left: Option<f64>,
    ) -> PyResult<Self> {
        let reason = { Reason::ALL.into_iter().find(|known| known.as_str() == reason) }
            .ok_or_else(|| {
                PyValueError::new_err(format!("reason must be a Reason, got {reason:?}"))
            })?;
        let kind =
            { Kind::ALL.into_iter().find(|known| known.as_str() == kind) }.ok_or_else(|| {
                let known = Kind::ALL.map(Kind::as_str).join(", ");
                PyValueError::new_err(format!("kind must be one of {known}, got {kind:?}"))
            })?;
        if limit.is_nan() {
            return Err(PyValueError::new_err(format!("limit must be a number, got {limit}")));
        }
        let criticality = criticality.get().map(|value| class("criticality", value)).transpose()?;
        let refusal = Refusal {
            reason,
            retry_after: span("retry_after", retry_after)?,
            criticality: criticality.unwrap_or_default(),
            limit,
            in_flight,
            waiting,
            max_waiting,
            threshold: threshold.map(|value| class("threshold", value)).transpose()?,
            time_left: span("time_left", time_left)?,
        };
        let operation = config::text("operation", operation)?;
        Ok(Self::new(kind, gate, refusal).with_operation(operation))
    }

    /// What rejected.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind.as_str()
    }

    /// The name of what rejected.
    #[getter]
    fn gate(&self, py: Python<'_>) -> Py<PyString> {
        self.gate.clone_ref(py)
    }

    /// What kind of work was rejected, if it was named.
    #[getter]
    fn operation(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.operation.as_ref().map(|name| name.clone_ref(py))
    }

    /// Why.
    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        imports::reason(py, self.refusal.reason)
    }

    /// Seconds after which it is worth coming back, if that is known.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        seconds(self.refusal.retry_after)
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

    /// How many may wait in line, if that is bounded.
    #[getter]
    fn max_waiting(&self) -> Option<usize> {
        self.refusal.max_waiting
    }

    /// The least critical work that was admitted, if that is why.
    #[getter]
    fn threshold<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.refusal.threshold.map(|class| imports::criticality(py, class)).transpose()
    }

    /// Seconds that were left of its deadline, if that is why.
    #[getter]
    fn time_left(&self) -> Option<f64> {
        seconds(self.refusal.time_left)
    }

    fn __bool__(&self) -> bool {
        false
    }

    /// `with limiter.try_acquire():` says why it did not run.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(error(slf))
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyAny>) {}

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        Ok(self.kind == other.kind
            && self.refusal == other.refusal
            && is_equal(py, &self.gate, &other.gate)?
            && match (&self.operation, &other.operation) {
                (None, None) => true,
                (Some(one), Some(other)) => is_equal(py, one, other)?,
                _ => false,
            })
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        (&self.gate, self.refusal.reason.as_str()).into_pyobject(py)?.hash()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, Values<'py>) {
        let Self { kind, gate, operation, refusal } = slf.get();
        let py = slf.py();
        let values = (
            gate.clone_ref(py),
            refusal.reason.as_str(),
            seconds(refusal.retry_after),
            refusal.criticality as u8,
            refusal.limit,
            refusal.in_flight,
            refusal.waiting,
            refusal.max_waiting,
            operation.as_ref().map(|name| name.clone_ref(py)),
            kind.as_str(),
            refusal.threshold.map(|class| class as u8),
            seconds(refusal.time_left),
        );
        (slf.get_type(), values)
    }

    /// In one line: what rejected what, why, and when to come back.
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        let kind = self.kind.as_str();
        let gate = quoted(self.gate.bind(py))?;
        let criticality = self.refusal.criticality.name();
        let work = match &self.operation {
            Some(operation) => quoted(operation.bind(py))?,
            None => "work".into(),
        };
        let why = describe(self.kind, &self.refusal);
        Ok(format!("{kind} {gate} rejected {criticality} {work}: {why}"))
    }

    /// What makes the same one, without what is as by default.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let refusal = &self.refusal;
        let mut text = format!("Rejection({}", repr(self.gate.bind(py))?);
        let mut add = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {name}{value}");
        };
        add("", format!("'{}'", refusal.reason.as_str()));
        if let Some(span) = refusal.retry_after {
            add("retry_after=", format!("{:?}", span.as_secs_f64()));
        }
        if refusal.criticality != Criticality::default() {
            add("criticality=", (refusal.criticality as u8).to_string());
        }
        add("limit=", refusal.limit.to_string());
        add("in_flight=", refusal.in_flight.to_string());
        add("waiting=", refusal.waiting.to_string());
        if let Some(most) = refusal.max_waiting {
            add("max_waiting=", most.to_string());
        }
        if let Some(operation) = &self.operation {
            add("operation=", repr(operation.bind(py))?);
        }
        if self.kind != Kind::Gate {
            add("kind=", format!("'{}'", self.kind.as_str()));
        }
        if let Some(class) = refusal.threshold {
            add("threshold=", (class as u8).to_string());
        }
        if let Some(span) = refusal.time_left {
            add("time_left=", format!("{:?}", span.as_secs_f64()));
        }
        text.push(')');
        Ok(text)
    }
}

fn is_equal(py: Python<'_>, one: &Py<PyString>, other: &Py<PyString>) -> PyResult<bool> {
    PyAnyMethods::eq(one.bind(py).as_any(), other)
}

fn class(parameter: &str, value: &Bound<'_, PyAny>) -> PyResult<Criticality> {
    let index: usize = config::integer(parameter, CRITICALITY, value)?;
    Criticality::ALL.get(index).copied().ok_or_else(|| {
        PyValueError::new_err(format!("{parameter} must be {CRITICALITY}, got {index}"))
    })
}

fn span(parameter: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| PyValueError::new_err(format!("{parameter} must be {SECONDS}, got {seconds}")))
}

fn seconds(span: Option<Duration>) -> Option<f64> {
    span.map(|span| span.as_secs_f64())
}

fn repr(text: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(text.repr()?.to_string_lossy().into_owned())
}

/// A name in a text of one line, and not of a megabyte.
fn quoted(name: &Bound<'_, PyString>) -> PyResult<String> {
    repr(&PyString::new(name.py(), &config::operation_text(name)))
}
