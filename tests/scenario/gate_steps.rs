//! What the file of a gate can say.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::words::{Class, Ending, Exception, main_loop};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub limit: Option<f64>,
    pub initial: Option<f64>,
    pub min_limit: Option<f64>,
    pub max_limit: Option<f64>,
    pub latency_target: Option<f64>,
    pub max_waiting: Option<usize>,
    pub max_wait: Option<f64>,
    #[serde(default)]
    pub reserve: BTreeMap<Class, f64>,
    pub rate: Option<f64>,
    pub burst: Option<f64>,
    #[serde(default)]
    pub pressure: bool,
    #[serde(default)]
    pub queue_wait: bool,
    #[serde(default)]
    pub dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Action {
    Coming(Coming),
    Other(Other),
}

/// Somebody asks to be admitted.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Coming {
    TryAcquire {
        #[serde(rename = "try_acquire")]
        name: String,
        #[serde(default = "one")]
        cost: i64,
        #[serde(default)]
        criticality: Class,
        deadline: Option<f64>,
        #[serde(default = "one_token")]
        tokens: f64,
        operation: Option<String>,
        #[serde(default)]
        retry: bool,
        times: Option<u32>,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    TryWithin {
        #[serde(rename = "try_within")]
        name: String,
        #[serde(default = "one")]
        cost: i64,
        #[serde(default)]
        criticality: Class,
        deadline: Option<f64>,
        #[serde(default = "one_token")]
        tokens: f64,
        operation: Option<String>,
        #[serde(default)]
        retry: bool,
    },
    Acquire {
        #[serde(rename = "acquire")]
        name: String,
        #[serde(default = "one")]
        cost: i64,
        #[serde(default)]
        criticality: Class,
        deadline: Option<f64>,
        #[serde(default = "one_token")]
        tokens: f64,
        operation: Option<String>,
        #[serde(default)]
        retry: bool,
        times: Option<u32>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    Work {
        work: f64,
        #[serde(default)]
        criticality: Class,
        operation: Option<String>,
        times: Option<u32>,
        #[serde(default)]
        outcome: Ending,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Other {
    Release {
        #[serde(rename = "release")]
        name: String,
        #[serde(default)]
        outcome: Ending,
        operation: Option<String>,
        times: Option<u32>,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Raise {
        #[serde(rename = "release")]
        name: String,
        raises: Exception,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Forget {
        #[serde(rename = "forget")]
        name: String,
    },
    Drain {
        #[serde(rename = "drain")]
        name: String,
        timeout: Option<f64>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    Close {
        close: bool,
    },
    Pressure {
        pressure: f64,
    },
    Update {
        update: Update,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    pub limit: Option<f64>,
    pub max_waiting: Option<usize>,
    pub max_wait: Option<f64>,
    pub dry_run: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    pub in_flight: Option<u64>,
    pub waiting: Option<usize>,
    pub limit: Option<f64>,
    pub saturation: Option<f64>,
    pub oldest_wait: Option<f64>,
    pub next_expiry: Option<f64>,
    pub max_waiting: Option<usize>,
    pub wait_bound: Option<f64>,
    pub service_mean: Option<f64>,
    pub threshold: Option<String>,
    pub permits: Option<u64>,
    pub tokens: Option<f64>,
    pub admitted: Option<Vec<String>>,
    pub refused: Option<BTreeMap<String, String>>,
    pub drained: Option<Vec<String>>,
    pub timed_out: Option<Vec<String>>,
    pub waited: Option<BTreeMap<String, f64>>,
    pub outcomes: Option<BTreeMap<String, u64>>,
    pub rejected: Option<BTreeMap<String, u64>>,
    pub revoked: Option<u64>,
    pub stray_releases: Option<u64>,
    pub retry_after: Option<f64>,
    pub retry_after_at_least: Option<f64>,
    pub retry_after_at_most: Option<f64>,
}

fn one() -> i64 {
    1
}

fn one_token() -> f64 {
    1.0
}
