use serde::Deserialize;
use sluicegate::primitives::{KeyedTokenBucket, Time, TokenAsk};

use super::checks::{Played, check, check_near};
use super::format::Answer;
use super::player::Subject;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    rate: f64,
    #[serde(default = "one")]
    per: f64,
    burst: Option<f64>,
    #[serde(default = "most")]
    max_keys: u32,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action {
    TryTake {
        #[serde(rename = "try_take")]
        key: String,
        #[serde(default = "one")]
        n: f64,
    },
    RetryAfter {
        #[serde(rename = "retry_after")]
        key: String,
        #[serde(default = "one")]
        n: f64,
    },
    Update {
        update: Update,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    rate: Option<f64>,
    burst: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    rate: Option<f64>,
    burst: Option<f64>,
    keys: Option<usize>,
    admitted: Option<u64>,
    rejected: Option<u64>,
}

/// The bucket of each key.
pub struct KeyedBucket {
    bucket: KeyedTokenBucket,
}

impl Subject for KeyedBucket {
    type Config = Config;
    type Action = Action;
    type Then = Then;

    fn new(config: Config) -> Played<Self> {
        let Config { rate, per, burst, max_keys } = config;
        let bucket = KeyedTokenBucket::new(rate, per, burst, max_keys);
        Ok(Self { bucket: bucket.map_err(|error| error.to_string())? })
    }

    fn act(&mut self, now: &mut Time, action: &Action) -> Played<Answer> {
        Ok(match action {
            Action::TryTake { key, n } => {
                let ask = TokenAsk::new(*n);
                match ask.and_then(|ask| self.bucket.try_take(*now, key.as_bytes(), &ask)) {
                    Ok(true) => "taken".into(),
                    Ok(false) => "refused".into(),
                    Err(_) => "error".into(),
                }
            }
            Action::RetryAfter { key, n } => {
                let ask = TokenAsk::new(*n);
                let after = ask.and_then(|ask| self.bucket.retry_after(*now, key.as_bytes(), &ask));
                after.map_or("error".into(), |span| Answer::Number(span.as_secs_f64()))
            }
            Action::Update { update } => {
                let updated = self.bucket.update(*now, update.rate, update.burst);
                if updated.is_ok() { "done".into() } else { "error".into() }
            }
        })
    }

    fn fork(&mut self) -> Played {
        Ok(())
    }

    fn look(&mut self, _now: Time, then: &Then) -> Played {
        let snapshot = self.bucket.snapshot();
        check_near("rate", then.rate, snapshot.rate)?;
        check_near("burst", then.burst, snapshot.burst)?;
        check("keys", then.keys, snapshot.keys)?;
        check("admitted", then.admitted, snapshot.admitted)?;
        check("rejected", then.rejected, snapshot.rejected)
    }
}

fn one() -> f64 {
    1.0
}

fn most() -> u32 {
    10_000
}
