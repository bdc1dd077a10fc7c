//! The simulator: a scenario in, what came of it out, as JSON.

#![allow(clippy::needless_pass_by_value)] // so they are extracted

use std::io;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::{config, exit, imports};
use crate::sim::{self, Policy, Scenario};

/// Play a scenario; see `sluicegate.simulate`.
///
/// It is that of the file at `path`, or of `json`, and then `path` is the folder of
/// the files that it names. Gives the report as JSON. Other threads run meanwhile.
#[pyfunction]
#[pyo3(signature = (path, json, variant, policy, seed, /))]
pub(crate) fn simulate(
    py: Python<'_>,
    path: PathBuf,
    json: Option<&str>,
    variant: Option<&Bound<'_, PyAny>>,
    policy: Option<&Bound<'_, PyAny>>,
    seed: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let text = |parameter, value| -> PyResult<Option<String>> {
        let text = config::text(parameter, value)?;
        text.map(|text| Ok(text.bind(py).to_str()?.to_owned())).transpose()
    };
    let variant = text("variant", variant)?;
    let policy = text("policy", policy)?;
    let seed = config::integer("seed", "an integer from 0 to 2**64 - 1", seed)?;
    let is_main = imports::is_main_thread(py)?;
    let play = || -> Result<String, Failure> {
        let policy: Option<Policy> = policy.map(|text| text.parse()).transpose()?;
        let mut scenario = read(&path, json)?.choose(variant.as_deref())?;
        if let Some(policy) = policy {
            scenario = scenario.with_policy(&policy);
        }
        let report = sim::simulate(&scenario, seed)?;
        serde_json::to_string(&report).map_err(|error| Failure::Scenario(error.to_string()))
    };
    exit::detach(py, is_main, play).map_err(|failure| failure.into_error(py, &path))
}

/// Name the variants of a scenario, and say with how many seeds each is judged; see
/// `sluicegate.simulation.scenarios`.
#[pyfunction]
#[pyo3(signature = (path, json, /))]
pub(crate) fn variants(
    py: Python<'_>,
    path: PathBuf,
    json: Option<&str>,
) -> PyResult<Vec<(String, u64)>> {
    let is_main = imports::is_main_thread(py)?;
    let read = exit::detach(py, is_main, || read(&path, json));
    let found = read.map_err(|failure| failure.into_error(py, &path))?;
    let seeds: Vec<_> = found.scenarios.iter().map(|scenario| scenario.seeds).collect();
    Ok(found.names.into_iter().zip(seeds).collect())
}

/// The scenarios of a file, and what their variants are called.
struct Variants {
    scenarios: Vec<Scenario>,
    names: Vec<String>,
}

enum Failure {
    File(io::Error),
    Scenario(String),
}

impl From<sim::Error> for Failure {
    fn from(error: sim::Error) -> Self {
        Self::Scenario(error.to_string())
    }
}

impl Failure {
    fn into_error(self, py: Python<'_>, path: &Path) -> PyErr {
        match self {
            Self::Scenario(text) => PyValueError::new_err(text),
            Self::File(error) => {
                let Some(number) = error.raw_os_error() else {
                    return PyOSError::new_err(format!("{}: {error}", path.display()));
                };
                let text = py.import("os").and_then(|os| os.call_method1("strerror", (number,)));
                // Which makes a FileNotFoundError of it, or whatever the number stands for.
                text.map_or_else(
                    |error| error,
                    |text| PyOSError::new_err((number, text.unbind(), path.as_os_str().to_owned())),
                )
            }
        }
    }
}

fn read(path: &Path, json: Option<&str>) -> Result<Variants, Failure> {
    let (scenarios, file) = if let Some(json) = json {
        (Scenario::from_json(json, path)?, "scenario".into())
    } else {
        let content = Scenario::read(path).map_err(Failure::File)?;
        (
            Scenario::from_toml(&content, path)?,
            path.file_stem().unwrap_or_default().to_string_lossy(),
        )
    };
    let prefix = format!("{file}, ");
    let names = { scenarios.iter() }
        .map(|it| it.name.strip_prefix(&prefix).unwrap_or(&it.name).to_owned())
        .collect();
    Ok(Variants { scenarios, names })
}

impl Variants {
    fn choose(self, variant: Option<&str>) -> Result<Scenario, Failure> {
        let Self { mut scenarios, names } = self;
        let position = match variant {
            None if scenarios.len() == 1 => Some(0),
            None => None,
            Some(variant) => names.iter().position(|name| name == variant),
        };
        if let Some(position) = position {
            return Ok(scenarios.swap_remove(position));
        }
        let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
        let got = variant.map_or("None".to_owned(), |variant| format!("{variant:?}"));
        Err(Failure::Scenario(format!("variant must be one of {}, got {got}", names.join(", "))))
    }
}
