use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::log;
use super::pressures::Pressures;
use crate::bindings::acquire::{Admits, Asked};
use crate::bindings::bucket::{self, TokenBucket};
use crate::bindings::operation::Operation;
use crate::bindings::permit::{self, outcome_from};
use crate::bindings::rejection::{Kind, Rejection};
use crate::bindings::shared::{Hosted, Shared};
use crate::bindings::waiter::{self, Station, Waiter};
use crate::bindings::{config, exit, wait};
use crate::primitives::{
    Admission, Claim, Gate as Primitive, GateAdmission, GateAsk, GateClaim, Outcome,
    Permit as Right, Rate, Rejection as Refusal, Ticket, Time, TokenAsk, Waitable, Wakes,
};

/// A gate with its lock, its clock, its timers, and what else it asks.
pub(crate) type Core = Shared<Primitive<Waiter>>;

/// What a gate asks besides, and whom it tells.
#[derive(Default)]
pub(crate) struct Around {
    pub(crate) rate: Option<Py<TokenBucket>>,
    pub(crate) classify: Option<Py<PyAny>>,
    /// Whether it admits everybody.
    pub(crate) is_disabled: bool,
    pub(crate) pressures: Pressures,
    pub(crate) parts: Parts,
}

/// The gates at which somebody waits before he asks this one: as its inner ones.
#[derive(Default)]
pub(crate) struct Parts(Mutex<Vec<Weak<Core>>>);

impl Parts {
    fn add(&self, part: &Arc<Core>) {
        let mut parts = self.0.lock();
        if !parts.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(part))) {
            parts.retain(|known| known.strong_count() > 0);
            parts.push(Arc::downgrade(part));
        }
    }

    fn take(&self) -> Vec<Arc<Core>> {
        let parts = std::mem::take(&mut *self.0.lock());
        parts.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Hosted for Primitive<Waiter> {
    type Listener = Around;

    fn traverse_listener(around: &Around, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&around.rate)?;
        around.pressures.traverse(visit)?;
        visit.call(&around.classify)
    }

    fn has_news(&self) -> bool {
        self.is_owing() || Self::has_news(self)
    }

    fn next_news(&self) -> Option<Time> {
        Self::next_news(self)
    }

    fn tell(shared: &Shared<Self>, py: Python<'_>) -> PyResult<()> {
        let owed = shared.with(Self::take_owed);
        let mut told = give_back(py, shared, owed);
        while let Some((event, snapshot)) = shared.with(|state| {
            let event = state.news()?;
            Some((event, state.snapshot(state.latest())))
        }) {
            told = told.and(log::write(py, shared.name(), &event, &snapshot));
        }
        told
    }
}

fn give_back(py: Python<'_>, core: &Core, tokens: f64) -> PyResult<()> {
    match &core.listener().rate {
        Some(rate) if tokens > 0.0 => rate.get().charge(py, -tokens),
        _ => Ok(()),
    }
}

/// The bucket of a gate during a decision. Its lock is taken inside the gate's, never the
/// other way round; no Python runs in it.
struct Charged<'a> {
    bucket: Option<&'a bucket::Core>,
    /// The time of the bucket, if its clock is another one.
    at: Option<Time>,
    /// To be given back after the lock: somebody may wait for it.
    back: f64,
}

impl<'a> Charged<'a> {
    #[inline]
    fn new(py: Python<'_>, core: &'a Core) -> PyResult<Self> {
        let Some(rate) = &core.listener().rate else {
            return Ok(Self { bucket: None, at: None, back: 0.0 });
        };
        let bucket = rate.get().core();
        let is_same = bucket.clock().is_system() && core.clock().is_system();
        let at = if is_same { None } else { Some(bucket.clock().now(py)?) };
        Ok(Self { bucket: Some(bucket), at, back: 0.0 })
    }
}

