use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[allow(dead_code)] // for readers
    pub about: String,
    pub limiter: Limiter,
    pub step: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    pub kind: Kind,
    pub limit: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Semaphore,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    // One of these is what the step does; without any it only looks.
    pub try_acquire: Option<String>,
    pub acquire: Option<String>,
    pub release: Option<String>,
    pub cancel: Option<String>,
    pub update: Option<f64>,
    pub at: Option<f64>,
    pub settle: Option<String>,
    pub close_loop: Option<String>,
    pub fork: Option<bool>,

    // How it does it.
    pub cost: Option<i64>,
    #[serde(rename = "loop")]
    pub event_loop: Option<String>,
    pub timeout: Option<f64>,
    pub outcome: Option<String>,
    pub raises: Option<String>,

    // What must come of it.
    pub expect: Option<String>,
    #[serde(default)]
    pub then: Then,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    pub in_flight: Option<u64>,
    pub waiting: Option<usize>,
    pub limit: Option<f64>,
    pub saturation: Option<f64>,
    pub oldest_wait: Option<f64>,
    pub admitted: Option<Vec<String>>,
    pub timed_out: Option<Vec<String>>,
    pub outcomes: Option<BTreeMap<String, u64>>,
    pub rejected: Option<BTreeMap<String, u64>>,
    pub revoked: Option<u64>,
    pub next_expiry: Option<f64>,
}
