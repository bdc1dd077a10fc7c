use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::CoDelQueue;
use super::core::{Answer, Core, Terms};
use super::take::Take;
use crate::bindings::wait::{self, Claimed, Joined, Quest, Words};
use crate::bindings::wait_for::Errand;
use crate::bindings::waiter::{Station, Waiter};
use crate::bindings::{exit, imports};
use crate::primitives::{Home, ItemId, Offer, Put, Reason, Ticket, Time, Wait, Wakes};

/// To get an item.
pub(crate) struct Get {
    queue: Py<CoDelQueue>,
    timeout: Option<Duration>,
    what_for: GetFor,
}

/// What an item is got for.
pub(crate) enum GetFor {
    Await,
    /// The end is told as the end of an iteration.
    Iteration,
    /// The work on it is timed.
    Take(Py<Take>),
}

static GET: Words = Words {
    call: "a get()",
    again: "get()",
    waiting: "waiting for an item",
    elsewhere: "get_nowait(), or get_sync() in a thread",
};

impl Get {
    pub(crate) fn new(
        queue: &Bound<'_, CoDelQueue>,
        timeout: Option<Duration>,
        what_for: GetFor,
    ) -> Self {
        Self { queue: queue.clone().unbind(), timeout, what_for }
    }

    fn core(&self) -> &Core {
        self.queue.get().core()
    }

    const fn is_timed(&self) -> bool {
        matches!(self.what_for, GetFor::Take(_))
    }

    /// What was got; `None` if there is nothing yet.
    fn gained(&self, py: Python<'_>, answer: Answer) -> PyResult<Option<Py<PyAny>>> {
        match answer {
            Answer::Got(item, work) => {
                if let (GetFor::Take(take), Some(work)) = (&self.what_for, work) {
                    take.get().begin(work);
                }
                Ok(Some(item))
            }
            Answer::Empty | Answer::Waiting(_) => Ok(None),
            Answer::Closed if matches!(self.what_for, GetFor::Iteration) => {
                Err(PyStopAsyncIteration::new_err(()))
            }
            Answer::Closed => Err(self.core().closed(py)),
            Answer::TimedOut => Err(timed_out(py, self.core(), "no item of", self.timeout)),
            Answer::Unknown => Err(wait::from_before_a_fork()),
        }
    }
}

impl Quest for Get {
    type Gain = Py<PyAny>;

    fn words(&self) -> &'static Words {
        &GET
    }

    fn station(&self) -> &dyn Station {
        self.core()
    }

    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let answer = self.core().taking(py, self.is_timed(), |items, now| {
            if items.is_takers_home_wanted() {
                (crate::primitives::Take::Empty, Wakes::none())
            } else {
                items.take_now(now, None)
            }
        })?;
        self.gained(py, answer)
    }

    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Py<PyAny>>> {
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let answer = self.core().taking(py, self.is_timed(), |items, now| {
            let until = self.timeout.map(|span| now.after(span));
            items.take_or_wait(now, Wait { home: Some(home), until }, &mut waiter)
        })?;
        if let Answer::Waiting(ticket) = answer {
            return Ok(Joined::Waiting(ticket));
        }
        let gained = self.gained(py, answer)?;
        gained.map(Joined::Gained).ok_or_else(|| PyRuntimeError::new_err("nobody to wake"))
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Py<PyAny>>> {
        let answer = self
            .core()
            .taking_surely(py, self.is_timed(), |items, now| items.claim_item(now, ticket))?;
        self.gained(py, answer).map(Claimed::from)
    }
}

impl Errand for Get {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        match &self.what_for {
            GetFor::Take(take) => visit.call(take),
            GetFor::Await | GetFor::Iteration => Ok(()),
        }
    }
}

/// To put an item.
pub(crate) struct Putting {
    queue: Py<CoDelQueue>,
    /// Until it is inside.
    item: Mutex<Option<Py<PyAny>>>,
    terms: Terms,
    /// When the call was made, if that matters.
    called: Time,
    timeout: Option<Duration>,
}

