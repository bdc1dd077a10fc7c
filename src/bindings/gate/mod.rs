mod core;
mod drain;
mod log;
mod pressures;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

pub(crate) use self::core::Core;
use self::core::{Around, Parts};
use drain::Drain;
use pressures::Pressures;

use super::acquire::{Acquire, Asked, Inner, Limiter, acquire_blocking};
use super::bucket::TokenBucket;
use super::clock::Clock;
use super::given::Given;
use super::limiter::BaseLimiter;
use super::names::Names;
use super::operation::Operation;
use super::permit::Permit;
use super::rejection::Rejection;
use super::scope;
use super::shared::Shared;
use super::wait::{self, refuse_on_event_loop};
use super::wait_for::{Errands, Wait};
use super::waiter::Station;
use super::{config, imports, kill_switch};
use crate::primitives::{
    ConfigError, Criticality, Gate as Primitive, GateConfig, GateLimit, LimitUpdate, MAX_CAPACITY,
    Position, Reserve, Time, TokenAsk, Waitable, Wakes, epoch,
};

/// Admission as one call; see `sluicegate.Gate`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct Gate {
    core: Arc<Core>,
}

static NAMES: Names = Names::new("gate");

const MAX_WAITING: &str = "an integer from 0 to 1e9, or None (automatic)";
const MAX_WAITING_UPDATE: &str = "an integer from 0 to 1e9, or \"auto\"";
const MAX_WAIT_UPDATE: &str = "a number of seconds from 0 to 3600, or \"auto\"";
const MAX_WAIT: &str = "a number of seconds from 0 to 3600, or None (automatic)";

