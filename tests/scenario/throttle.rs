use std::collections::BTreeMap;

use serde::Deserialize;
use sluicegate::primitives::{AdaptiveThrottle, Criticality, Outcome, ThrottleConfig, Time};

use super::checks::{Played, check, check_counts, check_least, check_near};
use super::format::Answer;
use super::player::Subject;
use super::words::{Class, Ending, same_answer, span};

/// Draws that are spread evenly, however many of them are looked at.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    k: Option<f64>,
    window: Option<f64>,
    max_rejection: Option<f64>,
    min_requests: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action {
    Allow {
        #[serde(rename = "allow")]
        class: Class,
        draw: f64,
        #[serde(default = "once")]
        times: u32,
    },
    Record {
        #[serde(rename = "record")]
        outcome: Ending,
        #[serde(default = "once")]
        times: u32,
    },
    Withdraw {
        #[serde(rename = "withdraw")]
        times: u32,
    },
    Send {
        #[serde(rename = "send")]
        class: Class,
        every: f64,
        until: f64,
        outcome: Ending,
    },
    Update {
        update: Update,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    k: Option<f64>,
    max_rejection: Option<f64>,
    min_requests: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    requests: Option<u64>,
    accepts: Option<u64>,
    rejection_probability: Option<f64>,
    admitted: Option<u64>,
    rejected: Option<u64>,
    outcomes: Option<BTreeMap<String, u64>>,
    passed_at_least: Option<f64>,
    refused_at_least: Option<f64>,
}

/// The client-side throttle.
pub struct Throttle {
    throttle: AdaptiveThrottle,
    /// Which share of those that this step sent passed.
    passed: Option<f64>,
}

impl Throttle {
    fn allow(&mut self, now: Time, class: Class, draw: f64) -> &'static str {
        let is_allowed = self.throttle.allow(now, class.into(), draw);
        if is_allowed { "allowed" } else { "refused" }
    }

    fn update(&mut self, update: &Update) -> &'static str {
        let config = *self.throttle.config();
        let k = update.k.unwrap_or(config.k);
        let max_rejection = update.max_rejection.unwrap_or(config.max_rejection);
        let min_requests = update.min_requests.unwrap_or(config.min_requests);
        match self.throttle.update(k, max_rejection, min_requests) {
            Ok(()) => "done",
            Err(_) => "error",
        }
    }

    /// A request every so often; each that passes is answered at once.
    fn send(&mut self, now: &mut Time, class: Class, every: f64, until: f64, outcome: Ending) {
        let start = now.as_secs_f64();
        let (mut sent, mut passed) = (0_u32, 0_u32);
        loop {
            let at = start + f64::from(sent) * every;
            if at >= until {
                break;
            }
            *now = Time::from_secs_f64(at);
            let draw = (f64::from(sent) * GOLDEN_RATIO).fract();
            if self.throttle.allow(*now, class.into(), draw) {
                self.throttle.record(*now, outcome.into());
                passed += 1;
            }
            sent += 1;
        }
        *now = Time::from_secs_f64(until);
        self.passed = Some(f64::from(passed) / f64::from(sent));
    }
}

impl Subject for Throttle {
    type Config = Config;
    type Action = Action;
    type Then = Then;

    fn new(config: Config) -> Played<Self> {
        let default = ThrottleConfig::default();
        let window = config.window.map(|window| span("window", window)).transpose()?;
        let throttle = AdaptiveThrottle::new(ThrottleConfig {
            k: config.k.unwrap_or(default.k),
            window: window.unwrap_or(default.window),
            max_rejection: config.max_rejection.unwrap_or(default.max_rejection),
            min_requests: config.min_requests.unwrap_or(default.min_requests),
        });
        Ok(Self { throttle: throttle.map_err(|error| error.to_string())?, passed: None })
    }

    fn begin_step(&mut self) {
        self.passed = None;
    }

    fn act(&mut self, now: &mut Time, action: &Action) -> Played<Answer> {
        match *action {
            Action::Update { ref update } => Ok(self.update(update).into()),
            Action::Allow { class, draw, times } => {
                Ok(same_answer((0..times).map(|_| self.allow(*now, class, draw))).into())
            }
            Action::Record { outcome, times } => {
                (0..times).for_each(|_| self.throttle.record(*now, outcome.into()));
                Ok("done".into())
            }
            Action::Withdraw { times } => {
                (0..times).for_each(|_| self.throttle.withdraw(*now));
                Ok("done".into())
            }
            Action::Send { class, every, until, outcome } => {
                if !(every > 0.0 && until > now.as_secs_f64() && until.is_finite()) {
                    return Err(format!("nothing is sent every {every} s until {until}"));
                }
                self.send(now, class, every, until, outcome);
                Ok("done".into())
            }
        }
    }

    fn fork(&mut self) -> Played {
        self.throttle.reset();
        Ok(())
    }

    fn look(&mut self, now: Time, then: &Then) -> Played {
        let snapshot = self.throttle.snapshot(now);
        check("requests", then.requests, snapshot.requests)?;
        check("accepts", then.accepts, snapshot.accepts)?;
        let probability = self.throttle.rejection_probability(now, Criticality::Critical);
        check_near("rejection_probability", then.rejection_probability, probability)?;
        check("admitted", then.admitted, snapshot.admitted)?;
        check("rejected", then.rejected, snapshot.rejected.iter().sum())?;
        let outcomes = Outcome::ALL.map(Outcome::as_str);
        check_counts("outcomes", then.outcomes.as_ref(), &outcomes, &snapshot.outcomes)?;
        check_least("passed_at_least", then.passed_at_least, self.passed)?;
        let refused = self.passed.map(|passed| 1.0 - passed);
        check_least("refused_at_least", then.refused_at_least, refused)
    }
}

fn once() -> u32 {
    1
}
