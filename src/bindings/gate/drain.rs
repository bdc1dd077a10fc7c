use std::time::Duration;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::Gate;
use crate::bindings::wait::{Claimed, Joined, Quest, Words};
use crate::bindings::wait_for::Errand;
use crate::bindings::waiter::{Station, Waiter};
use crate::primitives::{Home, Ticket, Wakes};

/// To wait until nothing is in flight: `True` if so, `False` if the time was over before.
pub(crate) struct Drain {
    gate: Py<Gate>,
    timeout: Option<Duration>,
}

static WORDS: Words = Words {
    call: "a drain()",
    again: "drain()",
    waiting: "waiting for the end of what is in flight",
    elsewhere: "drain_sync() in a thread",
};

impl Drain {
    pub(crate) fn new(gate: &Bound<'_, Gate>, timeout: Option<Duration>) -> Self {
        Self { gate: gate.clone().unbind(), timeout }
    }

    fn answer(py: Python<'_>, is_drained: bool) -> Py<PyAny> {
        PyBool::new(py, is_drained).to_owned().into_any().unbind()
    }
}

impl Quest for Drain {
    type Gain = Py<PyAny>;

    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn station(&self) -> &dyn Station {
        &**self.gate.get().core()
    }

    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let core = self.gate.get().core();
        core.close(py)?;
        let is_drained = core.with(|state| state.is_idle());
        if is_drained || self.timeout == Some(Duration::ZERO) {
            return Ok(Some(Self::answer(py, is_drained)));
        }
        Ok(None)
    }

    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Py<PyAny>>> {
        // What is not taken is dropped after the lock.
        let mut waiter = Some(waiter);
        let core = self.gate.get().core();
        let (ticket, delivered) = core.change(py, |state, now| {
            let until = self.timeout.map(|span| now.after(span));
            (state.join_drain(now, home, until, &mut waiter), Wakes::none())
        })?;
        match ticket {
            None => delivered.map(|()| Joined::Gained(Self::answer(py, true))),
            Some(ticket) => {
                if let Err(error) = delivered {
                    core.cancel(py, ticket)?;
                    return Err(error);
                }
                Ok(Joined::Waiting(ticket))
            }
        }
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Py<PyAny>>> {
        let core = self.gate.get().core();
        let (answer, delivered) =
            core.change_surely(py, |state, now| state.claim_drain(now, ticket));
        delivered.map(|()| answer.map(|is_drained| Self::answer(py, is_drained)).into())
    }
}

impl Errand for Drain {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)
    }
}
