use std::borrow::Cow;
use std::time::Duration;

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::clock::Clock;
use super::config;
use super::given::Given;
use super::locked::{BeginsAnew, Locked};
use super::names::Names;
use crate::primitives::KeyedTokenBucket as Bucket;

/// One token bucket for each key; see `sluicegate.KeyedTokenBucket`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct KeyedTokenBucket {
    core: Locked<Bucket>,
}

/// In how many seconds the tokens are there, if they were not taken; then in whole ones
/// the tokens that are left, in how many seconds there is one more, how many there can
/// be, and in how many seconds those come.
type Told = (Option<f64>, u64, Option<u64>, u64, u64);

static NAMES: Names = Names::new("keyed-bucket");

const MAX_KEYS: u32 = 10_000;

/// The largest integer of a structured field, RFC 9651.
const LONGEST_WINDOW: u64 = 999_999_999_999_999;

#[pymethods]
impl KeyedTokenBucket {
    #[new]
    #[pyo3(
        signature = (rate, *, per = Given::NOTHING, burst = None, max_keys = Given::NOTHING, name = None, clock = None),
        text_signature = "(rate, *, per=1.0, burst=None, max_keys=10000, name=None, clock=None)"
    )]
    fn new(
        py: Python<'_>,
        rate: &Bound<'_, PyAny>,
        per: Given<'_, '_>,
        burst: Option<&Bound<'_, PyAny>>,
        max_keys: Given<'_, '_>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (rate, per, burst) =
            (config::rate(rate)?, config::per(per.get())?, config::burst(burst)?);
        let max_keys = max_keys.get().map_or(Ok(MAX_KEYS), |max_keys| {
            config::integer("max_keys", "an integer from 1 to 1e7", max_keys)
        })?;
        let primitive = Bucket::new(rate, per, burst, max_keys)?;
        let clock = Clock::new(clock)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Locked::new(primitive, name, clock) })
    }

    /// Take the tokens of a key now or not at all.
    #[pyo3(signature = (key, n = Given::NOTHING, /), text_signature = "($self, key, n=1, /)")]
    fn try_take(&self, py: Python<'_>, key: &Bound<'_, PyAny>, n: Given<'_, '_>) -> PyResult<bool> {
        let (key, ask) = (text_of(key)?, config::tokens(n.get(), None)?);
        let key = bytes_of(key)?;
        Ok(self.core.with_time(py, |state, now| state.try_take(now, &key, &ask))??)
    }

    /// The same, answered by what a client is told.
    #[pyo3(signature = (key, n = Given::NOTHING, /), text_signature = "($self, key, n=1, /)")]
    fn _take_from_quota(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        n: Given<'_, '_>,
    ) -> PyResult<Told> {
        let (key, ask) = (text_of(key)?, config::tokens(n.get(), None)?);
        let key = bytes_of(key)?;
        let taken =
            self.core.with_time(py, |state, now| state.take_from_quota(now, &key, &ask))??;
        Ok((
            taken.retry_after.map(|span| span.as_secs_f64()),
            taken.remaining,
            taken.more_after.map(whole_seconds),
            taken.quota,
            taken.window.min(LONGEST_WINDOW),
        ))
    }

    /// Return how many tokens a key has now, without taking any.
    #[pyo3(signature = (key, /))]
    fn tokens(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<f64> {
        let key = bytes_of(text_of(key)?)?;
        self.core.with_time(py, |state, now| state.tokens(now, &key))
    }

    /// Return in how many seconds `try_take(key, n)` will succeed if nobody else comes.
    #[pyo3(signature = (key, n = Given::NOTHING, /), text_signature = "($self, key, n=1, /)")]
    fn retry_after(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        n: Given<'_, '_>,
    ) -> PyResult<f64> {
        let (key, ask) = (text_of(key)?, config::tokens(n.get(), None)?);
        let key = bytes_of(key)?;
        let span = self.core.with_time(py, |state, now| state.retry_after(now, &key, &ask))??;
        Ok(span.as_secs_f64())
    }

    /// Change the rate, the burst, or both, for all keys.
    #[pyo3(signature = (*, rate = None, burst = None))]
    fn update(
        &self,
        py: Python<'_>,
        rate: Option<&Bound<'_, PyAny>>,
        burst: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (rate, burst) = (rate.map(config::rate).transpose()?, config::burst(burst)?);
        Ok(self.core.with_time(py, |state, now| state.update(now, rate, burst))??)
    }

    /// What it is called in snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// How many tokens come for each key in every `per` seconds.
    #[getter]
    fn rate(&self) -> f64 {
        self.core.with(|state| state.rate())
    }

    /// How many seconds the rate is meant for.
    #[getter]
    fn per(&self) -> f64 {
        self.core.with(|state| state.per())
    }

    /// How many tokens a key can have at most.
    #[getter]
    fn burst(&self) -> f64 {
        self.core.with(|state| state.burst())
    }

    /// How many keys have a bucket of their own.
    #[getter]
    fn keys(&self) -> usize {
        self.core.with(|state| state.keys())
    }

    /// How many keys can have one.
    #[getter]
    fn max_keys(&self) -> usize {
        self.core.with(|state| state.max_keys())
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = self.core.with(|state| state.snapshot());
        let values = PyDict::new(py);
        values.set_item("rate", snapshot.rate)?;
        values.set_item("per", snapshot.per)?;
        values.set_item("burst", snapshot.burst)?;
        values.set_item("keys", snapshot.keys)?;
        values.set_item("max_keys", snapshot.max_keys)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", snapshot.rejected)?;
        values.set_item("overflowed", snapshot.overflowed)?;
        Ok(values)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.traverse(&visit)
    }
}

/// As a header field says it: rounded up, at least 1, and no more than 31 bits hold.
fn whole_seconds(span: Duration) -> u64 {
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    seconds.clamp(1, i32::MAX.unsigned_abs().into())
}

fn text_of<'a, 'py>(key: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyString>> {
    key.cast().map_err(|_| config::wrong_type("key", "a string", key))
}

/// UTF-8, in which a lone surrogate, as it comes with undecodable input, has its own
/// encoding.
fn bytes_of<'a>(key: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, [u8]>> {
    match key.to_str() {
        Ok(text) => Ok(Cow::Borrowed(text.as_bytes())),
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(key.py()) => {
            let encoded =
                key.call_method1(intern!(key.py(), "encode"), ("utf-8", "surrogatepass"))?;
            Ok(Cow::Owned(encoded.cast::<PyBytes>()?.as_bytes().to_vec()))
        }
        Err(error) => Err(error),
    }
}

impl BeginsAnew for Bucket {
    /// Nobody waits here, and what was taken stays taken.
    fn begin_anew(&mut self) {}
}
