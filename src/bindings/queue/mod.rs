mod core;
mod errand;
mod hooks;
mod take;

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use self::core::{Answer, Core, Terms};
use errand::GetFor;
pub(crate) use errand::{Get, Putting};
use hooks::Hooks;
pub(crate) use take::Take;

use super::clock::Clock;
use super::given::Given;
use super::names::Names;
use super::shared::Shared;
use super::wait::{self, refuse_on_event_loop};
use super::wait_for::{Errands, Wait};
use super::waiter::Station;
use super::{config, exit, imports};
use crate::primitives::{Channel, ItemId, QueueConfig, Time, Waitable, Wakes};

/// A bounded queue that keeps the wait short; see `sluicegate.CoDelQueue`.
#[pyclass(frozen, subclass, weakref, generic, module = "sluicegate._core")]
pub(crate) struct CoDelQueue {
    core: Arc<Core>,
}

static NAMES: Names = Names::new("queue");
const CAPACITY: &str = "an integer from 0 to 1e9";

impl CoDelQueue {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

#[pymethods]
impl CoDelQueue {
    #[new]
    #[pyo3(
        signature = (capacity, *, target = None, interval = None, low = Given::NOTHING, high = Given::NOTHING, on_reject = None, on_high = None, on_low = None, name = None, clock = None),
        text_signature = "(capacity, *, target=None, interval=None, low=0.3, high=0.7, on_reject=None, on_high=None, on_low=None, name=None, clock=None)"
    )]
    #[allow(clippy::too_many_arguments)] // the keywords of a constructor
    fn new(
        py: Python<'_>,
        capacity: &Bound<'_, PyAny>,
        target: Option<&Bound<'_, PyAny>>,
        interval: Option<&Bound<'_, PyAny>>,
        low: Given<'_, '_>,
        high: Given<'_, '_>,
        on_reject: Option<&Bound<'_, PyAny>>,
        on_high: Option<&Bound<'_, PyAny>>,
        on_low: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut queue = QueueConfig::new(config::integer("capacity", CAPACITY, capacity)?);
        set(&mut queue, target, interval, low.get(), high.get())?;
        let primitive = Channel::new(queue)?;
        let hooks = Hooks::new(on_reject, on_high, on_low)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Shared::with_listener(primitive, name, clock, hooks) })
    }

    /// Put an item now or raise; overtakes nobody who waits for room and matters as
    /// much.
    #[pyo3(
        signature = (item, /, *, criticality = None, deadline = None, operation = None, cancellable = false),
        text_signature = "($self, item, /, *, criticality=None, deadline=None, operation=None, cancellable=False)"
    )]
    fn put_nowait(
        &self,
        item: Bound<'_, PyAny>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        cancellable: bool,
    ) -> PyResult<Py<PyAny>> {
        let py = item.py();
        let terms = Terms::new(criticality, deadline, operation, cancellable)?;
        self.core.put_now(py, item.unbind(), &terms)
    }

    /// Wait for room, then put; evicts only what is less critical.
    #[pyo3(
        signature = (item, /, *, criticality = None, deadline = None, operation = None, cancellable = false, timeout = None),
        text_signature = "($self, item, /, *, criticality=None, deadline=None, operation=None, cancellable=False, timeout=None)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn put(
        slf: &Bound<'_, Self>,
        item: Bound<'_, PyAny>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        cancellable: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Wait> {
        let terms = Terms::new(criticality, deadline, operation, cancellable)?;
        let timeout = config::timeout(timeout)?;
        Ok(Wait::of(Errands::Put(Putting::new(slf, item.unbind(), terms, timeout)?)))
    }

    /// Do as `put()`, in this thread, which lets other threads run.
    #[pyo3(
        signature = (item, /, *, criticality = None, deadline = None, operation = None, cancellable = false, timeout = None),
        text_signature = "($self, item, /, *, criticality=None, deadline=None, operation=None, cancellable=False, timeout=None)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn put_sync(
        slf: &Bound<'_, Self>,
        item: Bound<'_, PyAny>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        cancellable: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let terms = Terms::new(criticality, deadline, operation, cancellable)?;
        let timeout = config::timeout(timeout)?;
        refuse_on_event_loop(py, "put_sync()", "await put()")?;
        wait::block(py, &Putting::new(slf, item.unbind(), terms, timeout)?)
    }

    /// Take the next item now or raise; takes none that is for somebody who waits.
    fn get_nowait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.core.say_what_is_not_learnt(py)?;
        match self.core.take_now(py, false)? {
            Answer::Got(item, _) => Ok(item),
            Answer::Closed => Err(self.core.closed(py)),
            _ => Err(imports::queue_empty(py)),
        }
    }

    /// Wait for an item; the work on it is not timed, see `take()`.
    #[pyo3(signature = (*, timeout = None))]
    fn get(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Wait> {
        let timeout = config::timeout(timeout)?;
        slf.get().core.say_what_is_not_learnt(slf.py())?;
        Ok(Wait::of(Errands::Get(Get::new(slf, timeout, GetFor::Await))))
    }

    /// Do as `get()`, in this thread, which lets other threads run.
    #[pyo3(signature = (*, timeout = None))]
    fn get_sync(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let timeout = config::timeout(timeout)?;
        refuse_on_event_loop(py, "get_sync()", "await get()")?;
        slf.get().core.say_what_is_not_learnt(py)?;
        wait::block(py, &Get::new(slf, timeout, GetFor::Await))
    }

    /// Wait for an item and time the work on it, in `async with` or, in a thread,
    /// `with`.
    #[pyo3(signature = (*, timeout = None))]
    fn take(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Take> {
        Ok(Take::new(slf, config::timeout(timeout)?))
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(slf: &Bound<'_, Self>) -> PyResult<Wait> {
        slf.get().core.say_what_is_not_learnt(slf.py())?;
        Ok(Wait::of(Errands::Get(Get::new(slf, None, GetFor::Iteration))))
    }

    /// Take an item out that is not wanted any more.
    #[pyo3(signature = (ticket, /))]
    fn cancel(&self, py: Python<'_>, ticket: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bits = config::integer("ticket", "what put returned", ticket)?;
        let id = ItemId::from_bits(bits);
        let (item, delivered) = self.core.change(py, |items, now| items.cancel_item(now, id))?;
        let is_cancelled = item.is_some();
        if let Some(item) = item {
            exit::discard(py, item);
        }
        delivered.map(|()| is_cancelled)
    }

    /// Let nothing in any more.
    #[pyo3(signature = (*, immediate = false))]
    fn close(&self, py: Python<'_>, immediate: bool) -> PyResult<()> {
        self.core.change_surely(py, |items, now| ((), items.close(now, immediate))).1
    }

    /// Change what is given, as in the constructor; `None` leaves it as it is.
    #[pyo3(signature = (*, capacity = None, target = None, interval = None, low = None, high = None))]
    fn update(
        &self,
        py: Python<'_>,
        capacity: Option<&Bound<'_, PyAny>>,
        target: Option<&Bound<'_, PyAny>>,
        interval: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let capacity =
            capacity.map(|value| config::integer("capacity", CAPACITY, value)).transpose()?;
        let mut given = QueueConfig::new(0);
        set(&mut given, target, interval, low, high)?;
        let (updated, delivered) = self.core.change(py, |items, now| {
            let old = items.queue().config();
            let new = QueueConfig {
                capacity: capacity.unwrap_or(old.capacity),
                target: given.target.or(old.target),
                interval: given.interval.or(old.interval),
                low: if low.is_some() { given.low } else { old.low },
                high: if high.is_some() { given.high } else { old.high },
            };
            match items.update(now, new) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            }
        })?;
        updated?;
        delivered
    }

    /// Reject what is overdue, as every use of the queue does, and its timers do.
    fn expire(&self, py: Python<'_>) -> PyResult<()> {
        self.core.sweep(py, None)
    }

    /// What it is called in rejections, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// How many items may wait.
    #[getter]
    fn capacity(&self) -> usize {
        self.core.with(|items| items.queue().capacity())
    }

    /// How many items wait, without those for which a worker is on its way.
    #[getter]
    fn depth(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.look(py, |items, _| items.queue().depth())
    }

    /// Depth / capacity; 1 if the capacity is 0.
    #[getter]
    fn saturation(&self, py: Python<'_>) -> PyResult<f64> {
        self.core.look(py, |items, _| items.queue().saturation())
    }

    /// How long the oldest item has waited, in seconds.
    #[getter]
    fn oldest_wait(&self, py: Python<'_>) -> PyResult<f64> {
        self.core.look(py, |items, now| items.queue().oldest_wait(now).as_secs_f64())
    }

    /// Whether it had no moment of health within the last interval.
    #[getter]
    fn standing(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.look(py, |items, _| items.queue().is_standing())
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.with(|items| items.is_closed())
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (snapshot, getting, putting, is_closed, next_expiry) =
            self.core.look(py, |items, now| {
                let waiting = (items.takers(), items.putters());
                (items.snapshot(now), waiting.0, waiting.1, items.is_closed(), items.next_expiry())
            })?;
        let values = PyDict::new(py);
        values.set_item("capacity", snapshot.capacity)?;
        values.set_item("depth", snapshot.depth)?;
        values.set_item("saturation", snapshot.saturation)?;
        values.set_item("oldest_wait", snapshot.oldest_wait.as_secs_f64())?;
        values.set_item("standing", snapshot.is_standing)?;
        values.set_item("target", snapshot.target.as_secs_f64())?;
        values.set_item("interval", snapshot.interval.as_secs_f64())?;
        values.set_item("getting", getting)?;
        values.set_item("putting", putting)?;
        values.set_item("working", snapshot.working)?;
        values.set_item("service_mean", snapshot.service_mean.as_secs_f64())?;
        values.set_item("service_p95", snapshot.service_p95.as_secs_f64())?;
        values.set_item("service_estimate", snapshot.service_estimate.as_secs_f64())?;
        values.set_item("service_baseline", snapshot.baseline.map(|span| span.as_secs_f64()))?;
        values.set_item("accepted", snapshot.accepted)?;
        values.set_item("taken", snapshot.taken)?;
        values.set_item("cancelled", snapshot.cancelled)?;
        values.set_item("rejected", imports::reasons(py, &snapshot.rejected)?)?;
        values.set_item("closed", is_closed)?;
        values.set_item("next_expiry", next_expiry.map(Time::as_secs_f64))?;
        Ok(values)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }

    fn __clear__(&self) {
        self.core.clear();
    }
}

/// Sets what is given.
fn set(
    queue: &mut QueueConfig,
    target: Option<&Bound<'_, PyAny>>,
    interval: Option<&Bound<'_, PyAny>>,
    low: Option<&Bound<'_, PyAny>>,
    high: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    const SECONDS: &str = "a number of seconds above 0 and at most 3600, or None (automatic)";
    if let Some(target) = target {
        queue.target = Some(config::seconds("target", SECONDS, target)?);
    }
    if let Some(interval) = interval {
        queue.interval = Some(config::seconds("interval", SECONDS, interval)?);
    }
    if let Some(low) = low {
        queue.low = config::number("low", "a share from 0 and below 1", low)?;
    }
    if let Some(high) = high {
        queue.high = config::number("high", "a share above low and at most 1", high)?;
    }
    Ok(())
}
