use serde::Deserialize;
use sluicegate::primitives::{
    Admission, Ask, Claim, ConfigError, Outcome, Permit, Rejection, SemaphoreLimiter, Snapshot,
    Ticket, Time, Wakes,
};

use super::limiter::Limits;
use super::loops::Sleeper;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(rename = "kind")]
    _kind: Kind,
    limit: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Semaphore,
}

impl Limits for SemaphoreLimiter<Sleeper> {
    type Config = Config;
    type Update = f64;

    fn make(config: Config) -> Result<Self, ConfigError> {
        Self::new(config.limit)
    }

    fn change(&mut self, now: Time, limit: &f64) -> Result<Wakes<Sleeper>, ConfigError> {
        self.update(now, *limit)
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
        self.release(now, permit, outcome)
    }

    fn count_stray_release(&mut self) {
        self.count_stray_release();
    }

    fn snapshot(&self, now: Time) -> Snapshot {
        self.snapshot(now)
    }
}
