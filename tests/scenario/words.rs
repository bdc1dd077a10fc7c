//! The words of the files for what the primitives have types for.

use std::time::Duration;

use serde::Deserialize;
use sluicegate::primitives::{Criticality, Outcome};

use super::checks::Played;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    #[default]
    Success,
    Ignored,
    Overload,
}

impl From<Ending> for Outcome {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Success => Self::Success,
            Ending::Ignored => Self::Ignored,
            Ending::Overload => Self::Overload,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Exception {
    CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    Rejected,
    TimeoutError,
    ValueError,
}

/// How a permit classifies an exception that ends its block.
impl From<Exception> for Outcome {
    fn from(raises: Exception) -> Self {
        match raises {
            Exception::TimeoutError => Self::Overload,
            Exception::CancelledError
            | Exception::GeneratorExit
            | Exception::KeyboardInterrupt
            | Exception::Rejected
            | Exception::ValueError => Self::Ignored,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Sheddable,
    SheddablePlus,
    #[default]
    Critical,
    CriticalPlus,
}

impl From<Class> for Criticality {
    fn from(class: Class) -> Self {
        match class {
            Class::Sheddable => Self::Sheddable,
            Class::SheddablePlus => Self::SheddablePlus,
            Class::Critical => Self::Critical,
            Class::CriticalPlus => Self::CriticalPlus,
        }
    }
}

/// A span of a file, in seconds.
pub fn span(what: &str, seconds: f64) -> Played<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{what}: {error}"))
}

/// The answer to something that was asked several times.
pub fn same_answer(answers: impl IntoIterator<Item = &'static str>) -> &'static str {
    let mut answers = answers.into_iter();
    let first = answers.next().unwrap_or("done");
    if answers.all(|answer| answer == first) { first } else { "mixed" }
}

/// The name of each of several things that one step is about.
pub fn numbered(name: &str, times: Option<u32>) -> Vec<String> {
    match times {
        None => vec![name.into()],
        Some(times) => (1..=times).map(|number| format!("{name}-{number}")).collect(),
    }
}

/// The loop of a step that names none and needs one.
pub fn main_loop() -> String {
    "main".into()
}
