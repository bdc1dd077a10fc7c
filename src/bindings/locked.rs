use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::clock::Clock;
use super::fork;
use crate::primitives::Time;

/// What a primitive does in a forked process before anything else.
pub(crate) trait BeginsAnew {
    fn begin_anew(&mut self);
}

/// A primitive at which nobody waits, with its lock, its name and its clock. What
/// one can wait at is [`Shared`](super::shared::Shared).
pub(crate) struct Locked<P> {
    state: Mutex<State<P>>,
    name: Py<PyString>,
    clock: Clock,
}

struct State<P> {
    primitive: P,
    /// The process that it was last used in.
    generation: u64,
}

impl<P: BeginsAnew> Locked<P> {
    pub(crate) fn new(primitive: P, name: Py<PyString>, clock: Clock) -> Self {
        let state = State { primitive, generation: fork::generation() };
        Self { state: Mutex::new(state), name, clock }
    }

    pub(crate) fn name(&self) -> &Py<PyString> {
        &self.name
    }

    /// Looks at, or changes, what needs no time.
    #[inline]
    pub(crate) fn with<R>(&self, operation: impl FnOnce(&mut P) -> R) -> R {
        let mut state = self.state.lock();
        if state.generation != fork::generation() {
            state.generation = fork::generation();
            state.primitive.begin_anew();
        }
        operation(&mut state.primitive)
    }

    /// The same with the time, which is read before the lock.
    ///
    /// # Errors
    /// What the clock raises, and then nothing is changed.
    #[inline]
    pub(crate) fn with_time<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut P, Time) -> R,
    ) -> PyResult<R> {
        let now = self.clock.now(py)?;
        Ok(self.with(|primitive| operation(primitive, now)))
    }

    /// The same for what has happened already: for a clock that fails, time stands
    /// still. What is no `Exception`, such as a `KeyboardInterrupt`, is returned.
    #[inline]
    pub(crate) fn with_time_surely<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut P, Time) -> R,
    ) -> (R, PyResult<()>) {
        let (now, error) = self.clock.now_or_stand_still(py);
        (self.with(|primitive| operation(primitive, now)), error)
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.clock.traverse(visit)
    }
}