impl Rate for Charged<'_> {
    fn take(&mut self, now: Time, tokens: f64) -> Result<(), Duration> {
        let Some(bucket) = self.bucket else { return Ok(()) };
        // It was nothing that is asked for.
        let Ok(ask) = TokenAsk::new(tokens) else { return Ok(()) };
        let now = self.at.unwrap_or(now);
        bucket.with(|state| match state.try_take(now, &ask) {
            Ok(true) => Ok(()),
            Ok(false) => Err(state.retry_after(now, &ask).unwrap_or(Duration::MAX)),
            // More than the burst, which was lowered since: when all is there that can be.
            Err(_) => Err(TokenAsk::new(state.burst())
                .and_then(|all| state.retry_after(now, &all))
                .unwrap_or_default()),
        })
    }

    fn give_back(&mut self, _now: Time, tokens: f64) {
        if self.bucket.is_some() {
            self.back += tokens;
        }
    }
}

/// A name as text, read before the lock and let go of after it.
struct Name(Option<Py<PyString>>);

impl Name {
    fn of(py: Python<'_>, operation: &Operation) -> Self {
        Self(operation.get(py))
    }

    fn text<'a>(&'a self, py: Python<'a>) -> Option<Cow<'a, str>> {
        self.0.as_ref().map(|name| config::operation_text(name.bind(py)))
    }
}

fn gate_ask<'a>(asked: &Asked, operation: Option<&'a str>) -> GateAsk<'a> {
    let Asked { ask, deadline, tokens, position, is_retry } = *asked;
    GateAsk { ask, deadline, tokens, position, operation, is_retry }
}

/// What is decided without a place to wait at.
enum Decided {
    Answer(Result<Right, Refusal>),
    /// It depends on where who asks is.
    Elsewhere,
}

impl Shared<Primitive<Waiter>> {
    /// Admits now or rejects now.
    pub(crate) fn try_acquire(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: Option<&Py<PyString>>,
    ) -> PyResult<Result<Right, Refusal>> {
        self.listener().pressures.look(py, self)?;
        let text = operation.map(|name| config::operation_text(name.bind(py)));
        let ask = gate_ask(asked, text.as_deref());
        let decided = self.decide(py, &ask, false, |state, now, rate| {
            if state.is_home_wanted() {
                return (Decided::Elsewhere, Wakes::none());
            }
            let (answer, wakes) = state.try_acquire(now, &ask, rate);
            (Decided::Answer(answer), wakes)
        })?;
        if let Decided::Answer(answer) = decided {
            return Ok(answer);
        }
        let mut ask = ask;
        ask.ask.home = Some(waiter::home(py)?);
        let mut rate = Charged::new(py, self)?;
        let (answer, delivered) =
            self.change(py, |state, now| state.try_acquire(now, &ask, &mut rate))?;
        self.settle(py, answer, delivered, &rate, |answer| {
            answer.map_or(Ok(()), |right| self.annul(py, right, asked.tokens))
        })
    }