static PUT: Words = Words {
    call: "a put()",
    again: "put()",
    waiting: "waiting for room",
    elsewhere: "put_nowait(), or put_sync() in a thread",
};

impl Putting {
    pub(crate) fn new(
        queue: &Bound<'_, CoDelQueue>,
        item: Py<PyAny>,
        terms: Terms,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let core = queue.get().core();
        let called = if terms.has_deadline() { core.now(queue.py())? } else { Time::ZERO };
        let queue = queue.clone().unbind();
        Ok(Self { queue, item: Mutex::new(Some(item)), terms, called, timeout })
    }

    fn core(&self) -> &Core {
        self.queue.get().core()
    }

    fn offer(&self) -> Offer<'_> {
        Offer { deadline: self.terms.deadline(self.called), ..self.terms.offer() }
    }

    fn take_item(&self) -> PyResult<Py<PyAny>> {
        let item = self.item.lock().take();
        item.ok_or_else(|| PyRuntimeError::new_err("a put() is awaited by one task"))
    }

    /// What came of it; `None` if there is no room.
    fn gained(
        &self,
        py: Python<'_>,
        put: Result<ItemId, Put<Py<PyAny>>>,
    ) -> PyResult<Option<Joined<Py<PyAny>>>> {
        let put = match put {
            Ok(id) => return Ok(Some(Joined::Gained(self.terms.ticket(py, id)?))),
            Err(put) => put,
        };
        match put {
            Put::Accepted(id) => Ok(Some(Joined::Gained(self.terms.ticket(py, id)?))),
            Put::Waiting(ticket, item) => {
                *self.item.lock() = Some(item);
                Ok(Some(Joined::Waiting(ticket)))
            }
            Put::NoRoom(item) => {
                *self.item.lock() = Some(item);
                Ok(None)
            }
            Put::Unknown(item) => {
                drop(item);
                Err(wait::from_before_a_fork())
            }
            Put::Rejected(item, refusal) => {
                exit::discard(py, item);
                Err(match refusal.reason {
                    Reason::Wait => timed_out(py, self.core(), "no room in", self.timeout),
                    _ => self.core().rejected(py, refusal, &self.terms),
                })
            }
        }
    }
}

impl Quest for Putting {
    type Gain = Py<PyAny>;

    fn words(&self) -> &'static Words {
        &PUT
    }

    fn station(&self) -> &dyn Station {
        self.core()
    }

    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let offer = self.offer();
        let item = self.take_item()?;
        let put = self.core().putting(py, |items, now| {
            if items.is_putters_home_wanted() {
                return (Put::NoRoom(item), Wakes::none());
            }
            items.put_into_room(now, item, &offer)
        })?;
        Ok(self.gained(py, put)?.and_then(Joined::gained))
    }

    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Py<PyAny>>> {
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let offer = self.offer();
        let item = self.take_item()?;
        let put = self.core().putting(py, |items, now| {
            let until = self.timeout.map(|span| now.after(span));
            let wait = Wait { home: Some(home), until };
            items.put_or_wait(now, item, &offer, wait, &mut waiter)
        })?;
        let joined = self.gained(py, put)?;
        joined.ok_or_else(|| PyRuntimeError::new_err("nobody to wake"))
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Py<PyAny>>> {
        let offer = self.offer();
        let item = self.take_item()?;
        let put = self
            .core()
            .putting_surely(py, |items, now| items.claim_room(now, ticket, item, &offer))?;
        Ok(self.gained(py, put)?.and_then(Joined::gained).into())
    }
}

impl Errand for Putting {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        let Some(item) = self.item.try_lock() else {
            return Ok(());
        };
        visit.call(&*item)
    }
}

fn timed_out(py: Python<'_>, core: &Core, what: &str, timeout: Option<Duration>) -> PyErr {
    let name = core.name().bind(py).to_string();
    let span = timeout.unwrap_or_default().as_secs_f64();
    imports::timed_out(py, format!("{what} {name:?} within {span} s"))
}
