use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::hooks::Hooks;
use crate::bindings::rejection::{Kind, Rejection};
use crate::bindings::shared::{Hosted, Shared};
use crate::bindings::waiter::{self, Station, Waiter};
use crate::bindings::{config, exit, imports};
use crate::primitives::{
    Channel, Criticality, ItemId, Offer, Put, Reason, Rejection as Refusal, Take, Taken, Ticket,
    Time, Waitable, Wakes, Work,
};

/// A queue with its lock, its clock, its timers and its hooks.
pub(crate) type Core = Shared<Items>;
pub(crate) type Items = Channel<Py<PyAny>, Waiter>;

/// What is known of an item that is put.
pub(crate) struct Terms {
    criticality: Criticality,
    /// From the call on.
    deadline: Option<Duration>,
    operation: Option<Box<str>>,
    /// Whether a ticket is wanted.
    is_cancellable: bool,
}

impl Terms {
    #[inline]
    pub(crate) fn new(
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        is_cancellable: bool,
    ) -> PyResult<Self> {
        if criticality.is_none() && deadline.is_none() && operation.is_none() {
            let criticality = Criticality::default();
            return Ok(Self { criticality, deadline: None, operation: None, is_cancellable });
        }
        Ok(Self {
            criticality: config::criticality(criticality)?,
            deadline: config::deadline(deadline)?,
            operation: config::operation(operation)?,
            is_cancellable,
        })
    }

    /// Everything but the deadline, which counts from a moment.
    pub(crate) fn offer(&self) -> Offer<'_> {
        let operation = self.operation.as_deref();
        Offer { criticality: self.criticality, operation, ..Offer::default() }
    }

    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        self.deadline.map(|span| now.after(span))
    }

    /// What the put returns: the id as an integer, if it is wanted.
    #[inline]
    pub(crate) fn ticket(&self, py: Python<'_>, id: ItemId) -> PyResult<Py<PyAny>> {
        if self.is_cancellable {
            Ok(id.to_bits().into_pyobject(py)?.into_any().unbind())
        } else {
            Ok(py.None())
        }
    }

    pub(crate) const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }
}

/// What came of putting. It is noted under the lock and not returned from there, which
/// would copy it from call to call.
enum Done {
    Not,
    Accepted(ItemId, Time),
    Else(Put<Py<PyAny>>),
}

impl Done {
    #[inline]
    fn note(&mut self, now: Time, put: (Put<Py<PyAny>>, Wakes<Waiter>)) -> Wakes<Waiter> {
        let (put, wakes) = put;
        *self = match put {
            Put::Accepted(id) => Self::Accepted(id, now),
            put => Self::Else(put),
        };
        wakes
    }
}

/// What was taken, and the work on it if that is timed.
type Begun = (Take<Py<PyAny>>, Option<Work>);

/// What came of taking, outside the lock.
pub(crate) enum Answer {
    Got(Py<PyAny>, Option<Work>),
    Waiting(Ticket),
    Empty,
    Closed,
    TimedOut,
    Unknown,
}

impl Core {
    /// Puts now, or raises.
    #[inline]
    pub(crate) fn put_now(
        &self,
        py: Python<'_>,
        item: Py<PyAny>,
        terms: &Terms,
    ) -> PyResult<Py<PyAny>> {
        let offer = terms.offer();
        let mut put = self.putting(py, |items, now| {
            if items.is_putters_home_wanted() {
                return (Put::NoRoom(item), Wakes::none());
            }
            items.put_now(now, item, &Offer { deadline: terms.deadline(now), ..offer }, None)
        })?;
        if let Err(Put::NoRoom(item)) = put {
            let home = Some(waiter::home(py)?);
            put = self.putting(py, |items, now| {
                items.put_now(now, item, &Offer { deadline: terms.deadline(now), ..offer }, home)
            })?;
        }
        match put {
            Ok(id) => terms.ticket(py, id),
            Err(Put::Rejected(item, refusal)) => {
                exit::discard(py, item);
                Err(self.rejected(py, refusal, terms))
            }
            Err(_) => Err(PyRuntimeError::new_err("no answer")),
        }
    }

