use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use super::default_clock::{self, Replacement};
use super::given::Given;
use super::waiter::{self, Station, insist};
use super::{config, exit};
use crate::primitives::Time;

/// Where `now` comes from.
pub(crate) enum Clock {
    /// The operating system's monotonic clock, or what stands in for it.
    Default,
    Manual(Arc<ManualTime>),
    /// Any object with `now()`.
    Custom(Py<PyAny>),
}

impl Clock {
    pub(crate) fn new(value: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(value) = value else {
            return Ok(Self::Default);
        };
        if let Ok(manual) = value.cast::<ManualClock>() {
            return Ok(Self::Manual(manual.get().time.clone()));
        }
        let range = "an object with a method now() that returns seconds, or None";
        match value.getattr(intern!(value.py(), "now")) {
            Ok(now) if now.is_callable() => Ok(Self::Custom(value.clone().unbind())),
            _ => Err(config::wrong_type("clock", range, value)),
        }
    }

    /// Reads the clock; never under a lock, since it may run Python.
    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Time> {
        match self {
            Self::Default => default_clock::now(py),
            Self::Manual(time) => Ok(time.now()),
            Self::Custom(clock) => {
                let _calling = exit::Calling::new(py);
                let now = clock.bind(py).call_method0(intern!(py, "now"))?;
                let seconds: f64 = now.extract()?;
                if seconds.is_finite() {
                    Ok(Time::from_secs_f64(seconds))
                } else {
                    let text = format!("clock.now() must return finite seconds, got {seconds}");
                    Err(PyValueError::new_err(text))
                }
            }
        }
    }

    /// Reads the clock where there is no going back: a clock that fails is reported,
    /// and if it goes on failing time stands still. What is no `Exception`, such as
    /// a `KeyboardInterrupt`, is returned beside the reading.
    pub(crate) fn now_or_stand_still(&self, py: Python<'_>) -> (Time, PyResult<()>) {
        if self.is_system() {
            return (default_clock::system_now(), Ok(()));
        }
        let (now, error) = insist(py, || self.now(py));
        let error = match error {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                exit::report(py, error, None);
                Ok(())
            }
            error => error,
        };
        (now.unwrap_or_default(), error)
    }

    pub(crate) const fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }

    /// Whether it is the system's at this moment.
    #[inline]
    pub(crate) fn is_system(&self) -> bool {
        self.is_default() && !default_clock::is_replaced()
    }

    /// Whether it is moved by hand at this moment.
    #[inline]
    pub(crate) fn is_manual(&self) -> bool {
        match self {
            Self::Default => default_clock::is_manual(),
            Self::Manual(_) => true,
            Self::Custom(_) => false,
        }
    }

    pub(crate) fn is_of(&self, time: &Arc<ManualTime>) -> bool {
        matches!(self, Self::Manual(own) if Arc::ptr_eq(own, time))
    }

    /// Whether moments on both can be compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Default, Self::Default) => true,
            (Self::Manual(time), other) => other.is_of(time),
            (Self::Custom(one), Self::Custom(other)) => one.is(other),
            _ => false,
        }
    }

    pub(crate) fn register(&self, station: &Weak<dyn Station>) {
        if let Self::Manual(time) = self {
            let mut stations = time.stations.lock();
            stations.retain(|station| station.strong_count() > 0);
            stations.push(station.clone());
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Custom(clock) => visit.call(clock),
            _ => Ok(()),
        }
    }
}

/// The reading of the system's monotonic clock, without the arithmetic of `Instant`,
/// which costs more than the reading.
#[cfg(unix)]
#[inline]
#[allow(clippy::cast_sign_loss)] // a monotonic clock counts from 0 up
pub(crate) fn system_reading() -> Time {
    let mut reading = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours. It fails only for an unknown clock,
    // and this one is known everywhere.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut reading) };
    Time::from_nanos(reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64)
}

#[cfg(not(unix))]
pub(crate) fn system_reading() -> Time {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    Time::ZERO.after(START.get_or_init(std::time::Instant::now).elapsed())
}

pub(crate) struct ManualTime {
    nanos: AtomicU64,
    stations: Mutex<Vec<Weak<dyn Station>>>,
}

