use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::clock::Clock;
use super::given::Given;
use super::names::Names;
use super::shared::{Hosted, Shared};
use super::wait::{self, Claimed, Joined, Quest, Words, refuse_on_event_loop};
use super::wait_for::{Errand, Wait};
use super::waiter::{self, Station, Waiter};
use super::{config, imports};
use crate::primitives::{
    Home, Reason, Taking, Ticket, Time, TokenAsk, TokenBucket as Bucket, Waitable, Wakes,
};

/// A token bucket; see `sluicegate.TokenBucket`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct TokenBucket {
    core: Arc<Core>,
}

pub(crate) type Core = Shared<Bucket<Waiter>>;

static NAMES: Names = Names::new("bucket");

#[pymethods]
impl TokenBucket {
    #[new]
    #[pyo3(
        signature = (rate, *, per = Given::NOTHING, burst = None, name = None, clock = None),
        text_signature = "(rate, *, per=1.0, burst=None, name=None, clock=None)"
    )]
    fn new(
        py: Python<'_>,
        rate: &Bound<'_, PyAny>,
        per: Given<'_, '_>,
        burst: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (rate, burst) = (config::rate(rate)?, config::burst(burst)?);
        let primitive = Bucket::new(rate, config::per(per.get())?, burst)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Shared::new(primitive, name, clock) })
    }

    /// Take the tokens now or not at all; never waits, and overtakes nobody who waits.
    #[pyo3(signature = (n = Given::NOTHING, /), text_signature = "($self, n=1, /)")]
    fn try_take(&self, py: Python<'_>, n: Given<'_, '_>) -> PyResult<bool> {
        let ask = config::tokens(n.get(), None)?;
        let answer = self.core.with_time(py, |state, now| {
            (!state.is_home_wanted()).then(|| state.try_take(now, &ask))
        })?;
        match answer {
            Some(answer) => Ok(answer?),
            None => self.try_take_from_here(py, ask),
        }
    }

    /// Take the tokens, and wait in line until they are there: `await bucket.take()`.
    #[pyo3(signature = (n = Given::NOTHING, /, *, timeout = None), text_signature = "($self, n=1, /, *, timeout=None)")]
    fn take(
        slf: &Bound<'_, Self>,
        n: Given<'_, '_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Wait> {
        Ok(Wait::new(Self::wish(slf, n, timeout)?))
    }

    /// Wait in line in this thread, which lets other threads run.
    #[pyo3(signature = (n = Given::NOTHING, /, *, timeout = None), text_signature = "($self, n=1, /, *, timeout=None)")]
    fn take_sync(
        slf: &Bound<'_, Self>,
        n: Given<'_, '_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, wish) = (slf.py(), Self::wish(slf, n, timeout)?);
        refuse_on_event_loop(py, "take_sync()", "await take()")?;
        wait::block(py, &wish).map(drop)
    }

    /// Correct what was taken when the true price is known.
    #[pyo3(signature = (n, /))]
    fn adjust(&self, py: Python<'_>, n: &Bound<'_, PyAny>) -> PyResult<()> {
        let n = config::number("n", "a number of tokens from -1e9 to 1e9", n)?;
        let (adjusted, delivered) =
            self.core.change_surely(py, |state, now| match state.adjust(now, n) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            });
        adjusted?;
        delivered
    }

    /// Let nobody take for so many seconds, as whoever is called asks for by `Retry-After`.
    #[pyo3(signature = (seconds, /))]
    fn pause(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        const RANGE: &str = "a number of seconds from 0 to 3600";
        let span = config::seconds("seconds", RANGE, seconds)?;
        self.core.change_surely(py, |state, now| ((), state.pause(now, span))).1
    }

    /// Return in how many seconds `try_take(n)` will succeed if nobody else comes.
    #[pyo3(signature = (n = Given::NOTHING, /), text_signature = "($self, n=1, /)")]
    fn retry_after(&self, py: Python<'_>, n: Given<'_, '_>) -> PyResult<f64> {
        let ask = config::tokens(n.get(), None)?;
        let span = self.core.with_time(py, |state, now| state.retry_after(now, &ask))??;
        Ok(span.as_secs_f64())
    }

    /// Change the rate, the burst, or both, also while others wait.
    #[pyo3(signature = (*, rate = None, burst = None))]
    fn update(
        &self,
        py: Python<'_>,
        rate: Option<&Bound<'_, PyAny>>,
        burst: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (rate, burst) = (rate.map(config::rate).transpose()?, config::burst(burst)?);
        let (updated, delivered) =
            self.core.change(py, |state, now| match state.update(now, rate, burst) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            })?;
        updated?;
        delivered
    }

    /// What it is called in errors, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// How many tokens come in every `per` seconds.
    #[getter]
    fn rate(&self) -> f64 {
        self.core.with(|state| state.rate())
    }

    /// How many seconds the rate is meant for.
    #[getter]
    fn per(&self) -> f64 {
        self.core.with(|state| state.per())
    }

    /// How many tokens it holds at most.
    #[getter]
    fn burst(&self) -> f64 {
        self.core.with(|state| state.burst())
    }

    /// How many tokens are in it; negative in debt.
    #[getter]
    fn tokens(&self, py: Python<'_>) -> PyResult<f64> {
        self.core.with_time(py, |state, now| state.tokens(now))
    }

    /// How many wait in line.
    #[getter]
    fn waiting(&self) -> usize {
        self.core.with(|state| state.waiting())
    }

    /// The values of a snapshot, by name; and when something falls due next, which
    /// only tests look at.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (snapshot, next_expiry) =
            self.core.with_time(py, |state, now| (state.snapshot(now), state.next_expiry()))?;
        let values = PyDict::new(py);
        values.set_item("rate", snapshot.rate)?;
        values.set_item("per", snapshot.per)?;
        values.set_item("burst", snapshot.burst)?;
        values.set_item("tokens", snapshot.tokens)?;
        values.set_item("waiting", snapshot.waiting)?;
        values.set_item("oldest_wait", snapshot.oldest_wait.as_secs_f64())?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", imports::reasons(py, &snapshot.rejected)?)?;
        values.set_item("revoked", snapshot.revoked)?;
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

