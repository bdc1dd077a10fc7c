use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use sluicegate::primitives::{
    ConfigError, Home, Reason, Taking, Ticket, Time, TokenAsk, TokenBucket, Waitable, Wakes,
};

use super::awaited::{Asking, Awaited, Claimed, Reply, timeout};
use super::checks::{Played, check, check_names, check_near, check_rejected};
use super::format::Answer;
use super::loops::{Loops, Sleeper};
use super::words::main_loop;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    rate: f64,
    #[serde(default = "one")]
    per: f64,
    burst: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action {
    TryTake {
        #[serde(rename = "try_take")]
        n: f64,
        #[serde(rename = "loop")]
        on: Option<String>,
    },
    Take {
        #[serde(rename = "take")]
        name: String,
        #[serde(default = "one")]
        n: f64,
        timeout: Option<f64>,
        #[serde(default)]
        cancelled: bool,
        #[serde(rename = "loop", default = "main_loop")]
        on: String,
    },
    Adjust {
        #[serde(rename = "adjust")]
        n: f64,
    },
    Pause {
        #[serde(rename = "pause")]
        seconds: f64,
    },
    RetryAfter {
        #[serde(rename = "retry_after")]
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
    tokens: Option<f64>,
    waiting: Option<usize>,
    oldest_wait: Option<f64>,
    next_expiry: Option<f64>,
    admitted: Option<u64>,
    rejected: Option<BTreeMap<String, u64>>,
    revoked: Option<u64>,
    taken: Option<Vec<String>>,
    timed_out: Option<Vec<String>>,
}

/// The token bucket.
pub struct Bucket {
    bucket: TokenBucket<Sleeper>,
}

pub struct Wish {
    n: f64,
    timeout: Option<Duration>,
}

impl Bucket {
    fn try_take(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        n: f64,
        on: Option<&str>,
    ) -> Played<Answer> {
        let place = loops.place(on)?;
        let Ok(mut ask) = TokenAsk::new(n) else {
            return Ok("error".into());
        };
        ask.home = Some(loops.home(place));
        let (answer, wakes) = self.bucket.try_take_behind(now, &ask);
        loops.deliver(self, now, wakes, place);
        Ok(match answer {
            Ok(true) => "taken".into(),
            Ok(false) => "refused".into(),
            Err(_) => "error".into(),
        })
    }

    fn changed(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        changed: Result<Wakes<Sleeper>, ConfigError>,
    ) -> Answer {
        match changed {
            Ok(wakes) => {
                loops.deliver(self, now, wakes, None);
                "done".into()
            }
            Err(_) => "error".into(),
        }
    }
}

/// Whether it is over, and how.
fn claimed(taking: Taking) -> Result<&'static str, Ticket> {
    match taking {
        Taking::Taken { .. } => Ok("taken"),
        Taking::Refused(Reason::Wait) => Ok("timed_out"),
        Taking::Refused(reason) => Ok(reason.as_str()),
        Taking::Waiting(ticket) => Err(ticket),
    }
}

impl Awaited for Bucket {
    type Config = Config;
    type Action = Action;
    type Then = Then;
    type Primitive = TokenBucket<Sleeper>;
    type Wish = Wish;

    fn new(config: Config) -> Played<Self> {
        let bucket = TokenBucket::new(config.rate, config.per, config.burst);
        Ok(Self { bucket: bucket.map_err(|error| error.to_string())? })
    }

    fn primitive(&self) -> &Self::Primitive {
        &self.bucket
    }

    fn primitive_mut(&mut self) -> &mut Self::Primitive {
        &mut self.bucket
    }

    fn act(&mut self, loops: &mut Loops<Self>, now: &mut Time, action: &Action) -> Played<Answer> {
        let now = *now;
        match action {
            Action::TryTake { n, on } => self.try_take(loops, now, *n, on.as_deref()),
            Action::Take { name, n, timeout: wait, cancelled, on } => {
                let wish = Wish { n: *n, timeout: wait.map(timeout).transpose()? };
                let task = Asking { name: name.clone(), wish, is_cancelled: *cancelled };
                loops.start(self, now, on, task)
            }
            Action::Adjust { n } => {
                let changed = self.bucket.adjust(now, *n);
                Ok(self.changed(loops, now, changed))
            }
            Action::Pause { seconds } => {
                let wakes = self.bucket.pause(now, timeout(*seconds)?);
                Ok(self.changed(loops, now, Ok(wakes)))
            }
            Action::RetryAfter { n } => {
                let after = TokenAsk::new(*n).and_then(|ask| self.bucket.retry_after(now, &ask));
                Ok(after.map_or("error".into(), |span| Answer::Number(span.as_secs_f64())))
            }
            Action::Update { update } => {
                let changed = self.bucket.update(now, update.rate, update.burst);
                Ok(self.changed(loops, now, changed))
            }
        }
    }

    fn ask(
        &mut self,
        now: Time,
        home: Home,
        task: &Asking<Wish>,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>) {
        let error = Reply::Answered("error".into());
        let Ok(mut ask) = TokenAsk::new(task.wish.n) else {
            return (error, Wakes::none());
        };
        ask.home = Some(home);
        ask.max_wait = task.wish.timeout;
        let (answer, wakes) = self.bucket.take(now, &ask, sleeper);
        let reply = match answer.map(claimed) {
            Ok(Ok(answer)) => Reply::Answered(answer.into()),
            Ok(Err(ticket)) => Reply::Waiting(ticket),
            Err(_) => error,
        };
        (reply, wakes)
    }

    fn claim(&mut self, now: Time, _name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>) {
        let (taking, wakes) = self.bucket.claim(now, ticket);
        let answer = claimed(taking).map(|answer| Claimed::Answered(answer.into()));
        (answer.unwrap_or(Claimed::Waiting), wakes)
    }

    fn look(&mut self, loops: &Loops<Self>, now: Time, then: &Then) -> Played {
        let snapshot = self.bucket.snapshot(now);
        check_near("rate", then.rate, snapshot.rate)?;
        check_near("burst", then.burst, snapshot.burst)?;
        check_near("tokens", then.tokens, snapshot.tokens)?;
        check("waiting", then.waiting, snapshot.waiting)?;
        check_near("oldest_wait", then.oldest_wait, snapshot.oldest_wait.as_secs_f64())?;
        let next_expiry = self.bucket.next_expiry().map_or(f64::INFINITY, Time::as_secs_f64);
        check_near("next_expiry", then.next_expiry, next_expiry)?;
        check("admitted", then.admitted, snapshot.admitted)?;
        check_rejected(then.rejected.as_ref(), &snapshot.rejected)?;
        check("revoked", then.revoked, snapshot.revoked)?;
        check_names("taken", then.taken.as_ref(), loops.answered("taken"))?;
        check_names("timed_out", then.timed_out.as_ref(), loops.answered("timed_out"))
    }

    fn end(&mut self, _loops: &mut Loops<Self>, _now: Time) -> Played {
        match self.bucket.waiting() {
            0 => Ok(()),
            waiting => Err(format!("after the last step: waiting are {waiting}")),
        }
    }
}

fn one() -> f64 {
    1.0
}
