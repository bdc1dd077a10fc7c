use serde::Deserialize;
use sluicegate::primitives::{Codel, Time};

use super::awaited::timeout;
use super::checks::{Played, check_near};
use super::format::Answer;
use super::player::Subject;
use super::words::span;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    target: Option<f64>,
    interval: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// How long the item has waited.
    dequeue: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    load: Option<f64>,
}

/// The controller of folly.
pub struct Controller {
    codel: Codel,
}

impl Subject for Controller {
    type Config = Config;
    type Action = Action;
    type Then = Then;

    fn new(config: Config) -> Played<Self> {
        let target = config.target.map(|target| span("target", target)).transpose()?;
        let interval = config.interval.map(|interval| span("interval", interval)).transpose()?;
        let target = target.unwrap_or(Codel::TARGET);
        let codel = Codel::new(Time::ZERO, target, interval.unwrap_or(Codel::INTERVAL));
        Ok(Self { codel: codel.map_err(|error| error.to_string())? })
    }

    fn act(&mut self, now: &mut Time, action: &Action) -> Played<Answer> {
        let Ok(delay) = timeout(action.dequeue) else {
            return Ok("error".into());
        };
        let is_overloaded = self.codel.is_overloaded(*now, delay);
        Ok(if is_overloaded { "rejected" } else { "passed" }.into())
    }

    fn fork(&mut self) -> Played {
        Ok(())
    }

    fn look(&mut self, _now: Time, then: &Then) -> Played {
        check_near("load", then.load, self.codel.load())
    }
}
