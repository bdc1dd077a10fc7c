use serde::Deserialize;
use sluicegate::primitives::{Time, TokenRetryBudget, TokenRetryBudgetConfig};

use super::checks::{Played, check, check_near};
use super::format::Answer;
use super::player::Subject;
use super::retries::{Retries, RetryAction};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    max_tokens: Option<f64>,
    token_ratio: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Action {
    Record(Record),
    Update(Change),
    Retry(RetryAction),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Record {
    Success { record_success: u32 },
    Failure { record_failure: u32 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    update: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    tokens: Option<f64>,
    held: Option<u64>,
    admitted: Option<u64>,
    rejected: Option<u64>,
    stray_releases: Option<u64>,
}

/// The retry budget of gRPC.
pub struct TokenBudget {
    budget: TokenRetryBudget,
    retries: Retries,
}

impl Subject for TokenBudget {
    type Config = Config;
    type Action = Action;
    type Then = Then;

    fn new(config: Config) -> Played<Self> {
        let default = TokenRetryBudgetConfig::default();
        let budget = TokenRetryBudget::new(TokenRetryBudgetConfig {
            max_tokens: config.max_tokens.unwrap_or(default.max_tokens),
            token_ratio: config.token_ratio.unwrap_or(default.token_ratio),
        });
        let budget = budget.map_err(|error| error.to_string())?;
        Ok(Self { budget, retries: Retries::default() })
    }

    fn act(&mut self, now: &mut Time, action: &Action) -> Played<Answer> {
        match action {
            Action::Record(Record::Success { record_success }) => {
                (0..*record_success).for_each(|_| self.budget.record_success());
                Ok("done".into())
            }
            Action::Record(Record::Failure { record_failure }) => {
                (0..*record_failure).for_each(|_| self.budget.record_failure());
                Ok("done".into())
            }
            Action::Update(Change { update }) => {
                let mut config = *self.budget.config();
                config.max_tokens = update.max_tokens.unwrap_or(config.max_tokens);
                config.token_ratio = update.token_ratio.unwrap_or(config.token_ratio);
                let updated = self.budget.update(config);
                Ok(if updated.is_ok() { "done" } else { "error" }.into())
            }
            Action::Retry(action) => self.retries.act(&mut self.budget, *now, action),
        }
    }

    fn fork(&mut self) -> Played {
        self.budget.reset();
        Ok(())
    }

    fn look(&mut self, _now: Time, then: &Then) -> Played {
        let snapshot = self.budget.snapshot();
        check_near("tokens", then.tokens, snapshot.tokens)?;
        check("held", then.held, snapshot.held)?;
        check("admitted", then.admitted, snapshot.admitted)?;
        check("rejected", then.rejected, snapshot.rejected)?;
        check("stray_releases", then.stray_releases, snapshot.stray_releases)
    }

    fn end(mut self, _now: Time) -> Played {
        self.retries.give_back(&mut self.budget);
        match self.budget.snapshot().held {
            0 => Ok(()),
            held => Err(format!("after the last step: held are {held}")),
        }
    }
}
