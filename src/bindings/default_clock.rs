//! The clock of everything that was made without one: the system's, unless another
//! one stands in for it, as in tests.
//!
//! Its time goes on from where it is whenever the clock behind it changes, so that
//! what was made before goes on as well: a clock that stands in for it counts from
//! the moment when it began to, and so does the system's when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::clock::{Clock, ManualTime, system_reading};
use super::waiter::Station;
use super::{exit, fork};
use crate::primitives::Time;

// Relaxed, both: whoever reads them while they change reads one of two clocks, and the
// other one goes on from there. What keeps a state takes the larger of two moments.
static IS_REPLACED: AtomicBool = AtomicBool::new(false);
/// By how many nanoseconds the time is ahead of the system's; below zero as it wraps.
static LEAD: AtomicU64 = AtomicU64::new(0);
static REPLACEMENT: Mutex<Option<Arc<Replacement>>> = Mutex::new(None);

/// A clock that stands in for the system's.
pub(crate) struct Replacement {
    /// As it was given.
    object: Py<PyAny>,
    clock: Clock,
    /// What it said when it began.
    from: Time,
    /// What time it was then.
    base: Time,
    /// The latest time that it made it, in nanoseconds.
    latest: AtomicU64,
}

impl Replacement {
    fn now(&self, py: Python<'_>) -> PyResult<Time> {
        let now = self.base.after(self.clock.now(py)?.since(self.from));
        self.latest.fetch_max(now.as_nanos(), Ordering::Relaxed);
        Ok(now)
    }

    /// When that is for the clock itself.
    pub(crate) fn own(&self, time: Time) -> Time {
        if time == Time::MAX { time } else { self.from.after(time.since(self.base)) }
    }
}

#[inline]
pub(crate) fn now(py: Python<'_>) -> PyResult<Time> {
    if is_replaced() { replaced_now(py) } else { Ok(system_now()) }
}

/// The time as long as the clock is the system's.
#[inline]
pub(crate) fn system_now() -> Time {
    let lead = LEAD.load(Ordering::Relaxed);
    Time::from_nanos(system_reading().as_nanos().wrapping_add(lead))
}

#[inline]
pub(crate) fn is_replaced() -> bool {
    IS_REPLACED.load(Ordering::Relaxed)
}

#[cold]
fn replaced_now(py: Python<'_>) -> PyResult<Time> {
    replacement().map_or_else(|| Ok(system_now()), |replacement| replacement.now(py))
}

#[cold]
fn replacement() -> Option<Arc<Replacement>> {
    REPLACEMENT.lock().clone()
}

#[inline]
pub(crate) fn is_manual() -> bool {
    is_replaced() && replacement().is_some_and(|replacement| replacement.clock.is_manual())
}

/// What this clock stands in for, if it does.
pub(crate) fn replaced_by(time: &Arc<ManualTime>) -> Option<Arc<Replacement>> {
    replacement().filter(|replacement| replacement.clock.is_of(time))
}

/// Who keeps to this clock.
pub(crate) fn stations() -> Vec<Arc<dyn Station>> {
    let mut stations = fork::stations();
    stations.retain(|station| station.clock().is_default());
    stations
}

/// The clock that stands in for the system's.
#[pyfunction]
pub(crate) fn default_clock(py: Python<'_>) -> Option<Py<PyAny>> {
    replacement().map(|replacement| replacement.object.clone_ref(py))
}

/// Let a clock stand in for the system's, or the system's be back; return what stood
/// in before.
#[pyfunction]
#[pyo3(signature = (clock, /))]
pub(crate) fn set_default_clock(
    py: Python<'_>,
    clock: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    let next = match clock {
        None => None,
        Some(object) => {
            let clock = Clock::new(Some(object))?;
            let from = clock.now(py)?;
            Some((object.clone().unbind(), clock, from))
        }
    };
    let base = time_so_far(py)?;
    let next = next.map(|(object, clock, from)| {
        Arc::new(Replacement { object, clock, from, base, latest: AtomicU64::new(base.as_nanos()) })
    });
    let previous = {
        let mut replacement = REPLACEMENT.lock();
        if next.is_none() && replacement.is_some() {
            let lead = base.as_nanos().wrapping_sub(system_reading().as_nanos());
            LEAD.store(lead, Ordering::Relaxed);
        }
        IS_REPLACED.store(next.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *replacement, next)
    };
    let mut followed = Ok(());
    for station in stations() {
        followed = followed.and(station.follow(py));
    }
    followed.map(|()| previous.map(|previous| previous.object.clone_ref(py)))
}

/// What time it is; for a clock that fails what it was last.
fn time_so_far(py: Python<'_>) -> PyResult<Time> {
    let Some(replacement) = replacement() else {
        return Ok(system_now());
    };
    match replacement.now(py) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            exit::report(py, error, None);
            Ok(Time::from_nanos(replacement.latest.load(Ordering::Relaxed)))
        }
        now => now,
    }
}