impl Gate {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

#[pymethods]
impl Gate {
    #[new]
    #[pyo3(
        signature = (limit = None, *, name = None, max_waiting = None, max_wait = None, reserve = None, rate = None, pressure = None, classify = None, dry_run = Given::NOTHING, clock = None),
        text_signature = "(limit=None, *, name=None, max_waiting=None, max_wait=None, reserve=None, rate=None, pressure=None, classify=None, dry_run=False, clock=None)"
    )]
    #[allow(clippy::too_many_arguments)] // the keywords of a constructor
    fn new(
        py: Python<'_>,
        limit: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
        max_wait: Option<&Bound<'_, PyAny>>,
        reserve: Option<&Bound<'_, PyAny>>,
        rate: Option<&Bound<'_, PyAny>>,
        pressure: Option<&Bound<'_, PyAny>>,
        classify: Option<&Bound<'_, PyAny>>,
        dry_run: Given<'_, '_>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let pressures = Pressures::new(py, pressure)?;
        let config = GateConfig {
            limit: limit_of(limit)?,
            max_waiting: config::integer_or_none("max_waiting", MAX_WAITING, max_waiting)?,
            max_wait: seconds_or_none(max_wait)?,
            reserve: reserve_of(reserve)?,
            has_pressure: pressures.is_from_outside(),
            sheds_by_line: pressures.is_by_line(),
            seed: RandomState::new().build_hasher().finish(),
        };
        let mut primitive = Primitive::new(config)?;
        let dry_run = dry_run.get().map(|flag| config::flag("dry_run", flag)).transpose()?;
        let _ = primitive.set_dry_run(Time::ZERO, dry_run == Some(true));
        let around = Around {
            rate: bucket_of(rate)?,
            classify: config::hook("classify", classify)?,
            is_disabled: kill_switch::is_on(),
            pressures,
            parts: Parts::default(),
        };
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        if let Some(limiter) = limit.and_then(|limit| limit.cast::<BaseLimiter>().ok()) {
            limiter.get().give_to(py, &name)?;
        }
        Ok(Self { core: Shared::with_listener(primitive, name, clock, around) })
    }

    /// Admit now or reject now; never waits, and overtakes nobody who waits.
    #[pyo3(
        signature = (cost = Given::NOTHING, /, *, criticality = None, deadline = None, key = None, tokens = None, operation = None, inner = None, retry = Given::NOTHING),
        text_signature = "($self, cost=1, /, *, criticality=None, deadline=None, key=None, tokens=None, operation=None, inner=None, retry=False)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn try_acquire(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        inner: Option<&Bound<'_, PyAny>>,
        retry: Given<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let (asked, operation) =
            this.asked(py, cost, criticality, deadline, key, tokens, operation, retry)?;
        let inner = inner_of(slf, &asked, inner)?;
        if let Some(inner) = &inner
            && let Limiter::Gate(gate) = &inner.limiter
        {
            let core = &gate.get().core;
            match core.try_acquire(py, &inner.asked, operation.as_ref())? {
                Ok(right) => inner.fill(py, right)?,
                Err(refusal) => {
                    let rejection = core.rejection(py, refusal, operation);
                    return Ok(Py::new(py, rejection)?.into_any());
                }
            }
        }
        let answer = this.core.try_acquire(py, &asked, operation.as_ref());
        if !matches!(answer, Ok(Ok(_)))
            && let Some(inner) = &inner
            && let Some(right) = inner.right.take()
        {
            inner.limiter.annul(py, right, inner.asked.tokens)?;
        }
        match answer? {
            Ok(right) => {
                let permit = Permit::new(limiter(slf), right, asked.tokens, operation, inner);
                Ok(Py::new(py, permit)?.into_any())
            }
            Err(refusal) => {
                let rejection = this.core.rejection(py, refusal, operation);
                Ok(Py::new(py, rejection)?.into_any())
            }
        }
    }

    /// Do as `acquire()`, but answer at once where that is possible.
    #[pyo3(
        signature = (cost = Given::NOTHING, /, *, criticality = None, deadline = None, key = None, tokens = None, operation = None, inner = None, retry = Given::NOTHING),
        text_signature = "($self, cost=1, /, *, criticality=None, deadline=None, key=None, tokens=None, operation=None, inner=None, retry=False)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn _begin(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        inner: Option<&Bound<'_, PyAny>>,
        retry: Given<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let (asked, operation) =
            this.asked(py, cost, criticality, deadline, key, tokens, operation, retry)?;
        if inner.is_some() {
            let inner = inner_of(slf, &asked, inner)?;
            let wish = Acquire::new(limiter(slf), asked, operation, inner);
            return Ok(Py::new(py, wish)?.into_any());
        }
        match begin(slf, asked, operation)? {
            Begun::Admitted(permit) => Ok(Py::new(py, permit)?.into_any()),
            Begun::Rejected(rejection) => Ok(Py::new(py, rejection)?.into_any()),
            Begun::Waiting(wish) => Ok(wish.into_any()),
        }
    }

    /// Wait in line if need be, in `async with`, `await`, or in a thread `with`.
    #[pyo3(
        signature = (cost = Given::NOTHING, /, *, criticality = None, deadline = None, key = None, tokens = None, operation = None, inner = None, retry = Given::NOTHING),
        text_signature = "($self, cost=1, /, *, criticality=None, deadline=None, key=None, tokens=None, operation=None, inner=None, retry=False)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn acquire(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        inner: Option<&Bound<'_, PyAny>>,
        retry: Given<'_, '_>,
    ) -> PyResult<Py<Acquire>> {
        let py = slf.py();
        let (asked, operation) =
            slf.get().asked(py, cost, criticality, deadline, key, tokens, operation, retry)?;
        let inner = inner_of(slf, &asked, inner)?;
        Py::new(py, Acquire::new(limiter(slf), asked, operation, inner))
    }

    /// Wait in line if need be, in this thread, which lets other threads run.
    #[pyo3(
        signature = (cost = Given::NOTHING, /, *, criticality = None, deadline = None, key = None, tokens = None, operation = None, inner = None, retry = Given::NOTHING),
        text_signature = "($self, cost=1, /, *, criticality=None, deadline=None, key=None, tokens=None, operation=None, inner=None, retry=False)"
    )]
    #[allow(clippy::too_many_arguments)] // keywords
    fn acquire_sync(
        slf: &Bound<'_, Self>,
        cost: Given<'_, '_>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        inner: Option<&Bound<'_, PyAny>>,
        retry: Given<'_, '_>,
    ) -> PyResult<Permit> {
        let py = slf.py();
        let (asked, operation) =
            slf.get().asked(py, cost, criticality, deadline, key, tokens, operation, retry)?;
        refuse_on_event_loop(
            py,
            "acquire_sync(), or a function that is not async under guard(),",
            "await acquire(), or an async function",
        )?;
        let inner = inner_of(slf, &asked, inner)?;
        acquire_blocking(py, limiter(slf), &asked, operation, inner)
    }

    /// Change what is given; `None` leaves it as it is, and `"auto"` makes it automatic.
    #[pyo3(signature = (*, limit = None, max_waiting = None, max_wait = None, dry_run = None))]
    fn update(
        &self,
        py: Python<'_>,
        limit: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
        max_wait: Option<&Bound<'_, PyAny>>,
        dry_run: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let limit = limit.map(limit_update).transpose()?;
        let max_waiting = or_auto(max_waiting, |count| {
            let given: usize = config::integer("max_waiting", MAX_WAITING_UPDATE, count)?;
            if given > MAX_CAPACITY {
                let error = ConfigError::new("max_waiting", given, MAX_WAITING_UPDATE);
                return Err(error.into());
            }
            Ok(given)
        })?;
        let max_wait =
            or_auto(max_wait, |wait| config::seconds("max_wait", MAX_WAIT_UPDATE, wait))?;
        let dry_run = dry_run.map(|flag| config::flag("dry_run", flag)).transpose()?;
        let (updated, delivered) = self.core.change(py, |state, now| {
            let mut wakes = match state.update(now, limit, max_waiting, max_wait) {
                Ok(wakes) => wakes,
                Err(error) => return (Err(error), Wakes::none()),
            };
            if let Some(is_dry_run) = dry_run {
                wakes.extend_with(state.set_dry_run(now, is_dry_run));
            }
            (Ok(()), wakes)
        })?;
        updated?;
        delivered
    }

    /// Reject all who wait and whoever comes; what is in flight goes on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.core.close(py)
    }

    /// Close it, and wait until nothing is in flight; whether that is so in time.
    #[pyo3(signature = (timeout = None))]
    fn drain(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Wait> {
        let timeout = config::timeout(timeout)?;
        Ok(Wait::of(Errands::Other(Box::new(Drain::new(slf, timeout)))))
    }

    /// Do as `drain()`, in this thread, which lets other threads run.
    #[pyo3(signature = (timeout = None))]
    fn drain_sync(
        slf: &Bound<'_, Self>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let timeout = config::timeout(timeout)?;
        refuse_on_event_loop(slf.py(), "drain_sync()", "await drain()")?;
        wait::block(slf.py(), &Drain::new(slf, timeout))
    }

    /// Reject what is overdue, as every use of the gate does, and its timers do.
    fn expire(&self, py: Python<'_>) -> PyResult<()> {
        self.core.sweep(py, None)
    }

    /// What it is called in rejections, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        Shared::name(&self.core).clone_ref(py)
    }

    /// How many units may be in flight at once.
    #[getter]
    fn limit(&self) -> f64 {
        self.core.with(|state| state.limit())
    }

    /// The cost in flight, with what is granted; in a dry run, what would be.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.core.with(|state| state.in_flight())
    }

    /// How many wait in line.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.look(py, |state, _| state.waiting())
    }

    /// In flight / limit; 1 if the limit is 0.
    #[getter]
    fn saturation(&self) -> f64 {
        self.core.with(|state| state.saturation())
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.with(|state| state.is_closed())
    }

    /// Reject whoever comes, or by `None` nobody, and return what it was called with before.
    #[pyo3(signature = (reason, retry_after, /))]
    fn _reject<'py>(
        &self,
        py: Python<'py>,
        reason: Option<&Bound<'py, PyAny>>,
        retry_after: &Bound<'py, PyAny>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, f64)> {
        const RANGE: &str = "a number of seconds from 0 to 3600";
        let span = config::seconds("retry_after", RANGE, retry_after)?;
        let reason = reason.map(imports::reason_from).transpose()?;
        let with = reason.map(|reason| (reason, span));
        match self.core.with(|state| state.reject_all_who_come(with)) {
            Some((reason, span)) => Ok((Some(imports::reason(py, reason)?), span.as_secs_f64())),
            None => Ok((None, 0.0)),
        }
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (snapshot, next_expiry) =
            self.core.look(py, |state, now| (state.snapshot(now), state.next_expiry()))?;
        let values = PyDict::new(py);
        values.set_item("name", Shared::name(&self.core))?;
        values.set_item("limit", snapshot.limit)?;
        values.set_item("limit_because", snapshot.limit_because)?;
        values.set_item("in_flight", snapshot.in_flight)?;
        values.set_item("waiting", snapshot.waiting)?;
        values.set_item("max_waiting", snapshot.max_waiting)?;
        values.set_item("oldest_wait", snapshot.oldest_wait.as_secs_f64())?;
        values.set_item("wait_bound", snapshot.wait_bound.as_secs_f64())?;
        values.set_item("service_mean", snapshot.service_mean.as_secs_f64())?;
        values.set_item("service_p95", snapshot.service_p95.as_secs_f64())?;
        values.set_item("service_estimate", snapshot.service_estimate.as_secs_f64())?;
        values.set_item("threshold", imports::criticality(py, snapshot.threshold)?)?;
        values.set_item("saturation", snapshot.saturation)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", imports::reasons(py, &snapshot.rejected)?)?;
        values.set_item("outcomes", imports::outcomes(py, &snapshot.outcomes)?)?;
        values.set_item("revoked", snapshot.revoked)?;
        values.set_item("stray_releases", snapshot.stray_releases)?;
        values.set_item("dry_run", snapshot.is_dry_run)?;
        values.set_item("closed", snapshot.is_closed)?;
        values.set_item("disabled", self.core.listener().is_disabled)?;
        let pressure = PyDict::new(py);
        for (name, said) in self.core.listener().pressures.said() {
            pressure.set_item(name, said)?;
        }
        values.set_item("pressure", pressure)?;
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