    /// Puts by `put`, and sees to it that the item is rejected in time. If an error
    /// strikes on the way, it is not inside.
    #[inline]
    pub(crate) fn putting(
        &self,
        py: Python<'_>,
        put: impl FnOnce(&mut Items, Time) -> (Put<Py<PyAny>>, Wakes<Waiter>),
    ) -> PyResult<Result<ItemId, Put<Py<PyAny>>>> {
        let mut done = Done::Not;
        let ((), delivered) =
            self.change(py, |items, now| ((), done.note(now, put(items, now))))?;
        self.settle_put(py, done, delivered)
    }

    /// The same for what waited and was woken, where a clock that fails must not
    /// be in the way.
    pub(crate) fn putting_surely(
        &self,
        py: Python<'_>,
        put: impl FnOnce(&mut Items, Time) -> (Put<Py<PyAny>>, Wakes<Waiter>),
    ) -> PyResult<Result<ItemId, Put<Py<PyAny>>>> {
        let mut done = Done::Not;
        let ((), delivered) =
            self.change_surely(py, |items, now| ((), done.note(now, put(items, now))));
        self.settle_put(py, done, delivered)
    }

    #[inline]
    fn settle_put(
        &self,
        py: Python<'_>,
        done: Done,
        delivered: PyResult<()>,
    ) -> PyResult<Result<ItemId, Put<Py<PyAny>>>> {
        let Done::Accepted(id, at) = done else {
            return self.settle_other_put(py, done, delivered);
        };
        match delivered.and_then(|()| self.watch_here(py, at)) {
            Ok(()) => Ok(Ok(id)),
            Err(error) => {
                self.take_back(py, id);
                Err(error)
            }
        }
    }

    /// Of what is not inside.
    #[cold]
    fn settle_other_put(
        &self,
        py: Python<'_>,
        done: Done,
        delivered: PyResult<()>,
    ) -> PyResult<Result<ItemId, Put<Py<PyAny>>>> {
        let Done::Else(put) = done else {
            return Err(PyRuntimeError::new_err("no answer"));
        };
        if let (Err(_), Put::Waiting(ticket, _)) = (&delivered, &put) {
            self.cancel(py, *ticket)?;
        }
        delivered.map(|()| Err(put))
    }

    fn take_back(&self, py: Python<'_>, id: ItemId) {
        let (item, _) = self.change_surely(py, |items, now| items.cancel_item(now, id));
        if let Some(item) = item {
            exit::discard(py, item);
        }
    }

    /// Takes what is there, without waiting.
    #[inline]
    pub(crate) fn take_now(&self, py: Python<'_>, is_timed: bool) -> PyResult<Answer> {
        let mut is_home_needed = false;
        let answer = self.taking(py, is_timed, |items, now| {
            is_home_needed = items.is_takers_home_wanted();
            if is_home_needed { (Take::Empty, Wakes::none()) } else { items.take_now(now, None) }
        })?;
        if !is_home_needed {
            return Ok(answer);
        }
        let home = Some(waiter::home(py)?);
        self.taking(py, is_timed, |items, now| items.take_now(now, home))
    }

    /// Takes by `take`, and begins to time the work if that is wanted. If an error
    /// strikes on the way, the item goes back to its place.
    #[inline]
    pub(crate) fn taking(
        &self,
        py: Python<'_>,
        is_timed: bool,
        take: impl FnOnce(&mut Items, Time) -> (Take<Py<PyAny>>, Wakes<Waiter>),
    ) -> PyResult<Answer> {
        let mut taken = (Take::Empty, None);
        let ((), delivered) = self.change(py, |items, now| {
            let (take, wakes) = take(items, now);
            taken = begun(items, take, is_timed);
            ((), wakes)
        })?;
        self.settle(py, taken, delivered)
    }