impl ManualTime {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Who keeps to it: those that were made with it, and while it stands in for the
    /// default clock those that were made without one.
    fn stations(self: &Arc<Self>) -> Vec<Kept> {
        let own: Vec<_> = self.stations.lock().iter().filter_map(Weak::upgrade).collect();
        let mut kept: Vec<_> =
            own.into_iter().map(|station| Kept { station, in_place_of: None }).collect();
        if let Some(replacement) = default_clock::replaced_by(self) {
            kept.extend(default_clock::stations().into_iter().map(|station| {
                let in_place_of = Some(replacement.clone());
                Kept { station, in_place_of }
            }));
        }
        kept
    }

    /// Goes on to the next expiry, or to the target. What is overdue and stays so does
    /// not hold it up.
    fn step(&self, py: Python<'_>, stations: &[Kept], target: Time) -> PyResult<()> {
        let now = self.now();
        let next =
            { stations.iter() }.filter_map(Kept::next_expiry).filter(|&next| next > now).min();
        let at = next.map_or(target, |next| next.min(target));
        self.nanos.fetch_max(at.as_nanos(), Ordering::Relaxed);
        sweep(py, stations)
    }
}

/// A station that keeps to a manual clock.
struct Kept {
    station: Arc<dyn Station>,
    in_place_of: Option<Arc<Replacement>>,
}

impl Kept {
    /// As the clock counts.
    fn next_expiry(&self) -> Option<Time> {
        let next = self.station.next_expiry()?;
        Some(self.in_place_of.as_ref().map_or(next, |replacement| replacement.own(next)))
    }
}

/// Serves all; the first error is returned.
fn sweep(py: Python<'_>, kept: &[Kept]) -> PyResult<()> {
    let mut first_error = Ok(());
    for Kept { station, .. } in kept {
        first_error = first_error.and(station.sweep(py, None));
    }
    first_error
}

/// A clock that stands still until it is told to move; see `sluicegate.ManualClock`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct ManualClock {
    time: Arc<ManualTime>,
}

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (start = Given::NOTHING), text_signature = "(start=0.0)")]
    fn new(start: Given<'_, '_>) -> PyResult<Self> {
        let seconds = start.get().map_or(Ok(0.0), |start| span("start", start))?;
        let nanos = AtomicU64::new(Time::from_secs_f64(seconds).as_nanos());
        Ok(Self { time: Arc::new(ManualTime { nanos, stations: Mutex::default() }) })
    }

    /// Return the seconds that it was advanced to.
    fn now(&self) -> f64 {
        self.time.now().as_secs_f64()
    }

    /// Move on, step by step through every expiry that falls due on the way.
    #[pyo3(signature = (seconds, /))]
    fn advance(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = Time::from_nanos(self.target(seconds)?);
        let stations = self.time.stations();
        let mut first_error = sweep(py, &stations);
        while self.time.now() < target {
            first_error = first_error.and(self.time.step(py, &stations, target));
        }
        first_error
    }

    /// The reading in so many seconds, in nanoseconds.
    #[pyo3(name = "_target", signature = (seconds, /))]
    fn target(&self, seconds: &Bound<'_, PyAny>) -> PyResult<u64> {
        let span = Time::from_secs_f64(span("seconds", seconds)?);
        Ok(self.time.now().as_nanos().saturating_add(span.as_nanos()))
    }

    /// Steps to the next expiry, but not beyond the target; whether that is reached.
    #[pyo3(signature = (target, /))]
    fn _step(&self, py: Python<'_>, target: u64) -> PyResult<bool> {
        let target = Time::from_nanos(target);
        self.time.step(py, &self.time.stations(), target)?;
        Ok(self.time.now() >= target)
    }

    /// Whether somebody was answered on this clock who has not run since, anywhere or here.
    #[pyo3(signature = (*, here))]
    fn _has_unclaimed(&self, py: Python<'_>, here: bool) -> PyResult<bool> {
        let home = if here { Some(waiter::home(py)?) } else { None };
        Ok(self.time.stations().iter().any(|kept| kept.station.has_unclaimed(home)))
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({})", self.now())
    }
}

fn span(parameter: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    const RANGE: &str = "a finite number of seconds, 0 or more";
    let seconds = config::number(parameter, RANGE, value)?;
    if seconds.is_finite() && seconds >= 0.0 {
        Ok(seconds)
    } else {
        Err(PyValueError::new_err(format!("{parameter} must be {RANGE}, got {seconds}")))
    }
}
