use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate::primitives::{
    Admission, Ask, Claim, ConfigError, Home, Outcome, Permit, Rejection, Snapshot, Ticket, Time,
    Waitable, Wakes,
};

use super::awaited::{Asking, Awaited, Claimed, Reply, timeout};
use super::checks::{Played, check, check_counts, check_names, check_near, check_rejected};
use super::format::Answer;
use super::loops::{Loops, Place, Sleeper};
use super::words::{Ending, Exception, main_loop};

/// A limiter that is played.
pub trait Limits: Waitable<Sleeper> + Sized {
    /// The table of the file that makes one.
    type Config: DeserializeOwned;
    /// What `update` changes.
    type Update: DeserializeOwned;

    fn make(config: Self::Config) -> Result<Self, ConfigError>;
    fn change(&mut self, now: Time, update: &Self::Update) -> Result<Wakes<Sleeper>, ConfigError>;
    fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection>;
    fn acquire(&mut self, now: Time, ask: &Ask, sleeper: &mut Option<Sleeper>) -> Admission;
    fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<Sleeper>);
    fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<Sleeper>;
    fn count_stray_release(&mut self);
    fn snapshot(&self, now: Time) -> Snapshot;
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Action<U> {
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
        #[serde(rename = "loop", default = "main_loop")]
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
        update: U,
    },
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

/// A limiter, and the permits that it gave.
pub struct Limiter<L> {
    limiter: L,
    held: BTreeMap<String, Held>,
}

pub struct Wish {
    cost: i64,
    timeout: Option<Duration>,
}

impl<L: Limits> Limiter<L> {
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

impl<L: Limits> Awaited for Limiter<L> {
    type Config = L::Config;
    type Action = Action<L::Update>;
    type Then = Then;
    type Primitive = L;
    type Wish = Wish;

    fn new(config: L::Config) -> Played<Self> {
        let limiter = L::make(config).map_err(|error| error.to_string())?;
        Ok(Self { limiter, held: BTreeMap::new() })
    }

    fn primitive(&self) -> &L {
        &self.limiter
    }

    fn primitive_mut(&mut self) -> &mut L {
        &mut self.limiter
    }

    fn act(
        &mut self,
        loops: &mut Loops<Self>,
        now: &mut Time,
        action: &Self::Action,
    ) -> Played<Answer> {
        let now = *now;
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
            Action::Update { update } => Ok(match self.limiter.change(now, update) {
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
    ) -> (Reply, Wakes<Sleeper>) {
        let Some(mut ask) = ask(task.wish.cost) else {
            return (Reply::Answered("error".into()), Wakes::none());
        };
        ask.home = Some(home);
        ask.max_wait = task.wish.timeout;
        let reply = match self.limiter.acquire(now, &ask, sleeper) {
            Admission::Admitted(permit) => Reply::Answered(self.hold(&task.name, permit).into()),
            Admission::Rejected(_) => Reply::Answered("timed_out".into()),
            Admission::Waiting(ticket) => Reply::Waiting(ticket),
        };
        (reply, Wakes::none())
    }

    fn claim(&mut self, now: Time, name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>) {
        let (claim, wakes) = self.limiter.claim(now, ticket);
        let claimed = match claim {
            Claim::Admitted(permit) => Claimed::Answered(self.hold(name, permit).into()),
            Claim::Waiting => Claimed::Waiting,
            Claim::Rejected(_) => Claimed::Answered("timed_out".into()),
        };
        (claimed, wakes)
    }

    fn is_taken(&self, name: &str) -> bool {
        matches!(self.held.get(name), Some(Held::Holding(_)))
    }

    fn look(&mut self, loops: &Loops<Self>, now: Time, then: &Then) -> Played {
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
        let snapshot = self.limiter.snapshot(now);
        let left = (snapshot.in_flight, snapshot.waiting);
        let text = || format!("after the last step: in flight and waiting are {left:?}");
        if left == (0, 0) { Ok(()) } else { Err(text()) }
    }
}

fn ask(cost: i64) -> Option<Ask> {
    Ask::new(u32::try_from(cost).ok()?).ok()
}

fn one() -> i64 {
    1
}
