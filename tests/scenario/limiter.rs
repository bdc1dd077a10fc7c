use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use sluicegate::primitives::{
    Admission, Ask, Claim, Home, Outcome, Permit, SemaphoreLimiter, Ticket, Time, Waitable, Wakes,
};

use super::awaited::{Asking, Awaited, Claimed, Reply, timeout};
use super::checks::{Played, check, check_counts, check_names, check_near, check_rejected};
use super::format::Answer;
use super::loops::{Loops, Place, Sleeper};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    kind: Kind,
    limit: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Semaphore,
}

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
    Update {
        #[serde(rename = "update")]
        limit: f64,
    },
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
    in_flight: Option<u64>,
    waiting: Option<usize>,
    limit: Option<f64>,
    saturation: Option<f64>,
    oldest_wait: Option<f64>,
    next_expiry: Option<f64>,
    admitted: Option<Vec<String>>,
    timed_out: Option<Vec<String>>,
    waited: Option<BTreeMap<String, f64>>,
    outcomes: Option<BTreeMap<String, u64>>,
    rejected: Option<BTreeMap<String, u64>>,
    revoked: Option<u64>,
    stray_releases: Option<u64>,
}

/// What became of a permit.
#[derive(Debug)]
enum Held {
    Holding(Permit),
    Released,
}

/// The semaphore limiter.
pub struct Limiter {
    limiter: SemaphoreLimiter<Sleeper>,
    held: BTreeMap<String, Held>,
}

pub struct Wish {
    cost: i64,
    timeout: Option<Duration>,
}

impl Limiter {
    fn try_acquire(&mut self, now: Time, home: Home, name: &str, cost: i64) -> &'static str {
        let Some(mut ask) = ask(cost) else {
            return "error";
        };
        ask.home = Some(home);
        match self.limiter.try_acquire(now, &ask) {
            Ok(permit) => self.hold(name, permit),
            Err(rejection) => rejection.reason.as_str(),
        }
    }

    fn hold(&mut self, name: &str, permit: Permit) -> &'static str {
        self.held.insert(name.into(), Held::Holding(permit));
        "admitted"
    }

    fn release(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        name: &str,
        outcome: Outcome,
        from: Place,
    ) -> Played<Answer> {
        match self.held.insert(name.into(), Held::Released) {
            Some(Held::Holding(permit)) => {
                let wakes = self.limiter.release(now, permit, outcome);
                loops.deliver(self, now, wakes, from);
                Ok("done".into())
            }
            Some(Held::Released) => {
                self.limiter.count_stray_release();
                Ok("ignored".into())
            }
            None => Err(format!("{name} holds no permit")),
        }
    }
}

impl Awaited for Limiter {
    type Config = Config;
    type Action = Action;
    type Then = Then;
    type Primitive = SemaphoreLimiter<Sleeper>;
    type Wish = Wish;

    fn new(config: Config) -> Played<Self> {
        let Kind::Semaphore = config.kind;
        let limiter = SemaphoreLimiter::new(config.limit).map_err(|error| error.to_string())?;
        Ok(Self { limiter, held: BTreeMap::new() })
    }

    fn primitive(&self) -> &SemaphoreLimiter<Sleeper> {
        &self.limiter
    }

    fn primitive_mut(&mut self) -> &mut SemaphoreLimiter<Sleeper> {
        &mut self.limiter
    }

    fn act(&mut self, loops: &mut Loops<Self>, now: Time, action: &Action) -> Played<Answer> {
        match action {
            Action::TryAcquire { name, cost, on } => {
                let place = loops.place(on.as_deref())?;
                loops.check_free(self, name)?;
                Ok(self.try_acquire(now, loops.home(place), name, *cost).into())
            }
            Action::Acquire { name, cost, on, timeout: seconds, cancelled } => {
                let wish = Wish { cost: *cost, timeout: seconds.map(timeout).transpose()? };
                let task = Asking { name: name.clone(), wish, is_cancelled: *cancelled };
                loops.start(self, now, on, task)
            }
            Action::Release { name, outcome, on } => {
                let place = loops.place(on.as_deref())?;
                self.release(loops, now, name, (*outcome).into(), place)
            }
            Action::Raise { name, raises, on } => {
                let place = loops.place(on.as_deref())?;
                self.release(loops, now, name, (*raises).into(), place)
            }
            Action::Forget { name } => match self.held.get(name) {
                Some(Held::Holding(_)) => {
                    let answer = self.release(loops, now, name, Outcome::Ignored, None);
                    self.held.remove(name);
                    answer
                }
                other => Err(format!("{name} holds no permit: {other:?}")),
            },
            Action::Update { limit } => Ok(match self.limiter.update(now, *limit) {
                Ok(wakes) => {
                    loops.deliver(self, now, wakes, None);
                    "done".into()
                }
                Err(_) => "error".into(),
            }),
        }
    }

