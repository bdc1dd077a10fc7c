//! What the file of a queue can say.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::words::{Class, Exception, main_loop};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub capacity: usize,
    pub target: Option<f64>,
    pub interval: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action {
    PutNow {
        #[serde(rename = "put_nowait")]
        item: String,
        #[serde(default)]
        criticality: Class,
        deadline: Option<f64>,
        operation: Option<String>,
        #[serde(default)]
        cancellable: bool,
        times: Option<u32>,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Put {
        #[serde(rename = "put")]
        item: String,
        #[serde(default)]
        criticality: Class,
        deadline: Option<f64>,
        operation: Option<String>,
        #[serde(default)]
        cancellable: bool,
        timeout: Option<f64>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    GetNow {
        get_nowait: bool,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Get {
        #[serde(rename = "get")]
        worker: String,
        timeout: Option<f64>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    Take {
        #[serde(rename = "take")]
        worker: String,
        times: Option<u32>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    Done {
        #[serde(rename = "done")]
        worker: String,
        raises: Option<Exception>,
        times: Option<u32>,
    },
    CancelItem {
        cancel_item: String,
    },
    Update {
        update: Update,
    },
    Close {
        close: Close,
    },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    Drain,
    Immediate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    pub capacity: Option<usize>,
    pub target: Option<f64>,
    pub interval: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    pub depth: Option<usize>,
    pub depth_at_least: Option<usize>,
    pub saturation: Option<f64>,
    pub oldest_wait: Option<f64>,
    pub standing: Option<bool>,
    pub target: Option<f64>,
    pub interval: Option<f64>,
    pub next_expiry: Option<f64>,
    pub getting: Option<usize>,
    pub putting: Option<usize>,
    pub working: Option<usize>,
    pub accepted: Option<u64>,
    pub taken: Option<u64>,
    pub rejected: Option<BTreeMap<String, u64>>,
    pub got: Option<BTreeMap<String, String>>,
    pub put: Option<Vec<String>>,
    pub refused: Option<BTreeMap<String, String>>,
    pub timed_out: Option<Vec<String>>,
    pub closed: Option<Vec<String>>,
    pub on_reject: Option<Vec<String>>,
    pub watermarks: Option<Vec<String>>,
}
