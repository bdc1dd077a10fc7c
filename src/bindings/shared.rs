use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::clock::Clock;
use super::default_clock::system_now;
use super::timers::Timers;
use super::waiter::{Parker, Station, Waiter, deliver, home_of};
use super::{fork, imports};
use crate::primitives::{Home, Ticket, Time, Waitable, Wakes};

/// What a primitive is to its host besides something to wait at.
pub(crate) trait Hosted: Waitable<Waiter> + Send + Sized + 'static {
    /// Who is told the news.
    type Listener: Send + Sync;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.waiters().try_for_each(|waiter| waiter.traverse(visit))
    }

    /// Takes out the Python objects in it that are no waiters, to be dropped after
    /// the lock.
    fn take_objects(&mut self) -> Vec<Py<PyAny>> {
        Vec::new()
    }

    fn traverse_listener(
        _listener: &Self::Listener,
        _visit: &PyVisit<'_>,
    ) -> Result<(), PyTraverseError> {
        Ok(())
    }

    /// Whether something happened that is to be told after the lock.
    fn has_news(&self) -> bool {
        false
    }

    /// When there may be something to tell by the mere passing of time.
    fn next_news(&self) -> Option<Time> {
        None
    }

    /// When it is to be looked at next.
    fn next_look(&self) -> Option<Time> {
        self.next_expiry().into_iter().chain(self.next_news()).min()
    }

    /// Tells it, by calling what the user gave for that.
    fn tell(_shared: &Shared<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}

/// A primitive with its lock, its clock, and a timer for each event loop that
/// waits at it.
pub(crate) struct Shared<P: Hosted> {
    state: Mutex<P>,
    name: Py<PyString>,
    clock: Clock,
    timers: Timers,
    /// The next expiry as of the last unlock, in nanoseconds. Relaxed: a hint
    /// for threads that wait detached, who look again under the lock.
    due: AtomicU64,
    /// Whether there are news to tell. Relaxed: whoever brings them looks after
    /// its own unlock.
    has_news: AtomicBool,
    listener: P::Listener,
}

impl<P: Hosted> Shared<P> {
    pub(crate) fn new(primitive: P, name: Py<PyString>, clock: Clock) -> Arc<Self>
    where
        P::Listener: Default,
    {
        Self::with_listener(primitive, name, clock, P::Listener::default())
    }

    pub(crate) fn with_listener(
        primitive: P,
        name: Py<PyString>,
        clock: Clock,
        listener: P::Listener,
    ) -> Arc<Self> {
        let shared = Arc::new_cyclic(|me: &Weak<Self>| Self {
            state: Mutex::new(primitive),
            name,
            clock,
            timers: Timers::new(me.clone()),
            due: AtomicU64::new(Time::MAX.as_nanos()),
            has_news: AtomicBool::new(false),
            listener,
        });
        let station: Arc<dyn Station> = shared.clone();
        let station = Arc::downgrade(&station);
        shared.clock.register(&station);
        fork::register(station);
        shared
    }

    pub(crate) fn name(&self) -> &Py<PyString> {
        &self.name
    }

    pub(crate) fn listener(&self) -> &P::Listener {
        &self.listener
    }

    /// Keeps a timer for the loop that runs here, if one does, for what is there now
    /// and waits for nobody. `now` is of this very moment.
    ///
    /// To look which loop that is costs as much as all the rest of putting an item;
    /// it is looked up again after a few microseconds, in which no thread gets from
    /// one loop to another one.
    pub(crate) fn watch_here(&self, py: Python<'_>, now: Time) -> PyResult<()> {
        const FRESH: Duration = Duration::from_micros(10);
        thread_local! {
            static SEEN: Cell<(u64, u64, Time)> = const { Cell::new((0, 0, Time::ZERO)) };
        }
        if self.clock.is_manual() || self.due() == Time::MAX {
            return Ok(());
        }
        let key = self.timers.key();
        let (id, removals, at) = SEEN.get();
        if self.clock.is_system() && (id, removals) == key && now.since(at) < FRESH {
            return Ok(());
        }
        let Some(event_loop) = imports::running_loop(py)? else {
            return Ok(());
        };
        self.watch(py, &event_loop)?;
        SEEN.set((key.0, key.1, now));
        Ok(())
    }

