use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub about: String,
    pub limiter: Limiter,
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
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

#[derive(Debug, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Step {
    pub action: Action,
    pub expect: Option<String>,
    pub then: Then,
}

/// What a step does: told by its keys, of which only `expect` and `then` go with
/// every action.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action {
    TryAcquire {
        #[serde(rename = "try_acquire")]
        name: String,
        #[serde(default = "one")]
        cost: i64,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Acquire {
        #[serde(rename = "acquire")]
        name: String,
        #[serde(default = "one")]
        cost: i64,
        #[serde(rename = "loop", default = "main")]
        on: String,
        timeout: Option<f64>,
        #[serde(default)]
        cancelled: bool,
    },
    Release {
        #[serde(rename = "release")]
        name: String,
        #[serde(default)]
        outcome: Ending,
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
    Cancel {
        #[serde(rename = "cancel")]
        name: String,
    },
    Update {
        #[serde(rename = "update")]
        limit: f64,
    },
    At {
        at: f64,
    },
    Tick {
        #[serde(rename = "tick")]
        on: String,
    },
    Settle {
        #[serde(rename = "settle")]
        on: String,
    },
    CloseLoop {
        #[serde(rename = "close_loop")]
        on: String,
    },
    Fork {
        fork: bool,
    },
    Look {},
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    #[default]
    Success,
    Ignored,
    Overload,
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    pub in_flight: Option<u64>,
    pub waiting: Option<usize>,
    pub limit: Option<f64>,
    pub saturation: Option<f64>,
    pub oldest_wait: Option<f64>,
    pub next_expiry: Option<f64>,
    pub admitted: Option<Vec<String>>,
    pub timed_out: Option<Vec<String>>,
    pub waited: Option<BTreeMap<String, f64>>,
    pub outcomes: Option<BTreeMap<String, u64>>,
    pub rejected: Option<BTreeMap<String, u64>>,
    pub revoked: Option<u64>,
    pub stray_releases: Option<u64>,
}

impl TryFrom<toml::Table> for Step {
    type Error = String;

    fn try_from(mut keys: toml::Table) -> Result<Self, String> {
        let expect = take(&mut keys, "expect")?;
        let then = take(&mut keys, "then")?.unwrap_or_default();
        let names: Vec<_> = keys.keys().cloned().collect();
        // An untagged enum only says that nothing fits.
        let action = Action::deserialize(toml::Value::Table(keys)).map_err(|_| {
            format!("no action has just these keys, or a value is of a wrong type: {names:?}")
        })?;
        Ok(Self { action, expect, then })
    }
}

fn take<'de, T: Deserialize<'de>>(keys: &mut toml::Table, key: &str) -> Result<Option<T>, String> {
    let value = keys.remove(key).map(T::deserialize).transpose();
    value.map_err(|error| format!("{key}: {error}"))
}

fn one() -> i64 {
    1
}

fn main() -> String {
    "main".into()
}
