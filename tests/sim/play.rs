use std::path::Path;

use serde_json::{Value, json};
use sluicegate::sim::{Error, Report, Scenario, simulate};

pub fn load(scenario: &Value) -> Result<Scenario, Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    Scenario::from_json(&scenario.to_string(), &folder).map(|mut scenarios| scenarios.remove(0))
}

pub fn play(scenario: &Value, seed: u64) -> Report {
    simulate(&load(scenario).unwrap(), seed).unwrap()
}

/// What is measured of a scenario within a window, in the order of the names.
pub fn measure<const N: usize>(
    scenario: &Value,
    seed: u64,
    (from, to): (f64, f64),
    measures: [&str; N],
) -> [f64; N] {
    let expect = |measure: &str| json!({ "from": from, "to": to, measure: { "min": 0 } });
    let mut scenario = scenario.clone();
    scenario["expect"] = measures.iter().map(|measure| expect(measure)).collect();
    let report = play(&scenario, seed);
    std::array::from_fn(|position| report.checks[position].value.unwrap_or(f64::NAN))
}

/// What a value is, up to a share of it.
#[track_caller]
pub fn assert_near(value: f64, expected: f64, share: f64) {
    let is_near = (value - expected).abs() <= share * expected.abs();
    assert!(is_near, "{value} is not within {share} of {expected}");
}
