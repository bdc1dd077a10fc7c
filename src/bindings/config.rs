//! Parameters from Python: what is wrong is said with the parameter, the value
//! and the range.

use std::borrow::Cow;
use std::time::Duration;

use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use super::deadline::Deadline;
use super::{exit, imports};
use crate::primitives::{Ask, ConfigError, Criticality, TokenAsk};

const LONGEST_WAIT: f64 = 3600.0;

impl From<ConfigError> for PyErr {
    fn from(error: ConfigError) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// A real number; not a bool, not a string.
pub(crate) fn number(parameter: &str, range: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let wrong = || wrong_type(parameter, range, value);
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(number.value());
    }
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let _calling = exit::Calling::new(value.py());
    match value.extract() {
        Ok(number) => Ok(number),
        // An int that is too large for a float is out of range, not of a wrong type.
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(out_of_range(parameter, range, value))
        }
        Err(error) if error.is_instance_of::<PyException>(value.py()) => Err(wrong()),
        // Not of the value: a KeyboardInterrupt meanwhile.
        Err(error) => Err(error),
    }
}

/// True or false, and nothing that only counts as such.
pub(crate) fn flag(parameter: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.cast::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => Err(wrong_type(parameter, "True or False", value)),
    }
}

/// A string.
pub(crate) fn text(
    parameter: &str,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyString>>> {
    value
        .map(|value| match value.cast::<PyString>() {
            Ok(text) if text.is_exact_instance_of::<PyString>() => Ok(text.clone().unbind()),
            // Of a subclass, which may have methods of its own, only the text.
            Ok(text) => exact(text),
            Err(_) => Err(wrong_type(parameter, "a string or None", value)),
        })
        .transpose()
}

fn exact(text: &Bound<'_, PyString>) -> PyResult<Py<PyString>> {
    // SAFETY: attached, and it is a string. It returns a new reference to one that is
    // no instance of a subclass, or null with an exception set.
    let exact = unsafe {
        let copy = ffi::PyUnicode_FromObject(text.as_ptr());
        Bound::from_owned_ptr_or_err(text.py(), copy)?
    };
    Ok(exact.cast_into::<PyString>()?.unbind())
}

/// The name of an operation, as far as it is worth keeping: what is no valid text in
/// it is replaced, and what is longer than any name is cut.
pub(crate) fn operation(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Box<str>>> {
    let Some(value) = value else { return Ok(None) };
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type("operation", "a string or None", value));
    };
    Ok(Some(operation_text(text).into()))
}

/// The same of what is known to be a string.
pub(crate) fn operation_text<'a>(name: &'a Bound<'_, PyString>) -> Cow<'a, str> {
    const LONGEST: usize = 256;
    let end_of = |text: &str| {
        (0..=LONGEST.min(text.len())).rfind(|&end| text.is_char_boundary(end)).unwrap_or(0)
    };
    if let Ok(text) = name.to_str() {
        Cow::Borrowed(&text[..end_of(text)])
    } else {
        let text = name.to_string_lossy();
        Cow::Owned(text[..end_of(&text)].into())
    }
}

/// What is asked for: a cost, and for how long to wait.
#[inline]
pub(crate) fn ask(cost: Option<&Bound<'_, PyAny>>, timeout: Option<Duration>) -> PyResult<Ask> {
    let mut ask = match cost {
        None => Ask::one(),
        Some(value) => Ask::new(integer("cost", "an integer from 1 to 1e9", value)?)?,
    };
    ask.max_wait = timeout;
    Ok(ask)
}

/// What is asked of a bucket: tokens, and for how long to wait.
#[inline]
pub(crate) fn tokens(
    n: Option<&Bound<'_, PyAny>>,
    timeout: Option<Duration>,
) -> PyResult<TokenAsk> {
    const RANGE: &str = "a number of tokens from 1e-9 to the burst";
    let mut ask = match n {
        None => TokenAsk::one(),
        Some(n) => TokenAsk::new(number("n", RANGE, n)?)?,
    };
    ask.max_wait = timeout;
    Ok(ask)
}

/// How many tokens work takes, where nothing may be said.
pub(crate) fn tokens_or_none(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    const RANGE: &str = "a number of tokens from 1e-9 to 1e9, or None";
    let Some(value) = value else { return Ok(None) };
    let tokens = number("tokens", RANGE, value)?;
    if (1e-9..=1e9).contains(&tokens) {
        Ok(Some(tokens))
    } else {
        Err(out_of_range("tokens", RANGE, value))
    }
}

pub(crate) fn rate(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    number("rate", "a number that makes 1e-6 to 1e9 tokens a second", value)
}

/// For how many seconds a rate is meant.
pub(crate) fn per(value: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
    value.map_or(Ok(1.0), |per| number("per", "a number of seconds from 1e-9 to 1e9", per))
}

pub(crate) fn burst(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    value.map(|burst| number("burst", "a number of tokens from 1e-9 to 1e9", burst)).transpose()
}