impl Gate {
    /// What is asked for, and its name; what is left out is as the context says.
    #[allow(clippy::too_many_arguments)] // what can be asked
    #[inline]
    fn asked(
        &self,
        py: Python<'_>,
        cost: Given<'_, '_>,
        criticality: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        retry: Given<'_, '_>,
    ) -> PyResult<(Asked, Option<Py<PyString>>)> {
        let mut asked = Asked::from(config::ask(cost.get(), None)?);
        if let Some(retry) = retry.get() {
            asked.is_retry = config::flag("retry", retry)?;
        }
        let mut around = scope::asked(py)?;
        if let Some(criticality) = criticality {
            asked.ask.criticality = config::criticality(Some(criticality))?;
        } else if let Some(criticality) = around.as_ref().and_then(|around| around.criticality) {
            asked.ask.criticality = criticality;
        }
        if let Some(deadline) = deadline {
            let left = config::deadline(Some(deadline))?.unwrap_or_default();
            asked.deadline = Some(self.core.now(py)?.after(left));
        }
        // The one of the context is never extended.
        if let Some(deadline) = around.as_ref().and_then(|around| around.deadline.as_ref()) {
            let now = self.core.now(py)?;
            let at = deadline.get().moment_on(py, self.core.clock(), now)?;
            asked.deadline = Some(asked.deadline.map_or(at, |given| given.min(at)));
        }
        let key = match config::text("key", key)? {
            Some(key) => Some(key),
            None => around.as_mut().and_then(|around| around.key.take()),
        };
        asked.position = key.map(|key| position_of(key.bind(py)));
        if let Some(tokens) = tokens {
            asked.tokens = self.tokens(tokens)?;
        } else if let Some(tokens) = around.as_ref().and_then(|around| around.tokens) {
            self.check_tokens(tokens)?;
            asked.tokens = tokens;
        }
        let operation = match config::text("operation", operation)? {
            Some(operation) => Some(operation),
            None => around.as_mut().and_then(|around| around.operation.take()),
        };
        Ok((asked, operation))
    }

