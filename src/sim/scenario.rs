//! What a load scenario says, as it stands in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::changing::Changing;
use super::distribution::Distribution;
use super::expect::Expectation;
use super::file;
use super::policy::Policy;
use super::trace::Trace;
use crate::primitives::{ConfigError, Criticality, Outcome};

/// In bytes.
const MOST_OF_A_FILE: u64 = 64 << 20;
/// How many points a series may have.
const MOST_STEPS: f64 = 1e6;

/// What is wrong with a scenario: what, where, and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(super) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self(error.to_string())
    }
}

/// A load scenario: who sends what, through which policies, to which servers, and
/// what has to come of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called; the name of its file.
    #[serde(default)]
    pub name: String,
    /// What it is about.
    #[serde(default)]
    pub about: String,
    /// For how long there are arrivals, in seconds.
    pub seconds: f64,
    /// With how many seeds, from 1 on, it is judged.
    #[serde(default = "one")]
    pub seeds: u64,
    /// How much time one point of the series covers, in seconds.
    #[serde(default = "second")]
    pub step: f64,
    pub(super) arrivals: Vec<Arrivals>,
    #[serde(default)]
    pub(super) client: Client,
    #[serde(rename = "stage")]
    pub(super) stages: Vec<Stage>,
    #[serde(default)]
    pub(super) expect: Vec<Expectation>,
}