    fn ask(
        &mut self,
        now: Time,
        home: Home,
        task: &Asking<Wish>,
        sleeper: &mut Option<Sleeper>,
    ) -> Reply {
        let Some(mut ask) = ask(task.wish.cost) else {
            return Reply::Answered("error");
        };
        ask.home = Some(home);
        ask.max_wait = task.wish.timeout;
        match self.limiter.acquire(now, &ask, sleeper) {
            Admission::Admitted(permit) => Reply::Answered(self.hold(&task.name, permit)),
            Admission::Rejected(_) => Reply::Answered("timed_out"),
            Admission::Waiting(ticket) => Reply::Waiting(ticket),
        }
    }

    fn claim(&mut self, now: Time, name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>) {
        let (claim, wakes) = self.limiter.claim(now, ticket);
        let claimed = match claim {
            Claim::Admitted(permit) => Claimed::Answered(self.hold(name, permit)),
            Claim::Waiting => Claimed::Waiting,
            Claim::Rejected(_) => Claimed::Answered("timed_out"),
        };
        (claimed, wakes)
    }

    fn is_taken(&self, name: &str) -> bool {
        matches!(self.held.get(name), Some(Held::Holding(_)))
    }

    fn look(&self, loops: &Loops<Self>, now: Time, then: &Then) -> Played {
        let snapshot = self.limiter.snapshot(now);
        let next_expiry = self.limiter.next_expiry();
        check("in_flight", then.in_flight, snapshot.in_flight)?;
        check("waiting", then.waiting, snapshot.waiting)?;
        check_near("limit", then.limit, snapshot.limit)?;
        check_near("saturation", then.saturation, snapshot.saturation)?;
        let oldest_wait = snapshot.oldest_wait.as_secs_f64();
        check_near("oldest_wait", then.oldest_wait, oldest_wait)?;
        let next_expiry = next_expiry.map_or(f64::INFINITY, Time::as_secs_f64);
        check_near("next_expiry", then.next_expiry, next_expiry)?;
        check_names("admitted", then.admitted.as_ref(), loops.answered("admitted"))?;
        check_names("timed_out", then.timed_out.as_ref(), loops.answered("timed_out"))?;
        for (name, &expected) in then.waited.iter().flatten() {
            let Some(Held::Holding(permit)) = self.held.get(name) else {
                return Err(format!("waited: {name} holds no permit"));
            };
            let waited = permit.waited().as_secs_f64();
            check_near(&format!("waited of {name}"), Some(expected), waited)?;
        }
        let outcomes = Outcome::ALL.map(Outcome::as_str);
        check_counts("outcomes", then.outcomes.as_ref(), &outcomes, &snapshot.outcomes)?;
        check_rejected(then.rejected.as_ref(), &snapshot.rejected)?;
        check("revoked", then.revoked, snapshot.revoked)?;
        check("stray_releases", then.stray_releases, snapshot.stray_releases)
    }

    fn end(&mut self, loops: &mut Loops<Self>, now: Time) -> Played {
        for held in std::mem::take(&mut self.held).into_values() {
            if let Held::Holding(permit) = held {
                let wakes = self.limiter.release(now, permit, Outcome::Success);
                loops.deliver(self, now, wakes, None);
            }
        }
        let left = (self.limiter.in_flight(), self.limiter.waiting());
        let text = || format!("after the last step: in flight and waiting are {left:?}");
        if left == (0, 0) { Ok(()) } else { Err(text()) }
    }
}

fn ask(cost: i64) -> Option<Ask> {
    Ask::new(u32::try_from(cost).ok()?).ok()
}

impl From<Ending> for Outcome {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Success => Self::Success,
            Ending::Ignored => Self::Ignored,
            Ending::Overload => Self::Overload,
        }
    }
}

/// How a permit classifies an exception that ends its block.
impl From<Exception> for Outcome {
    fn from(raises: Exception) -> Self {
        match raises {
            Exception::TimeoutError => Self::Overload,
            Exception::CancelledError
            | Exception::GeneratorExit
            | Exception::KeyboardInterrupt
            | Exception::Rejected
            | Exception::ValueError => Self::Ignored,
        }
    }
}

fn one() -> i64 {
    1
}

fn main() -> String {
    "main".into()
}
