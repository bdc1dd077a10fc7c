use serde::Deserialize;
use sluicegate::primitives::{RetryBudget, RetryBudgetConfig, Time};

use super::checks::{Played, check, check_near};
use super::format::Answer;
use super::player::Subject;
use super::retries::{Retries, RetryAction};
use super::words::span;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    ratio: Option<f64>,
    floor: Option<f64>,
    window: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Action {
    Record(Record),
    Update(Change),
    Retry(RetryAction),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    record_request: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    update: Update,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    ratio: Option<f64>,
    floor: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    requests: Option<u64>,
    retries: Option<u64>,
    held: Option<u64>,
    allowance: Option<f64>,
    admitted: Option<u64>,
    rejected: Option<u64>,
    stray_releases: Option<u64>,
}

/// The retry budget.
pub struct Budget {
    budget: RetryBudget,
    retries: Retries,
}

impl Subject for Budget {
    type Config = Config;
    type Action = Action;
    type Then = Then;

    fn new(config: Config) -> Played<Self> {
        let default = RetryBudgetConfig::default();
        let window = config.window.map(|window| span("window", window)).transpose()?;
        let budget = RetryBudget::new(RetryBudgetConfig {
            ratio: config.ratio.unwrap_or(default.ratio),
            floor: config.floor.unwrap_or(default.floor),
            window: window.unwrap_or(default.window),
        });
        let budget = budget.map_err(|error| error.to_string())?;
        Ok(Self { budget, retries: Retries::default() })
    }

    fn act(&mut self, now: &mut Time, action: &Action) -> Played<Answer> {
        match action {
            Action::Record(Record { record_request }) => {
                (0..*record_request).for_each(|_| self.budget.record_request(*now));
                Ok("done".into())
            }
            Action::Update(Change { update }) => {
                let config = *self.budget.config();
                let ratio = update.ratio.unwrap_or(config.ratio);
                let floor = update.floor.unwrap_or(config.floor);
                let updated = self.budget.update(ratio, floor);
                Ok(if updated.is_ok() { "done" } else { "error" }.into())
            }
            Action::Retry(action) => self.retries.act(&mut self.budget, *now, action),
        }
    }

    fn fork(&mut self) -> Played {
        self.budget.reset();
        Ok(())
    }

    fn look(&mut self, now: Time, then: &Then) -> Played {
        let snapshot = self.budget.snapshot(now);
        check("requests", then.requests, snapshot.requests)?;
        check("retries", then.retries, snapshot.retries)?;
        check("held", then.held, snapshot.held)?;
        check_near("allowance", then.allowance, snapshot.allowance)?;
        check("admitted", then.admitted, snapshot.admitted)?;
        check("rejected", then.rejected, snapshot.rejected)?;
        check("stray_releases", then.stray_releases, snapshot.stray_releases)
    }

    fn end(mut self, now: Time) -> Played {
        self.retries.give_back(&mut self.budget);
        match self.budget.snapshot(now).held {
            0 => Ok(()),
            held => Err(format!("after the last step: held are {held}")),
        }
    }
}