    /// The same for what waited and was woken, where a clock that fails must not
    /// be in the way.
    pub(crate) fn taking_surely(
        &self,
        py: Python<'_>,
        is_timed: bool,
        take: impl FnOnce(&mut Items, Time) -> (Take<Py<PyAny>>, Wakes<Waiter>),
    ) -> PyResult<Answer> {
        let mut taken = (Take::Empty, None);
        let ((), delivered) = self.change_surely(py, |items, now| {
            let (take, wakes) = take(items, now);
            taken = begun(items, take, is_timed);
            ((), wakes)
        });
        self.settle(py, taken, delivered)
    }

    #[inline]
    fn settle(
        &self,
        py: Python<'_>,
        (take, work): Begun,
        delivered: PyResult<()>,
    ) -> PyResult<Answer> {
        if let Err(error) = delivered {
            return self.undo_take(py, take, work).and(Err(error));
        }
        Ok(match take {
            Take::Taken(taken) => Answer::Got(taken.item, work),
            Take::Waiting(ticket) => Answer::Waiting(ticket),
            Take::Empty => Answer::Empty,
            Take::Closed => Answer::Closed,
            Take::TimedOut => Answer::TimedOut,
            Take::Unknown => Answer::Unknown,
        })
    }

    #[cold]
    fn undo_take(&self, py: Python<'_>, take: Take<Py<PyAny>>, work: Option<Work>) -> PyResult<()> {
        match take {
            Take::Taken(taken) => self.put_back(py, taken, work),
            Take::Waiting(ticket) => self.cancel(py, ticket)?,
            _ => {}
        }
        Ok(())
    }

    fn put_back(&self, py: Python<'_>, taken: Taken<Py<PyAny>>, work: Option<Work>) {
        let ((), _) = self.change_surely(py, |items, now| {
            if let Some(work) = work {
                items.abandon(work);
            }
            ((), items.put_back(now, taken))
        });
    }

    /// Ends work that was timed.
    pub(crate) fn finish(&self, py: Python<'_>, work: Work, is_success: bool) -> PyResult<()> {
        self.change_surely(py, |items, now| ((), items.finish(now, work, is_success))).1
    }

    /// What a put raises that is rejected.
    #[cold]
    pub(crate) fn rejected(&self, py: Python<'_>, refusal: Refusal, terms: &Terms) -> PyErr {
        if refusal.reason == Reason::Closed {
            return self.closed(py);
        }
        let operation = terms.operation.as_deref().map(|name| PyString::new(py, name).unbind());
        Rejection::new(Kind::Queue, self.name().clone_ref(py), refusal)
            .with_operation(operation)
            .into_error(py)
    }

    pub(crate) fn closed(&self, py: Python<'_>) -> PyErr {
        imports::queue_closed(py, &self.name().bind(py).to_string())
    }

    /// Says once that an automatic target learns nothing from what is not timed.
    #[inline]
    pub(crate) fn say_what_is_not_learnt(&self, py: Python<'_>) -> PyResult<()> {
        self.listener().say_once(py, self)
    }
}

#[inline]
fn begun(items: &mut Items, take: Take<Py<PyAny>>, is_timed: bool) -> Begun {
    let work = match &take {
        Take::Taken(taken) if is_timed => Some(items.begin(taken)),
        _ => None,
    };
    (take, work)
}

impl Hosted for Items {
    type Listener = Hooks;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.waiters().try_for_each(|waiter| waiter.traverse(visit))?;
        self.queue().items().try_for_each(|item| visit.call(item))
    }

    fn traverse_listener(hooks: &Hooks, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        hooks.traverse(visit)
    }

    fn take_objects(&mut self) -> Vec<Py<PyAny>> {
        self.take_items()
    }

    fn has_news(&self) -> bool {
        Channel::has_news(self)
    }

    fn tell(shared: &Shared<Self>, py: Python<'_>) -> PyResult<()> {
        let news = shared.with(Channel::take_news);
        shared.listener().tell(py, shared.name(), news)
    }
}