/// One source of requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arrivals {
    /// What its requests are called in the results.
    #[serde(default = "requests")]
    pub(super) class: String,
    #[serde(default)]
    pub(super) process: Process,
    /// Per second.
    pub(super) rate: Option<Changing<f64>>,
    /// The same, straight from one point to the next: `[[seconds, rate], …]`.
    pub(super) ramp: Option<Vec<(f64, f64)>>,
    /// The same from a file, a point each row.
    pub(super) rates: Option<Rates>,
    /// Each row of a file is a request.
    pub(super) trace: Option<Requests>,
    /// At these moments, in seconds.
    pub(super) times: Option<Vec<f64>>,
    /// So many send one request after the other.
    pub(super) users: Option<u32>,
    /// What lies between an answer and the next request of a user.
    pub(super) think: Option<Distribution>,
    #[serde(default)]
    pub(super) criticality: Level,
    pub(super) operation: Option<String>,
    pub(super) client: Option<Client>,
    /// What stands in the file of `trace` or `rates`: read once, and played with each seed.
    #[serde(skip)]
    pub(super) table: Arc<Trace>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Process {
    #[default]
    Poisson,
    /// One like the other.
    Constant,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rates {
    pub(super) file: PathBuf,
    pub(super) time: String,
    pub(super) rate: String,
    #[serde(default = "unchanged")]
    pub(super) scale: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requests {
    pub(super) file: PathBuf,
    pub(super) time: String,
    /// By how much faster it is played.
    #[serde(default = "unchanged")]
    pub(super) speed: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Sheddable,
    SheddablePlus,
    #[default]
    Critical,
    CriticalPlus,
}

impl From<Level> for Criticality {
    fn from(level: Level) -> Self {
        match level {
            Level::Sheddable => Self::Sheddable,
            Level::SheddablePlus => Self::SheddablePlus,
            Level::Critical => Self::Critical,
            Level::CriticalPlus => Self::CriticalPlus,
        }
    }
}

/// Whoever sends a request, and what they do when it fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Client {
    /// How long an attempt waits for its answer, in seconds.
    pub(super) timeout: Option<f64>,
    /// What happens to the work of an attempt that has timed out.
    pub(super) on_timeout: OnTimeout,
    /// The deadline that is told to the server, in seconds from the start of an
    /// attempt.
    pub(super) deadline: Option<f64>,
    /// How long a message takes, each way.
    pub(super) network: Option<Distribution>,
    /// How often a request is tried at most.
    pub(super) attempts: u32,
    pub(super) retry: Retry,
    pub(super) throttle: Option<Throttle>,
    pub(super) budget: Option<Budget>,
    /// How many there are, each with a throttle and a budget of its own.
    pub(super) processes: u32,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            timeout: None,
            on_timeout: OnTimeout::default(),
            deadline: None,
            network: None,
            attempts: 1,
            retry: Retry::default(),
            throttle: None,
            budget: None,
            processes: 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnTimeout {
    /// The server does not hear of it.
    #[default]
    GoOn,
    /// The permits are given back as ignored, and the work goes on.
    Release,
    /// The same, and the work ends.
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    /// What lies between the first failure and the next attempt, in seconds.
    pub(super) wait: f64,
    /// By how much that grows with each.
    pub(super) factor: f64,
    pub(super) max_wait: f64,
    pub(super) jitter: Jitter,
    /// Whether a rejection that says when to come back is obeyed.
    pub(super) as_told: bool,
    pub(super) on: Vec<Failure>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            wait: 0.0,
            factor: 2.0,
            max_wait: 60.0,
            jitter: Jitter::None,
            as_told: false,
            on: vec![Failure::Timeout, Failure::Rejected, Failure::Failed],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Jitter {
    None,
    /// Even from 0 to the whole wait.
    Full,
    /// Half of the wait, and even up to the whole.
    Equal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    Timeout,
    Rejected,
    /// An answer that is none.
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throttle {
    pub(super) k: Option<f64>,
    pub(super) window: Option<f64>,
    pub(super) max_rejection: Option<f64>,
    pub(super) min_requests: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) ratio: Option<f64>,
    pub(super) floor: Option<f64>,
    pub(super) window: Option<f64>,
}

/// A service, and what stands before it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stage {
    #[serde(default)]
    pub(super) policy: Policy,
    /// Whether the policy is told the operation of a request.
    #[serde(default = "yes")]
    pub(super) named: bool,
    /// How many units of work it does at a time; as many as there are if not given.
    pub(super) workers: Option<Changing<u32>>,
    /// How long a worker works on a request.
    #[serde(default = "nothing")]
    pub(super) service: Changing<Distribution>,
    /// The same, for named operations.
    #[serde(default)]
    pub(super) operations: BTreeMap<String, Changing<Distribution>>,
    /// What is added without work.
    pub(super) delay: Option<Changing<Distribution>>,
    /// The same for each request that is in flight, in seconds.
    #[serde(default)]
    pub(super) delay_per_in_flight: f64,
    /// How fast it works, of 1.
    #[serde(default = "full_speed")]
    pub(super) speed: Changing<f64>,
    /// Stops that come again and again.
    pub(super) stops: Option<Stops>,
    /// What a rejection costs of a worker's time, in seconds.
    #[serde(default)]
    pub(super) rejection_cost: f64,
    /// What becomes of the work.
    #[serde(default = "success")]
    pub(super) outcome: Changing<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stops {
    pub(super) every: f64,
    pub(super) length: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Success,
    Ignored,
    Overload,
}

impl From<End> for Outcome {
    fn from(end: End) -> Self {
        match end {
            End::Success => Self::Success,
            End::Ignored => Self::Ignored,
            End::Overload => Self::Overload,
        }
    }
}

/// What a file should have said, in words of the file and not of the program.
fn in_words(error: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("f64", "a number"),
        ("u64", "an integer from 0 to 2**64 - 1"),
        ("u32", "an integer from 0 to 2**32 - 1"),
        ("a sequence", "a list"),
        ("a tuple of size 2", "a list of two"),
        ("string or map", "a name or a table"),
        ("a map", "a table"),
        ("struct ", "a table"),
    ];
    let Some((found, expected)) = error.split_once(", expected ") else {
        return error.to_owned();
    };
    let known = WORDS.iter().find(|(word, _)| expected.starts_with(word));
    let expected = known.map_or(expected, |(_, words)| words);
    format!("{}, expected {expected}", found.replace("floating point", "number"))
}

impl Scenario {
    /// Reads a file: one scenario, or one for each of its variants.
    ///
    /// # Errors
    /// If it cannot be read, or does not say what it has to.
    pub fn load(path: &Path) -> Result<Vec<Self>, Error> {
        let content = Self::read(path);
        let content = content.map_err(|error| Error(format!("{}: {error}", path.display())))?;
        Self::from_toml(&content, path)
    }

    /// What a file holds, for [`from_toml`](Self::from_toml).
    ///
    /// # Errors
    /// If it cannot be read, or is larger than 64 MiB.
    pub fn read(path: &Path) -> io::Result<Vec<u8>> {
        file::read(path, MOST_OF_A_FILE)
    }

    /// Reads what the file at `path` holds.
    ///
    /// # Errors
    /// If it does not say what it has to.
    pub fn from_toml(content: &[u8], path: &Path) -> Result<Vec<Self>, Error> {
        let named = |error: String| Error(format!("{}: {error}", path.display()));
        let text = std::str::from_utf8(content).map_err(|error| named(error.to_string()))?;
        let table: toml::Table = toml::from_str(text).map_err(|error| named(error.to_string()))?;
        for (key, value) in &table {
            check_finite(key, value).map_err(|Error(error)| named(error))?;
        }
        let value = serde_json::to_value(table).map_err(|error| named(error.to_string()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_value(value, &name, folder).map_err(|Error(error)| named(error))
    }

    /// The same from JSON; the files that it names are looked for in `folder`.
    ///
    /// # Errors
    /// As of [`load`](Self::load).
    pub fn from_json(text: &str, folder: &Path) -> Result<Vec<Self>, Error> {
        let value = serde_json::from_str(text).map_err(|error| Error(error.to_string()))?;
        Self::from_value(value, "scenario", folder)
    }

    fn from_value(mut whole: Value, name: &str, folder: &Path) -> Result<Vec<Self>, Error> {
        let read = |value: Value| -> Result<Self, Error> {
            serde_path_to_error::deserialize(value)
                .map_err(|error| Error(in_words(&error.to_string())))
        };
        let variants = whole.as_object_mut().and_then(|table| table.remove("variants"));
        let mut scenarios = Vec::new();
        match variants {
            None => scenarios.push(read(whole)?),
            Some(Value::Array(variants)) if !variants.is_empty() => {
                for variant in variants {
                    let mut merged = whole.clone();
                    merge(&mut merged, variant);
                    scenarios.push(read(merged)?);
                }
            }
            Some(_) => {
                return Err(Error("variants must be a list of tables, of one at least".to_owned()));
            }
        }
        for scenario in &mut scenarios {
            scenario.name = match scenario.name.as_str() {
                "" => name.to_owned(),
                variant => format!("{name}, {variant}"),
            };
            scenario.check(folder)?;
        }
        let mut names = BTreeSet::new();
        if let Some(twin) = scenarios.iter().find(|scenario| !names.insert(&scenario.name)) {
            return Err(Error(format!(
                "each variant needs a name of its own, got {:?}",
                twin.name
            )));
        }
        Ok(scenarios)
    }

    /// With another policy in front of its first stage.
    #[must_use]
    pub fn with_policy(mut self, policy: &Policy) -> Self {
        if let Some(first) = self.stages.first_mut() {
            first.policy = policy.clone();
        }
        self
    }

    /// What stands before its first stage.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.stages.first().map(|stage| &stage.policy)
    }

    /// Reads the files that it names, too.
    fn check(&mut self, folder: &Path) -> Result<(), Error> {
        self.seconds.is_within(1e-3..=1e6, "seconds", "a number")?;
        let least = (self.seconds / MOST_STEPS).max(1e-3);
        self.step.is_within(least..=1e6, "step", "a number of seconds")?;
        (self.seeds as f64).is_within(1.0..=1000.0, "seeds", "an integer")?;
        for (what, count) in [("arrivals", self.arrivals.len()), ("stage", self.stages.len())] {
            (count as f64).is_within(1.0..=100.0, what, "a list of tables, in number")?;
        }
        self.client.check()?;
        for arrivals in &self.arrivals {
            arrivals.check()?;
        }
        let mut traces = Vec::new();
        for arrivals in &mut self.arrivals {
            if let Some(requests) = &arrivals.trace {
                arrivals.table = Trace::read(&folder.join(&requests.file))?.into();
                arrivals.table.moments(&requests.time, false)?;
                traces.push(Arc::clone(&arrivals.table));
            }
            if let Some(rates) = &arrivals.rates {
                arrivals.table = Trace::read(&folder.join(&rates.file))?.into();
                rates.points(&arrivals.table)?;
            }
        }
        self.stages.iter().try_for_each(|stage| stage.check(&traces))?;
        self.expect.iter().try_for_each(|expectation| expectation.check(self))
    }

    pub(super) fn classes(&self) -> Vec<&str> {
        let mut classes: Vec<&str> = Vec::new();
        for arrivals in &self.arrivals {
            if !classes.contains(&arrivals.class.as_str()) {
                classes.push(&arrivals.class);
            }
        }
        classes
    }
}

impl Arrivals {
    fn check(&self) -> Result<(), Error> {
        let ways = [
            self.rate.is_some(),
            self.ramp.is_some(),
            self.rates.is_some(),
            self.trace.is_some(),
            self.times.is_some(),
            self.users.is_some(),
        ];
        if ways.iter().filter(|is_given| **is_given).count() != 1 {
            let error = "arrivals need one of rate, ramp, rates, trace, times and users";
            return Err(Error(error.to_owned()));
        }
        let rate = |rate: &f64| rate.is_within(0.0..=1e7, "rate", "a number per second");
        self.rate.iter().flat_map(Changing::values).try_for_each(rate)?;
        let ramp = self.ramp.iter().flatten();
        ramp.clone().map(|(_, rate)| rate).try_for_each(rate)?;
        ramp.map(|(at, _)| at)
            .try_for_each(|at| at.is_within(0.0..=1e6, "ramp", "a number of seconds"))?;
        let is_sorted = |points: &Vec<(f64, f64)>| points.windows(2).all(|two| two[0].0 < two[1].0);
        if self.ramp.as_ref().is_some_and(|points| points.is_empty() || !is_sorted(points)) {
            return Err(Error(
                "ramp must be [[seconds, rate], …] in order of time, of one at least".to_owned(),
            ));
        }
        if let Some(rates) = &self.rates {
            rates.scale.is_within(0.0..=1e6, "rates.scale", "a number")?;
        }
        if let Some(trace) = &self.trace {
            trace.speed.is_within(1e-6..=1e6, "trace.speed", "a number")?;
        }
        for at in self.times.iter().flatten() {
            at.is_within(0.0..=1e6, "times", "a number of seconds")?;
        }
        let mut pairs = self.times.iter().flatten().zip(self.times.iter().flatten().skip(1));
        if let Some((first, next)) = pairs.find(|(first, next)| next < first) {
            return Err(Error(format!("times must be in order, got {next} after {first}")));
        }
        if let Some(users) = self.users {
            f64::from(users).is_within(1.0..=1e6, "users", "an integer")?;
        }
        self.think.iter().try_for_each(|think| think.check("think", &[]))?;
        self.client.iter().try_for_each(Client::check)
    }
}

impl Client {
    fn check(&self) -> Result<(), Error> {
        for (parameter, span) in [("timeout", self.timeout), ("deadline", self.deadline)] {
            if let Some(span) = span {
                span.is_within(1e-9..=1e6, parameter, "a number of seconds")?;
            }
        }
        self.network.iter().try_for_each(|network| network.check("network", &[]))?;
        f64::from(self.attempts).is_within(1.0..=1000.0, "attempts", "an integer")?;
        f64::from(self.processes).is_within(1.0..=10_000.0, "processes", "an integer")?;
        self.retry.wait.is_within(0.0..=1e6, "retry.wait", "a number of seconds")?;
        self.retry.factor.is_within(1.0..=1e3, "retry.factor", "a number")?;
        self.retry.max_wait.is_within(0.0..=1e6, "retry.max_wait", "a number of seconds")?;
        self.check_fleet()
    }
}

impl Stage {
    fn check(&self, traces: &[Arc<Trace>]) -> Result<(), Error> {
        self.policy.check()?;
        self.service.values().try_for_each(|service| service.check("service", traces))?;
        for (operation, service) in &self.operations {
            let parameter = format!("operations.{operation}");
            service.values().try_for_each(|service| service.check(&parameter, traces))?;
        }
        let mut delays = self.delay.iter().flat_map(Changing::values);
        delays.try_for_each(|delay| delay.check("delay", traces))?;
        self.delay_per_in_flight.is_within(0.0..=1e6, "delay_per_in_flight", "a number")?;
        for workers in self.workers.iter().flat_map(Changing::values) {
            f64::from(*workers).is_within(0.0..=1e6, "workers", "an integer")?;
        }
        for speed in self.speed.values() {
            speed.is_within(0.0..=1e3, "speed", "a number")?;
        }
        if let Some(stops) = &self.stops {
            stops.length.is_within(0.0..=1e6, "stops.length", "a number of seconds")?;
            stops.every.is_within(stops.length..=1e6, "stops.every", "a number of seconds")?;
            stops.every.is_within(1e-3..=1e6, "stops.every", "a number of seconds")?;
        }
        self.rejection_cost.is_within(0.0..=1e6, "rejection_cost", "a number of seconds")
    }
}

/// JSON has no other numbers, and would take them for what is not given.
fn check_finite(parameter: &str, value: &toml::Value) -> Result<(), Error> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => {
            Err(Error(format!("{parameter} must be a finite number, got {number}")))
        }
        toml::Value::Array(values) => {
            values.iter().try_for_each(|value| check_finite(parameter, value))
        }
        toml::Value::Table(table) => table
            .iter()
            .try_for_each(|(key, value)| check_finite(&format!("{parameter}.{key}"), value)),
        _ => Ok(()),
    }
}

/// Puts what a variant says over what the file says; lists are replaced.
fn merge(whole: &mut Value, variant: Value) {
    match (whole, variant) {
        (Value::Object(whole), Value::Object(variant)) => {
            for (key, value) in variant {
                merge(whole.entry(key).or_insert(Value::Null), value);
            }
        }
        (whole, variant) => *whole = variant,
    }
}

/// Refuses a number that is out of its range, by its name.
pub(super) trait Faulty {
    fn is_within(
        &self,
        range: RangeInclusive<f64>,
        parameter: &str,
        what: &str,
    ) -> Result<(), Error>;
}

impl Faulty for f64 {
    fn is_within(
        &self,
        range: RangeInclusive<f64>,
        parameter: &str,
        what: &str,
    ) -> Result<(), Error> {
        if range.contains(self) {
            return Ok(());
        }
        let (from, to) = range.into_inner();
        Err(Error(format!("{parameter} must be {what} from {from} to {to}, got {self}")))
    }
}

const fn one() -> u64 {
    1
}

const fn second() -> f64 {
    1.0
}

const fn unchanged() -> f64 {
    1.0
}

const fn yes() -> bool {
    true
}

fn requests() -> String {
    "requests".to_owned()
}

fn nothing() -> Changing<Distribution> {
    Changing::always(Distribution::Constant(0.0))
}

fn full_speed() -> Changing<f64> {
    Changing::always(1.0)
}

fn success() -> Changing<End> {
    Changing::always(End::Success)
}
