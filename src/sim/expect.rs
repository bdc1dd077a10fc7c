use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scenario::{Error, Faulty, Scenario};

/// What has to hold within a window of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expectation {
    pub(super) from: f64,
    /// The end of the scenario by default.
    pub(super) to: Option<f64>,
    /// All classes by default.
    pub(super) class: Option<String>,
    /// What [`Measure::LimitGrowth`] is measured against: the limit at that moment.
    pub(super) reference: Option<f64>,
    pub(super) bounds: BTreeMap<Measure, Bound>,
}

/// From and to; both count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bound {
    /// The least that it may be.
    pub min: Option<f64>,
    /// The most that it may be.
    pub max: Option<f64>,
}

/// What is measured within a window. Rates are per second, spans in seconds, shares
/// from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Requests that came.
    Offered,
    /// Answers in time, when they came.
    Goodput,
    /// Answers, in time or not.
    Throughput,
    /// Of the requests that came, those that were answered in time, however often
    /// they were tried.
    Good,
    /// The rest.
    Lost,
    /// Attempts that were sent.
    Attempts,
    /// The same for each request.
    AttemptsPerRequest,
    /// Of the attempts that were sent, those that were rejected.
    Rejected,
    /// Attempts that the client did not send.
    Throttled,
    /// Of the attempts that were sent, those that were answered too late or never.
    Late,
    /// Of the attempts that were sent, those that were answered with a failure.
    Failed,
    /// Mean of the latencies of what was answered, in time or not.
    Mean,
    /// Median of the latencies of what was answered, in time or not.
    P50,
    /// The 95 % quantile.
    P95,
    /// The 99 % quantile.
    P99,
    /// The longest.
    Slowest,
    /// The same median of what was answered in time.
    GoodP50,
    /// The 99 % quantile of what was answered in time.
    GoodP99,
    /// The largest limit.
    LimitMax,
    /// The least.
    LimitMin,
    /// The limit at the end.
    LimitEnd,
    /// The largest limit, relative to that at the reference, which is the start by
    /// default.
    LimitGrowth,
    /// The most that waited.
    WaitingMax,
    /// The most that was in flight.
    InFlightMax,
}

/// The window is said beside the bounds.
impl<'de> Deserialize<'de> for Expectation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn read<T: DeserializeOwned, E: serde::de::Error>(key: &str, value: Value) -> Result<T, E> {
            serde_json::from_value(value).map_err(|error| E::custom(format!("{key}: {error}")))
        }
        let mut table = serde_json::Map::deserialize(deserializer)?;
        let mut window = |key: &str| table.remove(key).unwrap_or(Value::Null);
        let from: Option<f64> = read("from", window("from"))?;
        let to = read("to", window("to"))?;
        let class = read("class", window("class"))?;
        let reference = read("reference", window("reference"))?;
        let bound = |(measure, bound): (String, Value)| {
            Ok((read("measure", Value::String(measure.clone()))?, read(&measure, bound)?))
        };
        let bounds = table.into_iter().map(bound).collect::<Result<_, _>>()?;
        Ok(Self { from: from.unwrap_or(0.0), to, class, reference, bounds })
    }
}

impl Bound {
    /// Whether `value` is within it; not-a-number never is.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        let is_at_least = self.min.is_none_or(|min| value >= min);
        let is_at_most = self.max.is_none_or(|max| value <= max);
        !value.is_nan() && is_at_least && is_at_most
    }
}

/// As in a file.
impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{min} … {max}"),
            (Some(min), None) => write!(f, "≥ {min}"),
            (None, Some(max)) => write!(f, "≤ {max}"),
            (None, None) => f.write_str("any"),
        }
    }
}

impl Expectation {
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), Error> {
        self.from.is_within(0.0..=1e6, "expect.from", "a number of seconds")?;
        let to = self.to.unwrap_or(scenario.seconds);
        to.is_within(0.0..=1e6, "expect.to", "a number of seconds")?;
        if to <= self.from {
            let from = self.from;
            return Err(Error(format!("expect.to must be later than from, {from}, got {to}")));
        }
        if let Some(reference) = self.reference {
            reference.is_within(0.0..=1e6, "expect.reference", "a number of seconds")?;
        }
        if self.bounds.is_empty() {
            return Err(Error("expect must bound a measure, got none".to_owned()));
        }
        for (measure, bound) in &self.bounds {
            match (bound.min, bound.max) {
                (None, None) => {
                    return Err(Error(format!("expect.{measure} must have min or max, got none")));
                }
                (Some(min), Some(max)) if min > max => {
                    return Err(Error(format!(
                        "expect.{measure}: min must be at most max, {max}, got {min}"
                    )));
                }
                _ => {}
            }
        }
        let classes = scenario.classes();
        match &self.class {
            Some(class) if !classes.contains(&class.as_str()) => Err(Error(format!(
                "expect.class must be one of {}, got {class:?}",
                classes.join(", ")
            ))),
            _ => Ok(()),
        }
    }
}