    /// Looks at what is left after an expiry.
    ///
    /// # Errors
    /// What the clock raises, or what strikes meanwhile.
    pub(crate) fn look<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&P, Time) -> R,
    ) -> PyResult<R> {
        let (result, delivered) = self.change(py, |state, now| {
            let wakes = state.expire(now, None);
            (operation(state, now), wakes)
        })?;
        delivered.map(|()| result)
    }

    /// What time it is for the state, whatever its clock says.
    ///
    /// # Errors
    /// What the clock raises.
    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Time> {
        let now = self.clock.now(py)?;
        Ok(now.max(self.state.lock().latest()))
    }

    /// Looks at what needs no time.
    pub(crate) fn with<R>(&self, operation: impl FnOnce(&mut P) -> R) -> R {
        operation(&mut self.state.lock())
    }

    /// Reads the clock and changes what wakes nobody and brings no expiry nearer.
    ///
    /// # Errors
    /// What the clock raises, and then nothing is changed.
    #[inline]
    pub(crate) fn with_time<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut P, Time) -> R,
    ) -> PyResult<R> {
        let now = self.read_clock(py)?;
        let mut state = self.state.lock();
        let now = now.unwrap_or_else(|| self.system_time(&state));
        Ok(operation(&mut state, now))
    }

    /// Reads the clock, changes what may wake somebody or bring an expiry nearer,
    /// and then delivers the wakes.
    ///
    /// It reads the system's clock too, even if nothing depended on the time until
    /// now: what begins here (a wait, a limit) begins at the true time.
    ///
    /// # Errors
    /// What the clock raises, and then nothing is changed.
    pub(crate) fn change<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> PyResult<(R, PyResult<()>)> {
        let now = if self.clock.is_system() { system_now() } else { self.clock.now(py)? };
        Ok(self.change_at(py, Some(now), operation))
    }

    /// The same for what is mostly decided `at_once`, in a way that wakes nobody, brings no
    /// expiry nearer and is no news; and if it says nothing, otherwise. Under one lock.
    ///
    /// # Errors
    /// What the clock raises, and then nothing is changed.
    #[inline]
    pub(crate) fn change_unless<A, R>(
        &self,
        py: Python<'_>,
        at_once: impl FnOnce(&mut P, Time) -> Option<A>,
        otherwise: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> PyResult<Result<A, (R, PyResult<()>)>> {
        let now = self.read_clock(py)?;
        let mut state = self.state.lock();
        let now = now.unwrap_or_else(|| self.system_time(&state));
        if let Some(result) = at_once(&mut state, now) {
            return Ok(Ok(result));
        }
        let (result, wakes) = self.change_locked(state, now, otherwise);
        Ok(Err(self.changed(py, result, wakes)))
    }

    /// The same for what gives back or answers, where there is no going back: for a
    /// clock that fails, time stands still, and the system's is read only if it
    /// matters.
    pub(crate) fn change_surely<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> (R, PyResult<()>) {
        if self.clock.is_system() {
            return self.change_at(py, None, operation);
        }
        let (now, error) = self.clock.now_or_stand_still(py);
        let (result, delivered) = self.change_at(py, Some(now), operation);
        (result, error.and(delivered))
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.clock.traverse(visit)?;
        self.timers.traverse(visit)?;
        P::traverse_listener(&self.listener, visit)?;
        // The collector must not block. Nobody can hold the lock while it runs
        // with a GIL; without one, this round sees fewer edges and frees less.
        let Some(state) = self.state.try_lock() else {
            return Ok(());
        };
        state.traverse(visit)
    }

    pub(crate) fn clear(&self) {
        let (waiters, objects) = {
            let mut state = self.state.lock();
            (state.take_waiters(), state.take_objects())
        };
        drop((waiters, objects));
        self.timers.clear();
    }

    /// Any clock but the system's is read before the lock, since it may run
    /// Python. The system's, at 25 ns, is read only if it matters, which only
    /// the state can tell.
    #[inline]
    fn read_clock(&self, py: Python<'_>) -> PyResult<Option<Time>> {
        if self.clock.is_system() { Ok(None) } else { self.clock.now(py).map(Some) }
    }

    #[inline]
    fn system_time(&self, state: &P) -> Time {
        if state.needs_time() { system_now() } else { state.latest() }
    }

    #[inline]
    fn change_at<R>(
        &self,
        py: Python<'_>,
        now: Option<Time>,
        operation: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> (R, PyResult<()>) {
        let (result, wakes) = self.change_quietly(now, operation);
        self.changed(py, result, wakes)
    }

    #[inline]
    fn changed<R>(&self, py: Python<'_>, result: R, wakes: Wakes<Waiter>) -> (R, PyResult<()>) {
        let due = self.due();
        let has_news = self.has_news.load(Ordering::Relaxed);
        if wakes.is_empty() && !has_news && self.timers.are_set_for(due) {
            return (result, Ok(()));
        }
        let delivered = deliver(py, self, wakes).and(self.tell(py));
        (result, delivered.and(self.check_timers(py)))
    }

    fn check_timers(&self, py: Python<'_>) -> PyResult<()> {
        // By hand nothing falls due on its own. Timers that were set before are kept,
        // for when the clock runs again.
        if self.clock.is_manual() { Ok(()) } else { self.timers.check(py, self.due()) }
    }

    /// The loops of all tasks that wait, and the threads.
    fn homes(&self, py: Python<'_>) -> (Vec<Py<PyAny>>, Vec<Arc<Parker>>) {
        let (mut loops, mut threads) = (Vec::<Py<PyAny>>::new(), Vec::new());
        for waiter in self.state.lock().waiters() {
            match waiter {
                Waiter::Task { event_loop, .. } => {
                    if !loops.iter().any(|known| known.is(event_loop)) {
                        loops.push(event_loop.clone_ref(py));
                    }
                }
                Waiter::Thread(parker) => threads.push(parker.clone()),
            }
        }
        (loops, threads)
    }

    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let has_news = self.has_news.load(Ordering::Relaxed);
        if has_news && self.has_news.swap(false, Ordering::Relaxed) {
            let told = P::tell(self, py);
            // What was due was to tell this.
            self.note_due(&self.state.lock());
            return told;
        }
        Ok(())
    }

    #[inline]
    fn note_due(&self, state: &P) {
        let due = state.next_look().unwrap_or(Time::MAX);
        self.due.store(due.as_nanos(), Ordering::Relaxed);
    }

    #[inline]
    fn change_quietly<R>(
        &self,
        now: Option<Time>,
        operation: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> (R, Wakes<Waiter>) {
        let state = self.state.lock();
        let now = now.unwrap_or_else(|| self.system_time(&state));
        self.change_locked(state, now, operation)
    }

    #[inline]
    fn change_locked<R>(
        &self,
        mut state: MutexGuard<'_, P>,
        now: Time,
        operation: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>),
    ) -> (R, Wakes<Waiter>) {
        // What counts from now on, a deadline or a time-out, counts on the clock of the
        // state, which never goes back.
        let now = now.max(state.latest());
        let result = operation(&mut state, now);
        let has_news = state.has_news();
        self.note_due(&state);
        drop(state);
        if has_news {
            self.has_news.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl<P: Hosted> Station for Shared<P> {
    fn cancel(&self, py: Python<'_>, ticket: Ticket) -> PyResult<()> {
        self.change_surely(py, |state, now| ((), state.cancel(now, ticket))).1
    }

    fn withdraw(&self, now: Time, ticket: Ticket) -> Wakes<Waiter> {
        self.change_quietly(Some(now), |state, now| ((), state.cancel(now, ticket))).1
    }

    fn unreached(&self, now: Time, ticket: Ticket, waiter: Waiter) -> Wakes<Waiter> {
        let put_back = |state: &mut P, now| ((), state.unreached(now, ticket, waiter));
        self.change_quietly(Some(now), put_back).1
    }

    fn sweep(&self, py: Python<'_>, home: Option<Home>) -> PyResult<()> {
        self.change_surely(py, |state, now| ((), state.expire(now, home))).1
    }

    fn renew(&self, ticket: Ticket, waiter: Waiter) -> bool {
        // What it had, or this one, is dropped after the lock.
        let renewed = self.state.lock().renew(ticket, waiter);
        renewed.is_ok()
    }

    fn waits(&self, home: Home) -> bool {
        let state = self.state.lock();
        state.waits(home) || state.next_news().is_some()
    }

    fn has_unclaimed(&self, home: Option<Home>) -> bool {
        self.state.lock().has_unclaimed(home)
    }

    fn next_expiry(&self) -> Option<Time> {
        self.state.lock().next_look()
    }

    fn due(&self) -> Time {
        Time::from_nanos(self.due.load(Ordering::Relaxed))
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn watch(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.clock.is_manual() {
            return Ok(());
        }
        self.timers.watch(event_loop)?;
        self.timers.check(py, self.due())
    }

    fn follow(&self, py: Python<'_>) -> PyResult<()> {
        let (mut loops, threads) = self.homes(py);
        // They look again how long to sleep.
        for parker in threads {
            parker.unpark();
        }
        if self.clock.is_manual() {
            return Ok(());
        }
        if self.due() != Time::MAX {
            loops.extend(imports::running_loop(py)?.map(Bound::unbind));
        }
        let mut first_error = Ok(());
        for event_loop in loops {
            first_error = first_error.and(self.timers.watch(event_loop.bind(py)));
        }
        first_error.and(self.timers.reset(py, self.due()))
    }

    fn fire(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let unset = self.timers.unset(event_loop);
        let (now, error) = self.clock.now_or_stand_still(py);
        let home = home_of(event_loop.as_unbound());
        let expire = |state: &mut P, now| ((), state.expire(now, Some(home)));
        let wakes = self.change_quietly(Some(now), expire).1;
        let delivered = deliver(py, self, wakes);
        let told = self.tell(py);
        let unwatched = if self.waits(home) { Ok(()) } else { self.timers.unwatch(event_loop) };
        unset.and(error).and(delivered).and(told).and(unwatched).and(self.check_timers(py))
    }

    fn begin_anew(&self) {
        let (waiters, objects) = {
            let mut state = self.state.lock();
            (state.reset(), state.take_objects())
        };
        self.due.store(Time::MAX.as_nanos(), Ordering::Relaxed);
        // They are the parent's. Dropped, their tasks would be collected here, and
        // run their `finally` blocks in the wrong process.
        std::mem::forget((waiters, objects));
        self.timers.forget_all();
    }
}