    /// Admits or rejects what is decided without a place to wait at; `None` if it has to wait.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
    ) -> PyResult<Option<Result<Right, Refusal>>> {
        self.listener().pressures.look(py, self)?;
        let name = Name::of(py, operation);
        let text = name.text(py);
        let ask = gate_ask(asked, text.as_deref());
        // Who is rejected at once needs no place to wait.
        let decided = self.decide(py, &ask, true, |state, now, rate| {
            let (answer, wakes) = state.attempt(now, &ask, rate);
            (answer.map_or(Decided::Elsewhere, Decided::Answer), wakes)
        })?;
        Ok(match decided {
            Decided::Answer(answer) => Some(answer),
            Decided::Elsewhere => None,
        })
    }

    /// Admits if that is plain: nobody waits and there is room, or everybody is admitted;
    /// else `otherwise` decides, all of it under one lock.
    #[inline]
    fn decide(
        &self,
        py: Python<'_>,
        ask: &GateAsk<'_>,
        may_wait: bool,
        otherwise: impl FnOnce(
            &mut Primitive<Waiter>,
            Time,
            &mut Charged<'_>,
        ) -> (Decided, Wakes<Waiter>),
    ) -> PyResult<Decided> {
        let Around { rate, is_disabled, .. } = self.listener();
        let has_rate = rate.is_some();
        let mut rate = Charged::new(py, self)?;
        let decided = self.change_unless(
            py,
            |state, now| {
                let right = if has_rate { None } else { state.admit(now, ask, &mut ()) };
                right.or_else(|| is_disabled.then(|| state.admit_unasked(now, ask)))
            },
            |state, now| {
                // Closed is closed.
                if state.is_dry_run() && !state.is_closed() {
                    let (right, wakes) = state.admit_in_dry_run(now, ask, may_wait, &mut rate);
                    return (Decided::Answer(Ok(right)), wakes);
                }
                otherwise(state, now, &mut rate)
            },
        )?;
        let (decided, delivered) = match decided {
            Ok(right) => return Ok(Decided::Answer(Ok(right))),
            Err(decided) => decided,
        };
        self.settle(py, decided, delivered, &rate, |decided| match decided {
            Decided::Answer(Ok(right)) => self.annul(py, right, ask.tokens),
            Decided::Answer(Err(_)) | Decided::Elsewhere => Ok(()),
        })
    }

    /// The end of a decision, outside the lock: the rate is given back what it is owed, and
    /// if somebody could not be told, what was decided is undone.
    #[inline]
    fn settle<R>(
        &self,
        py: Python<'_>,
        decided: R,
        delivered: PyResult<()>,
        rate: &Charged<'_>,
        undo: impl FnOnce(R) -> PyResult<()>,
    ) -> PyResult<R> {
        match delivered.and(give_back(py, self, rate.back)) {
            Ok(()) => Ok(decided),
            Err(error) => Err(undo(decided).err().unwrap_or(error)),
        }
    }

    /// Rejects whoever waits for it, or for an inner one and then for it, and whoever comes.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut closed = self.change_surely(py, |state, now| ((), state.close(now))).1;
        for part in self.listener().parts.take() {
            let called = part.change_surely(py, |state, now| ((), state.call_all(now))).1;
            closed = closed.and(called);
        }
        closed
    }

    /// Takes note that somebody is going to wait at an inner gate. If this one is closed once
    /// he waits he has to see that himself; if it is closed later he is called.
    pub(crate) fn add_part(&self, part: &Arc<Self>) {
        self.listener().parts.add(part);
    }

    /// Whether it rejects whoever comes, since it is closed.
    pub(crate) fn is_shut(&self) -> bool {
        !self.listener().is_disabled && self.with(|state| state.is_closed())
    }

    /// Rejects somebody who waits at an inner gate if this one is closed.
    ///
    /// # Errors
    /// That rejection, or what strikes meanwhile.
    pub(crate) fn refuse_if_shut(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
    ) -> PyResult<()> {
        if !self.is_shut() {
            return Ok(());
        }
        let criticality = asked.ask.criticality;
        let (refusal, told) = self.change_surely(py, |state, now| {
            (state.reject_if_closed(now, criticality), Wakes::none())
        });
        told?;
        refusal.map_or(Ok(()), |refusal| Err(self.refused(py, asked, operation, refusal)))
    }

    /// A rejection as Python has it.
    pub(crate) fn rejection(
        &self,
        py: Python<'_>,
        refusal: Refusal,
        operation: Option<Py<PyString>>,
    ) -> Rejection {
        let name = self.name().clone_ref(py);
        Rejection::new(Kind::Gate, name, refusal).with_operation(operation)
    }
}

impl Admits for Shared<Primitive<Waiter>> {
    fn admit(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
    ) -> PyResult<Option<Right>> {
        if self.listener().rate.is_none() {
            self.listener().pressures.look(py, self)?;
            // Who finds no room is looked at twice; who does is spared 30 ns, since what cannot
            // be refused needs no room for an answer that says why.
            let name = Name::of(py, operation);
            let text = name.text(py);
            let ask = gate_ask(asked, text.as_deref());
            if let Some(right) = self.with_time(py, |state, now| state.admit(now, &ask, &mut ()))? {
                return Ok(Some(right));
            }
        }
        match self.begin(py, asked, operation)? {
            Some(Ok(right)) => Ok(Some(right)),
            Some(Err(refusal)) => Err(self.refused(py, asked, operation, refusal)),
            None => Ok(None),
        }
    }

