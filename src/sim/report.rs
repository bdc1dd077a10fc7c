use serde::Serialize;

use super::expect::{Bound, Measure};
use super::record::{Gauge, Record, Slice};
use super::scenario::Scenario;
use crate::primitives::Time;

/// What came of a scenario with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was played.
    pub scenario: String,
    /// What stood before the first stage.
    pub policy: String,
    /// With which seed.
    pub seed: u64,
    /// How many requests came.
    pub requests: u64,
    /// How many of them were answered in time.
    pub good: u64,
    /// How many attempts were sent.
    pub attempts: u64,
    /// Each bound of each expectation, in the order of the file.
    pub checks: Vec<Check>,
    /// What happened step by step.
    pub series: Series,
}

/// One bound, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The start of the window, in seconds.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Of which class, or of all.
    pub class: Option<String>,
    /// What is bounded.
    pub measure: Measure,
    /// What was measured; `None` if there was nothing to measure.
    pub value: Option<f64>,
    /// What it has to be.
    pub bound: Bound,
    /// Whether it is.
    pub holds: bool,
}

/// Numbers for each step: rates per second, spans in seconds; 0 where there was nothing
/// to measure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)] // each is the measure of its name
pub struct Series {
    /// The end of each step, in seconds.
    pub time: Vec<f64>,
    pub offered: Vec<f64>,
    pub attempts: Vec<f64>,
    pub goodput: Vec<f64>,
    pub throughput: Vec<f64>,
    pub rejected: Vec<f64>,
    pub throttled: Vec<f64>,
    pub p50: Vec<f64>,
    pub p95: Vec<f64>,
    pub p99: Vec<f64>,
    /// At the end of the step; `None` where nothing limits.
    pub limit: Vec<Option<f64>>,
    pub in_flight: Vec<u64>,
    /// The most in the step.
    pub waiting: Vec<u64>,
    /// That of an adaptive limiter at the end of the step, in seconds; `None` where it has none.
    pub baseline: Vec<Option<f64>>,
    /// Why its limit is what it is.
    pub because: Vec<Option<String>>,
}

impl Report {
    pub(super) fn new(scenario: &Scenario, seed: u64, record: &Record) -> Self {
        let policy = scenario.policy().map(ToString::to_string).unwrap_or_default();
        Self {
            scenario: scenario.name.clone(),
            policy,
            seed,
            requests: record.requests.len() as u64,
            good: record.requests.iter().filter(|request| request.is_good).count() as u64,
            attempts: record.attempts.iter().filter(|attempt| attempt.is_sent()).count() as u64,
            checks: checks(scenario, record),
            series: Series::new(record),
        }
    }

    /// Whether all bounds hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

fn checks(scenario: &Scenario, record: &Record) -> Vec<Check> {
    let classes = scenario.classes();
    let mut checks = Vec::new();
    for expectation in &scenario.expect {
        let to = expectation.to.unwrap_or(scenario.seconds);
        let window = (Time::from_secs_f64(expectation.from), Time::from_secs_f64(to));
        let class = expectation.class.as_deref();
        let number = class.and_then(|class| classes.iter().position(|each| *each == class));
        let slice = record.slice(window.0, window.1, number.and_then(|it| u16::try_from(it).ok()));
        for (measure, bound) in &expectation.bounds {
            let value = record.measure(&slice, *measure, window, expectation);
            checks.push(Check {
                from: expectation.from,
                to,
                class: expectation.class.clone(),
                measure: *measure,
                value: Some(value).filter(|value| value.is_finite()),
                bound: *bound,
                holds: bound.holds(value),
            });
        }
    }
    checks
}

impl Series {
    fn new(record: &Record) -> Self {
        let slices = record.slices();
        let measure = |slice: &Slice, measure| {
            let value = slice.measure(measure);
            if value.is_nan() { 0.0 } else { value }
        };
        let of = |it| slices.iter().map(|slice| measure(slice, it)).collect();
        let rejected: Vec<f64> = { slices.iter() }
            .map(|slice| measure(slice, Measure::Rejected) * measure(slice, Measure::Attempts))
            .collect();
        let gauges = || record.gauges.iter();
        let limit = |gauge: &Gauge| Some(gauge.limit).filter(|limit| limit.is_finite());
        let baseline = |gauge: &Gauge| gauge.because?.baseline.map(|span| span.as_secs_f64());
        Self {
            time: gauges().map(|gauge| gauge.at.as_secs_f64()).collect(),
            offered: of(Measure::Offered),
            attempts: of(Measure::Attempts),
            goodput: of(Measure::Goodput),
            throughput: of(Measure::Throughput),
            rejected,
            throttled: of(Measure::Throttled),
            p50: of(Measure::P50),
            p95: of(Measure::P95),
            p99: of(Measure::P99),
            limit: gauges().map(limit).collect(),
            in_flight: gauges().map(|gauge| gauge.in_flight).collect(),
            waiting: gauges().map(|gauge| gauge.waiting).collect(),
            baseline: gauges().map(baseline).collect(),
            because: gauges().map(|gauge| gauge.because.map(|it| it.to_string())).collect(),
        }
    }
}
