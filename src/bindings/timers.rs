use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use super::waiter::{LOOK_UP, Station, home_of, insist, is_closed};
use super::{exit, imports};
use crate::primitives::Time;

const SHORTEST: Duration = Duration::from_millis(1);

/// One timer for each event loop that has waiters at one object. Each serves
/// everybody, so that a loop that is blocked or gone keeps nobody waiting.
pub(crate) struct Timers {
    station: Weak<dyn Station>,
    armed: Mutex<Vec<Armed>>,
    /// When the last of them fires, in nanoseconds; 0 if there is none. Relaxed: a
    /// hint that saves the lock, and what is due later than that is nobody's yet.
    latest: AtomicU64,
    /// Tells these timers from those of all other objects.
    id: u64,
    /// How many loops are no longer kept a timer for. Relaxed: whoever finds it
    /// unchanged has looked a moment ago.
    removals: AtomicU64,
}

struct Armed {
    event_loop: Py<PyAny>,
    /// When it fires; [`Time::MAX`] if it is not set.
    at: Time,
    handle: Option<Py<PyAny>>,
}

impl Timers {
    pub(crate) fn new(station: Weak<impl Station + 'static>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            station,
            armed: Mutex::default(),
            latest: AtomicU64::new(0),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            removals: AtomicU64::new(0),
        }
    }

    /// Another one as soon as a loop is no longer kept a timer for.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.id, self.removals.load(Ordering::Relaxed))
    }

    /// Keeps a timer for a loop from now on, for as long as it has waiters.
    pub(crate) fn watch(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let is_known = {
            let armed = self.armed.lock();
            armed.iter().any(|timer| timer.event_loop.is(event_loop))
        };
        if is_known {
            return Ok(());
        }
        let forgotten = self.forget_the_closed(event_loop.py());
        self.forget_the_idle();
        let event_loop = event_loop.clone().unbind();
        let mut armed = self.armed.lock();
        armed.push(Armed { event_loop, at: Time::MAX, handle: None });
        self.publish(&armed);
        forgotten
    }

    /// Whether no timer would fire after `due`.
    #[inline]
    pub(crate) fn are_set_for(&self, due: Time) -> bool {
        due == Time::MAX || due.as_nanos() >= self.latest.load(Ordering::Relaxed)
    }

    /// Sets every timer that would fire after `due`.
    pub(crate) fn check(&self, py: Python<'_>, due: Time) -> PyResult<()> {
        if self.are_set_for(due) {
            return Ok(());
        }
        let mut late = Vec::new();
        {
            let mut armed = self.armed.lock();
            for timer in armed.iter_mut().filter(|timer| timer.at > due) {
                timer.at = due;
                late.push(timer.event_loop.clone_ref(py));
            }
            self.publish(&armed);
        }
        // All are set, whatever happens to one of them.
        let mut result = Ok(());
        for event_loop in late {
            let set = self.set(event_loop.bind(py), due);
            result = result.and(set);
        }
        result
    }

    /// Sets all anew, whatever they are set for: the clock has changed.
    pub(crate) fn reset(&self, py: Python<'_>, due: Time) -> PyResult<()> {
        // Nobody who looked before may rely on it.
        self.removals.fetch_add(1, Ordering::Relaxed);
        {
            let mut armed = self.armed.lock();
            armed.iter_mut().for_each(|timer| timer.at = Time::MAX);
            self.publish(&armed);
        }
        self.check(py, due)
    }

    /// Takes note that the timer of a loop has fired, on that loop.
    pub(crate) fn unset(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let handle = {
            let mut armed = self.armed.lock();
            let timer = armed.iter_mut().find(|timer| timer.event_loop.is(event_loop));
            let handle = timer.and_then(|timer| {
                timer.at = Time::MAX;
                timer.handle.take()
            });
            self.publish(&armed);
            handle
        };
        cancel(event_loop.py(), handle)
    }

    /// Keeps no timer for a loop any more; called on that loop.
    pub(crate) fn unwatch(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let forgotten = self.forget(event_loop);
        cancel(event_loop.py(), forgotten.and_then(|timer| timer.handle))
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(armed) = self.armed.try_lock() else {
            return Ok(());
        };
        armed.iter().try_for_each(|timer| {
            visit.call(&timer.event_loop)?;
            visit.call(&timer.handle)
        })
    }

    pub(crate) fn clear(&self) {
        self.removals.fetch_add(1, Ordering::Relaxed);
        let armed = std::mem::take(&mut *self.armed.lock());
        drop(armed);
    }

    /// The same in the child after a fork: the loops are the parent's, and what
    /// they refer to must not be collected here.
    pub(crate) fn forget_all(&self) {
        self.removals.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(std::mem::take(&mut *self.armed.lock()));
    }

    /// Sets the timer of one loop, which is noted already as due then.
    fn set(&self, event_loop: &Bound<'_, PyAny>, due: Time) -> PyResult<()> {
        let py = event_loop.py();
        let Some(station) = self.station.upgrade() else {
            return Ok(());
        };
        let sweep =
            Sweep { station: self.station.clone(), event_loop: event_loop.clone().unbind() };
        let sweep = Bound::new(py, sweep)?;
        let _calling = exit::Calling::new(py);
        let is_here = imports::is_running_here(event_loop)?;
        // Set twice it fires twice, and finds nothing to do the second time.
        let (set, error) = insist(py, || {
            let clock = station.clock();
            let call = if is_here {
                let (now, interrupted) = clock.now_or_stand_still(py);
                interrupted?;
                let mut delay = due.since(now);
                if !clock.is_system() {
                    // Its seconds may not be the loop's.
                    delay = delay.clamp(SHORTEST, LOOK_UP);
                }
                let delay = delay.as_secs_f64();
                event_loop.call_method1(intern!(py, "call_later"), (delay, &sweep))
            } else {
                // Only a loop itself may set its timer: there the sweep does.
                event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (&sweep,))
            };
            match call {
                Ok(handle) => Ok(Set::Calls(is_here.then_some(handle))),
                // It has nobody left who could be answered.
                Err(_) if is_closed(event_loop)? => Ok(Set::Closed),
                Err(error) => Err(error),
            }
        });
        let replaced = match set {
            Some(Set::Calls(handle)) => cancel(py, self.put(event_loop, handle)),
            Some(Set::Closed) => {
                drop(self.forget(event_loop));
                Ok(())
            }
            // It is tried again the next time that something falls due earlier.
            None => {
                self.note_unset(event_loop);
                Ok(())
            }
        };
        error.and(replaced)
    }

    fn note_unset(&self, event_loop: &Bound<'_, PyAny>) {
        let mut armed = self.armed.lock();
        if let Some(timer) = armed.iter_mut().find(|timer| timer.event_loop.is(event_loop)) {
            timer.at = Time::MAX;
        }
        self.publish(&armed);
    }

    fn publish(&self, armed: &[Armed]) {
        let latest = armed.iter().map(|timer| timer.at.as_nanos()).max();
        self.latest.store(latest.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes the handle of a timer; what it replaces is to be cancelled, on its
    /// own loop.
    fn put(
        &self,
        event_loop: &Bound<'_, PyAny>,
        handle: Option<Bound<'_, PyAny>>,
    ) -> Option<Py<PyAny>> {
        let handle = handle?.unbind();
        let mut armed = self.armed.lock();
        match armed.iter_mut().find(|timer| timer.event_loop.is(event_loop)) {
            Some(timer) => timer.handle.replace(handle),
            None => Some(handle),
        }
    }

    fn forget(&self, event_loop: &Bound<'_, PyAny>) -> Option<Armed> {
        self.removals.fetch_add(1, Ordering::Relaxed);
        let mut armed = self.armed.lock();
        let position = armed.iter().position(|timer| timer.event_loop.is(event_loop));
        let forgotten = position.map(|position| armed.swap_remove(position));
        self.publish(&armed);
        forgotten
    }

    /// Drops the timers of loops that were closed with a timer set, which never
    /// fires.
    fn forget_the_closed(&self, py: Python<'_>) -> PyResult<()> {
        let loops: Vec<_> = {
            let armed = self.armed.lock();
            armed.iter().map(|timer| timer.event_loop.clone_ref(py)).collect()
        };
        let mut first_error = Ok(());
        for event_loop in loops {
            let event_loop = event_loop.bind(py);
            let (is_closed, error) = insist(py, || is_closed(event_loop));
            first_error = first_error.and(error);
            if is_closed == Some(true) {
                drop(self.forget(event_loop));
            }
        }
        first_error
    }

    /// Drops the timers of loops without waiters.
    fn forget_the_idle(&self) {
        let Some(station) = self.station.upgrade() else {
            return;
        };
        self.removals.fetch_add(1, Ordering::Relaxed);
        let idle: Vec<_> = {
            let mut armed = self.armed.lock();
            let is_idle = |timer: &mut Armed| !station.waits(home_of(&timer.event_loop));
            let idle = armed.extract_if(.., is_idle).collect();
            self.publish(&armed);
            idle
        };
        drop(idle);
    }
}

enum Set<'py> {
    /// With the handle of the timer, if it is one already.
    Calls(Option<Bound<'py, PyAny>>),
    Closed,
}

fn cancel(py: Python<'_>, handle: Option<Py<PyAny>>) -> PyResult<()> {
    match handle {
        Some(handle) => {
            let _calling = exit::Calling::new(py);
            handle.bind(py).call_method0(intern!(py, "cancel")).map(drop)
        }
        None => Ok(()),
    }
}

/// What a timer calls, on its own loop.
#[pyclass(frozen, module = "sluicegate._core")]
struct Sweep {
    station: Weak<dyn Station>,
    event_loop: Py<PyAny>,
}

#[pymethods]
impl Sweep {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        match self.station.upgrade() {
            Some(station) => station.fire(py, self.event_loop.bind(py)),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)
    }
}
