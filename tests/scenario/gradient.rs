use std::time::Duration;

use serde::Deserialize;
use sluicegate::primitives::{
    Admission, Ask, Claim, ConfigError, GradientConfig, GradientLimiter, Outcome, Permit,
    Rejection, Snapshot, Ticket, Time, Wakes,
};

use super::limiter::Limits;
use super::loops::Sleeper;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(rename = "kind")]
    _kind: Kind,
    initial: Option<f64>,
    min_limit: Option<f64>,
    max_limit: Option<f64>,
    latency_target: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Latency,
}

/// What is not given stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    min_limit: Option<f64>,
    max_limit: Option<f64>,
    latency_target: Option<f64>,
}

impl Limits for GradientLimiter<Sleeper> {
    type Config = Config;
    type Update = Update;

    fn make(config: Config) -> Result<Self, ConfigError> {
        let usual = GradientConfig::default();
        Self::new(GradientConfig {
            initial: config.initial.unwrap_or(usual.initial),
            min_limit: config.min_limit.unwrap_or(usual.min_limit),
            max_limit: config.max_limit.unwrap_or(usual.max_limit),
            latency_target: config.latency_target.map(Duration::from_secs_f64),
        })
    }

    fn change(&mut self, now: Time, update: &Update) -> Result<Wakes<Sleeper>, ConfigError> {
        let config = *self.config();
        self.update(
            now,
            update.min_limit.unwrap_or(config.min_limit),
            update.max_limit.unwrap_or(config.max_limit),
            update.latency_target.map(Duration::from_secs_f64).or(config.latency_target),
        )
    }

    fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection> {
        self.try_acquire(now, ask)
    }

    fn acquire(&mut self, now: Time, ask: &Ask, sleeper: &mut Option<Sleeper>) -> Admission {
        self.acquire(now, ask, sleeper)
    }

    fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<Sleeper>) {
        self.claim(now, ticket)
    }

    fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<Sleeper> {
        self.release(now, permit, None, outcome)
    }

    // The extension counts it without asking the limiter.
    fn count_stray_release(&mut self) {}

    fn snapshot(&self, now: Time) -> Snapshot {
        self.snapshot(now).limiter
    }
}