impl TokenBucket {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Charges so much more, if need be into debt, or gives it back if it is negative.
    pub(crate) fn charge(&self, py: Python<'_>, tokens: f64) -> PyResult<()> {
        let (adjusted, delivered) =
            self.core.change_surely(py, |state, now| match state.adjust(now, -tokens) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            });
        adjusted?;
        delivered
    }

    /// What cannot be is refused where it is asked for, and not where it is awaited.
    fn wish(
        slf: &Bound<'_, Self>,
        n: Given<'_, '_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Wish> {
        let ask = config::tokens(n.get(), config::timeout(timeout)?)?;
        slf.get().core.with(|state| state.check(&ask))?;
        Ok(Wish { bucket: slf.clone().unbind(), ask })
    }

    /// Off the fast path: who asks matters only while somebody waits.
    #[cold]
    fn try_take_from_here(&self, py: Python<'_>, mut ask: TokenAsk) -> PyResult<bool> {
        ask.home = Some(waiter::home(py)?);
        let (answer, delivered) =
            self.core.change(py, |state, now| state.try_take_behind(now, &ask))?;
        let is_taken = answer?;
        if let Err(error) = delivered {
            self.refund_unless(py, !is_taken, &ask)?;
            return Err(error);
        }
        Ok(is_taken)
    }

    /// Gives back what nobody hears of.
    fn refund_unless(&self, py: Python<'_>, is_over: bool, ask: &TokenAsk) -> PyResult<()> {
        if is_over {
            return Ok(());
        }
        self.core.change_surely(py, |state, now| ((), state.refund(now, ask))).1
    }
}

static WORDS: Words = Words {
    call: "a take()",
    again: "take()",
    waiting: "waiting for tokens",
    elsewhere: "try_take(), or take_sync() in a thread",
};

/// Tokens that somebody may have to wait for.
struct Wish {
    bucket: Py<TokenBucket>,
    ask: TokenAsk,
}

impl Wish {
    fn bucket(&self) -> &TokenBucket {
        self.bucket.get()
    }

    fn timed_out(&self, py: Python<'_>) -> PyErr {
        let name = self.bucket().core.name().bind(py).to_string();
        let (n, span) = (self.ask.tokens(), self.ask.max_wait.unwrap_or_default().as_secs_f64());
        imports::timed_out(py, format!("no tokens of {name:?} (n={n}) within {span} s"))
    }
}

impl Quest for Wish {
    type Gain = Py<PyAny>;

    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn station(&self) -> &dyn Station {
        &*self.bucket().core
    }

    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let is_taken = self.bucket().core.with_time(py, |state, now| {
            if state.is_home_wanted() { Ok(false) } else { state.admit(now, &self.ask) }
        })??;
        Ok(is_taken.then(|| py.None()))
    }

    fn join(&self, py: Python<'_>, home: Home, waiter: Waiter) -> PyResult<Joined<Py<PyAny>>> {
        let core = &self.bucket().core;
        let mut ask = self.ask;
        ask.home = Some(home);
        // What is not taken into the line is dropped after the lock.
        let mut waiter = Some(waiter);
        let (taking, delivered) =
            core.change(py, |state, now| state.take(now, &ask, &mut waiter))?;
        let taking = taking?;
        if let Err(error) = delivered {
            match taking {
                Taking::Waiting(ticket) => core.cancel(py, ticket)?,
                Taking::Taken { .. } => self.bucket().refund_unless(py, false, &ask)?,
                Taking::Refused(_) => {}
            }
            return Err(error);
        }
        match taking {
            Taking::Taken { .. } => Ok(Joined::Gained(py.None())),
            Taking::Waiting(ticket) => Ok(Joined::Waiting(ticket)),
            Taking::Refused(_) => Err(self.timed_out(py)),
        }
    }

    fn claim(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Claimed<Py<PyAny>>> {
        let (taking, delivered) =
            self.bucket().core.change_surely(py, |state, now| state.claim(now, ticket));
        if let Err(error) = delivered {
            let is_taken = matches!(taking, Taking::Taken { .. });
            self.bucket().refund_unless(py, !is_taken, &self.ask)?;
            return Err(error);
        }
        match taking {
            Taking::Taken { .. } => Ok(Claimed::Gained(py.None())),
            Taking::Waiting(_) => Ok(Claimed::Waiting),
            Taking::Refused(Reason::Wait) => Err(self.timed_out(py)),
            Taking::Refused(_) => Err(wait::from_before_a_fork()),
        }
    }
}

impl Errand for Wish {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.bucket)
    }
}

impl Hosted for Bucket<Waiter> {
    type Listener = ();
}