    /// How much of the rate; more than the burst would never be there.
    fn tokens(&self, tokens: &Bound<'_, PyAny>) -> PyResult<f64> {
        const RANGE: &str = "a number of tokens from 0 to the burst";
        let number = config::number("tokens", RANGE, tokens)?;
        if !(0.0..=1e9).contains(&number) {
            return Err(PyValueError::new_err(format!("tokens must be {RANGE}, got {number}")));
        }
        self.check_tokens(number)?;
        Ok(number)
    }

    fn check_tokens(&self, tokens: f64) -> PyResult<()> {
        match (&self.core.listener().rate, TokenAsk::new(tokens)) {
            (Some(rate), Ok(ask)) => {
                let bucket = rate.get().core();
                let (is_within, burst) =
                    bucket.with(|state| (state.check(&ask).is_ok(), state.burst()));
                if is_within {
                    return Ok(());
                }
                Err(PyValueError::new_err(format!(
                    "tokens must be a number of tokens from 0 to the burst, got {tokens} with a \
                     burst of {burst}"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// What comes of somebody who would wait.
pub(crate) enum Begun {
    Admitted(Permit),
    Rejected(Rejection),
    /// He has to, and has not begun to.
    Waiting(Py<Acquire>),
}

impl Gate {
    /// Asks for one unit, for whatever the context says.
    pub(crate) fn begin_one(slf: &Bound<'_, Self>) -> PyResult<Begun> {
        let nothing = Given::NOTHING;
        let (asked, operation) =
            slf.get().asked(slf.py(), nothing, None, None, None, None, None, nothing)?;
        begin(slf, asked, operation)
    }
}

fn begin(gate: &Bound<'_, Gate>, asked: Asked, operation: Option<Py<PyString>>) -> PyResult<Begun> {
    let (py, core) = (gate.py(), &gate.get().core);
    let name = Operation::new(operation.as_ref().map(|name| name.clone_ref(py)));
    Ok(match core.begin(py, &asked, &name)? {
        Some(Ok(right)) => {
            Begun::Admitted(Permit::new(limiter(gate), right, asked.tokens, operation, None))
        }
        Some(Err(refusal)) => Begun::Rejected(core.rejection(py, refusal, operation)),
        None => {
            let wish = Acquire::new(limiter(gate), asked, operation, None);
            Begun::Waiting(Py::new(py, wish)?)
        }
    })
}

/// Where a caller stands for this hour.
fn position_of(key: &Bound<'_, PyString>) -> Position {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Position::of_key(&*key.to_string_lossy(), epoch(since.as_secs()))
}

fn limiter(owner: &Bound<'_, Gate>) -> Limiter {
    Limiter::Gate(owner.clone().unbind())
}

/// The gate of a part, which is asked first, for the same.
fn inner_of(
    outer: &Bound<'_, Gate>,
    asked: &Asked,
    inner: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Box<Inner>>> {
    const RANGE: &str = "another Gate, or None";
    let Some(inner) = inner else { return Ok(None) };
    let Ok(gate) = inner.cast::<Gate>() else {
        return Err(config::wrong_type("inner", RANGE, inner));
    };
    if gate.is(outer) {
        return Err(PyValueError::new_err(format!("inner must be {RANGE}, got the same one")));
    }
    let mut asked = *asked;
    if let Some(deadline) = asked.deadline {
        let left = deadline.since(outer.get().core.now(outer.py())?);
        asked.deadline = Some(gate.get().core.now(outer.py())?.after(left));
    }
    gate.get().check_tokens(asked.tokens)?;
    Ok(Some(Box::new(Inner::new(limiter(gate), asked))))
}

fn limit_of(limit: Option<&Bound<'_, PyAny>>) -> PyResult<GateLimit> {
    const RANGE: &str = "a number above 0 and at most 1e9, a limiter, or None (automatic)";
    let Some(limit) = limit else { return Ok(GateLimit::default()) };
    if let Ok(limiter) = limit.cast::<BaseLimiter>() {
        return limiter.get().gate_limit(limit.py());
    }
    if limit.is_instance_of::<Gate>() {
        return Err(PyTypeError::new_err("limit must be a limiter and not a Gate"));
    }
    config::number("limit", RANGE, limit).map(GateLimit::Fixed)
}

fn limit_update(limit: &Bound<'_, PyAny>) -> PyResult<LimitUpdate> {
    const RANGE: &str = "a number from 0 (admits nobody) to 1e9, or \"auto\"";
    if is_auto(limit) {
        return Ok(LimitUpdate::Follow);
    }
    config::number("limit", RANGE, limit).map(LimitUpdate::Hold)
}

fn is_auto(value: &Bound<'_, PyAny>) -> bool {
    value.cast::<PyString>().is_ok_and(|text| *text == "auto")
}

/// What is given, if anything is, and `Some(None)` if it is to be automatic.
#[allow(clippy::option_option)] // as the gate takes it
fn or_auto<'a, 'py, T>(
    value: Option<&'a Bound<'py, PyAny>>,
    read: impl FnOnce(&'a Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<Option<T>>> {
    value.map(|value| if is_auto(value) { Ok(None) } else { read(value).map(Some) }).transpose()
}

fn seconds_or_none(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    value.map(|value| config::seconds("max_wait", MAX_WAIT, value)).transpose()
}

fn bucket_of(rate: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<TokenBucket>>> {
    let Some(rate) = rate else { return Ok(None) };
    match rate.cast::<TokenBucket>() {
        Ok(bucket) => Ok(Some(bucket.clone().unbind())),
        Err(_) => Err(config::wrong_type("rate", "a TokenBucket, or None", rate)),
    }
}

fn reserve_of(reserve: Option<&Bound<'_, PyAny>>) -> PyResult<Reserve> {
    const RANGE: &str = "a mapping of Criticality to a share from 0 to 1, or None";
    let Some(reserve) = reserve else { return Ok(Reserve::none()) };
    let items = reserve.call_method0("items");
    let items = items.map_err(|_| config::wrong_type("reserve", RANGE, reserve))?;
    let mut shares = Reserve::none();
    for item in items.try_iter()? {
        let (criticality, share): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let criticality: Criticality = config::criticality(Some(&criticality))
            .map_err(|_| config::wrong_type("reserve", RANGE, reserve))?;
        shares = shares.with(criticality, config::number("reserve", RANGE, &share)?);
    }
    Ok(shares)
}
