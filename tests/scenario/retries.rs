use std::collections::BTreeMap;

use serde::Deserialize;
use sluicegate::primitives::{Rejection, RetryBudget, RetryPermit, Time, TokenRetryBudget};

use super::checks::Played;
use super::format::Answer;
use super::words::{numbered, same_answer};

/// What gives retries.
pub trait Gives {
    fn try_retry(&mut self, now: Time) -> Result<RetryPermit, Rejection>;
    fn release(&mut self, permit: RetryPermit);
    fn count_stray_release(&mut self);
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum RetryAction {
    TryRetry {
        #[serde(rename = "try_retry")]
        name: String,
        times: Option<u32>,
    },
    Release {
        #[serde(rename = "release")]
        name: String,
        times: Option<u32>,
    },
    Forget {
        #[serde(rename = "forget")]
        name: String,
    },
}

/// The permits of retries, by name; `None` if it was released.
#[derive(Debug, Default)]
pub struct Retries(BTreeMap<String, Option<RetryPermit>>);

impl Retries {
    pub fn act(
        &mut self,
        budget: &mut impl Gives,
        now: Time,
        action: &RetryAction,
    ) -> Played<Answer> {
        match action {
            RetryAction::TryRetry { name, times } => {
                let names = numbered(name, *times);
                if let Some(taken) = names.iter().find(|name| self.is_held(name)) {
                    return Err(format!("{taken} is taken"));
                }
                let answers = names.into_iter().map(|name| self.try_retry(budget, now, name));
                Ok(same_answer(answers).into())
            }
            RetryAction::Release { name, times } => {
                let names = numbered(name, *times).into_iter();
                let answers = names.map(|name| self.release(budget, &name));
                Ok(same_answer(answers.collect::<Played<Vec<_>>>()?).into())
            }
            RetryAction::Forget { name } if self.is_held(name) => {
                let answer = self.release(budget, name)?;
                self.0.remove(name);
                Ok(answer.into())
            }
            RetryAction::Forget { name } => Err(format!("{name} holds no retry")),
        }
    }

    pub fn give_back(&mut self, budget: &mut impl Gives) {
        for permit in std::mem::take(&mut self.0).into_values().flatten() {
            budget.release(permit);
        }
    }

    fn is_held(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Some(_)))
    }

    fn try_retry(&mut self, budget: &mut impl Gives, now: Time, name: String) -> &'static str {
        match budget.try_retry(now) {
            Ok(permit) => {
                self.0.insert(name, Some(permit));
                "admitted"
            }
            Err(rejection) => rejection.reason.as_str(),
        }
    }

    fn release(&mut self, budget: &mut impl Gives, name: &str) -> Played<&'static str> {
        match self.0.get_mut(name).map(Option::take) {
            Some(Some(permit)) => {
                budget.release(permit);
                Ok("done")
            }
            Some(None) => {
                budget.count_stray_release();
                Ok("ignored")
            }
            None => Err(format!("{name} holds no retry")),
        }
    }
}

impl Gives for RetryBudget {
    fn try_retry(&mut self, now: Time) -> Result<RetryPermit, Rejection> {
        Self::try_retry(self, now)
    }

    fn release(&mut self, permit: RetryPermit) {
        Self::release(self, permit);
    }

    fn count_stray_release(&mut self) {
        Self::count_stray_release(self);
    }
}

impl Gives for TokenRetryBudget {
    fn try_retry(&mut self, _now: Time) -> Result<RetryPermit, Rejection> {
        Self::try_retry(self)
    }

    fn release(&mut self, permit: RetryPermit) {
        Self::release(self, permit);
    }

    fn count_stray_release(&mut self) {
        Self::count_stray_release(self);
    }
}