/// An integer that fits; not a bool, not a float.
pub(crate) fn integer<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    parameter: &str,
    range: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(parameter, range, value));
    }
    let is_exact = value.is_exact_instance_of::<PyInt>();
    let _calling = (!is_exact).then(|| exit::Calling::new(value.py()));
    match value.extract() {
        Ok(integer) => Ok(integer),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(out_of_range(parameter, range, value))
        }
        Err(error) if error.is_instance_of::<PyException>(value.py()) => {
            Err(wrong_type(parameter, range, value))
        }
        Err(error) => Err(error),
    }
}

/// The same, where none may be given.
pub(crate) fn integer_or_none<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    parameter: &str,
    range: &str,
    value: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<T>> {
    value.map(|value| integer(parameter, range, value)).transpose()
}

/// How much work matters; critical if nothing is said.
#[inline]
pub(crate) fn criticality(value: Option<&Bound<'_, PyAny>>) -> PyResult<Criticality> {
    Ok(criticality_or_none(value)?.unwrap_or_default())
}

/// The same, where nothing may be said.
#[inline]
pub(crate) fn criticality_or_none(
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Criticality>> {
    const RANGE: &str = "a Criticality, or None";
    let Some(value) = value else { return Ok(None) };
    for class in Criticality::ALL {
        if imports::criticality(value.py(), class)?.is(value) {
            return Ok(Some(class));
        }
    }
    Err(wrong_type("criticality", RANGE, value))
}

/// The length of a window in seconds; its range is the primitive's.
pub(crate) fn window(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    const RANGE: &str = "a number of seconds above 0 and at most 3600";
    let seconds = number("window", RANGE, value)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| out_of_range("window", RANGE, value))
}

/// A time-out in seconds; `None` is without bound.
pub(crate) fn timeout(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    const RANGE: &str = "a number of seconds from 0 to 3600, or None to wait without bound";
    value.map(|value| seconds("timeout", RANGE, value)).transpose()
}

/// A deadline: what is left of it. A number is seconds from now.
pub(crate) fn deadline(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    match value.cast_exact::<Deadline>() {
        Ok(deadline) => deadline.get().left(value.py()).map(Some),
        Err(_) => seconds_from_now("deadline", DEADLINE, value).map(Some),
    }
}

/// A deadline as an object, which goes on from here to wherever it is asked.
pub(crate) fn deadline_object(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<Deadline>>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(deadline) = value.cast_exact::<Deadline>() {
        return Ok(Some(deadline.clone().unbind()));
    }
    let py = value.py();
    let span = seconds_from_now("deadline", DEADLINE, value)?;
    Py::new(py, Deadline::in_span(py, span)?).map(Some)
}

const DEADLINE: &str = "a number of seconds from now, at most 3600, a Deadline, or None";

/// A moment in so many seconds; one that has passed already is now.
pub(crate) fn seconds_from_now(
    parameter: &str,
    range: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Duration> {
    let seconds_left = number(parameter, range, value)?;
    if seconds_left < 0.0 && seconds_left.is_finite() {
        return Ok(Duration::ZERO);
    }
    seconds(parameter, range, value)
}

/// A number of seconds from 0 to 3600.
pub(crate) fn seconds(
    parameter: &str,
    range: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Duration> {
    let seconds = number(parameter, range, value)?;
    if (0.0..=LONGEST_WAIT).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let mut text = message(parameter, range, value)?;
    if seconds > LONGEST_WAIT && seconds.is_finite() {
        text.push_str(" (seconds, not milliseconds?)");
    }
    Err(PyValueError::new_err(text))
}

/// What is called for the user, if anything.
pub(crate) fn hook(
    parameter: &str,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    match value {
        Some(value) if !value.is_callable() || imports::is_coroutine_function(value)? => {
            Err(wrong_type(parameter, "callable and not async, or None", value))
        }
        value => Ok(value.map(|value| value.clone().unbind())),
    }
}

pub(crate) fn wrong_type(parameter: &str, range: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let class = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    match message(parameter, range, value) {
        Ok(text) => PyTypeError::new_err(format!("{text} ({class})")),
        Err(error) => error,
    }
}

pub(crate) fn out_of_range(parameter: &str, range: &str, value: &Bound<'_, PyAny>) -> PyErr {
    message(parameter, range, value).map_or_else(|error| error, PyValueError::new_err)
}

/// # Errors
/// What is no `Exception` and strikes meanwhile, such as a `KeyboardInterrupt`.
fn message(parameter: &str, range: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let _calling = exit::Calling::new(value.py());
    // A value whose repr raises or is endless must not hide what is wrong.
    let mut repr = match value.repr() {
        Ok(repr) => repr.to_string(),
        Err(error) if error.is_instance_of::<PyException>(value.py()) => "?".into(),
        Err(error) => return Err(error),
    };
    if repr.len() > 100 {
        repr = repr.chars().take(97).chain("...".chars()).collect();
    }
    Ok(format!("{parameter} must be {range}, got {repr}"))
}