    fn join(
        &self,
        py: Python<'_>,
        asked: &Asked,
        operation: &Operation,
        waiter: Waiter,
    ) -> PyResult<Admission> {
        let name = Name::of(py, operation);
        let text = name.text(py);
        let ask = gate_ask(asked, text.as_deref());
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let mut rate = Charged::new(py, self)?;
        let (admission, delivered) =
            self.change(py, |state, now| state.acquire(now, &ask, &mut rate, &mut waiter))?;
        let undo = |admission| match admission {
            GateAdmission::Admitted(right) => self.annul(py, right, asked.tokens),
            GateAdmission::Waiting(ticket) => self.cancel(py, ticket),
            GateAdmission::Rejected(_) => Ok(()),
        };
        let admission = self.settle(py, admission, delivered, &rate, undo)?;
        Ok(match admission {
            GateAdmission::Admitted(right) => Admission::Admitted(right),
            GateAdmission::Waiting(ticket) => Admission::Waiting(ticket),
            GateAdmission::Rejected(refusal) => Admission::Rejected(refusal),
        })
    }

    fn claim(&self, py: Python<'_>, asked: &Asked, ticket: Ticket) -> PyResult<Claim> {
        let (claim, delivered) = self.change_surely(py, |state, now| state.claim(now, ticket));
        if let Err(error) = delivered {
            if let GateClaim::Admitted(right) = claim {
                self.annul(py, right, asked.tokens)?;
            }
            return Err(error);
        }
        match claim {
            GateClaim::Admitted(right) => Ok(Claim::Admitted(right)),
            GateClaim::Waiting => Ok(Claim::Waiting),
            GateClaim::Rejected(refusal) => Ok(Claim::Rejected(refusal)),
            GateClaim::Unknown => Err(wait::from_before_a_fork()),
        }
    }

    fn refused(
        &self,
        py: Python<'_>,
        _asked: &Asked,
        operation: &Operation,
        refusal: Refusal,
    ) -> PyErr {
        self.rejection(py, refusal, operation.get(py)).into_error(py)
    }

    fn release(
        &self,
        py: Python<'_>,
        right: Right,
        operation: Option<&Operation>,
        outcome: Outcome,
    ) -> PyResult<()> {
        let name = operation.map(|operation| Name::of(py, operation));
        let text = name.as_ref().and_then(|name| name.text(py));
        let text = text.as_deref();
        self.change_surely(py, |state, now| ((), state.release(now, right, text, outcome))).1
    }

    fn classify(&self, exception: &Bound<'_, PyAny>) -> (Outcome, PyResult<()>) {
        let py = exception.py();
        let Some(classify) = self.listener().classify.as_ref().filter(|_| !exception.is_none())
        else {
            return (permit::classify(exception), Ok(()));
        };
        let _calling = exit::Calling::new(py);
        let answer = classify.bind(py).call1((exception,));
        let raised = match answer.and_then(|answer| outcome_from(&answer)) {
            Ok(outcome) => return (outcome, Ok(())),
            Err(error) if error.is_instance_of::<PyException>(py) => {
                exit::report(py, error, None);
                Ok(())
            }
            Err(error) => Err(error),
        };
        // The permit is given back, whatever it raises.
        (permit::classify(exception), raised)
    }

    fn annul(&self, py: Python<'_>, right: Right, tokens: f64) -> PyResult<()> {
        let (has_paid, annulled) =
            self.change_surely(py, |state, now| state.annul_paid(now, right));
        annulled.and(give_back(py, self, if has_paid { tokens } else { 0.0 }))
    }

    fn charge(&self, py: Python<'_>, tokens: f64) -> PyResult<()> {
        match &self.listener().rate {
            Some(rate) => rate.get().charge(py, tokens),
            None => Ok(()),
        }
    }

    fn count_stray_release(&self) {
        self.with(Primitive::count_stray_release);
    }

    fn name(&self) -> &Py<PyString> {
        Shared::name(self)
    }
}
