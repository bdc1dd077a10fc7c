use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluicegate::primitives::{
    Admission, Ask, Claim, Home, Outcome, Permit, Reason, SemaphoreLimiter, Ticket, Time, Wakes,
};

use super::format::{Kind, Scenario, Step, Then};

/// A waiter is woken by its name.
#[derive(Debug)]
struct Sleeper(String);

#[derive(Debug)]
enum Holder {
    Waiting { ticket: Ticket, event_loop: String },
    Holding(Permit),
    Released,
}

pub struct Player {
    limiter: SemaphoreLimiter<Sleeper>,
    now: Time,
    holders: BTreeMap<String, Holder>,
    loops: Vec<String>,
    closed: BTreeSet<String>,
    /// Woken and not run yet, in the order of their signals.
    woken: Vec<String>,
    admitted: BTreeSet<String>,
    timed_out: BTreeSet<String>,
}

type Outcomes<T = ()> = Result<T, String>;

impl Player {
    pub fn new(scenario: &Scenario) -> Outcomes<Self> {
        let Kind::Semaphore = scenario.limiter.kind;
        Ok(Self {
            limiter: SemaphoreLimiter::new(scenario.limiter.limit).map_err(|e| e.to_string())?,
            now: Time::ZERO,
            holders: BTreeMap::new(),
            loops: Vec::new(),
            closed: BTreeSet::new(),
            woken: Vec::new(),
            admitted: BTreeSet::new(),
            timed_out: BTreeSet::new(),
        })
    }

    pub fn play(mut self, steps: &[Step]) -> Outcomes {
        for (number, step) in steps.iter().enumerate() {
            let fail = |error| format!("step {}: {error}", number + 1);
            self.admitted.clear();
            self.timed_out.clear();
            let answer = self.act(step).map_err(fail)?;
            let expected = step.expect.as_deref().unwrap_or(&answer);
            if answer != expected {
                return Err(fail(format!("expected {expected}, got {answer}")));
            }
            self.look(&step.then).map_err(fail)?;
        }
        Ok(())
    }

    fn act(&mut self, step: &Step) -> Outcomes<String> {
        if let Some(name) = &step.try_acquire {
            return self.try_acquire(name, step);
        }
        if let Some(name) = &step.acquire {
            return self.acquire(name, step);
        }
        if let Some(name) = &step.release {
            return self.release(name, step);
        }
        if let Some(name) = &step.cancel {
            return self.cancel(name);
        }
        if let Some(limit) = step.update {
            return Ok(match self.limiter.update(self.now, limit) {
                Ok(wakes) => self.wake(wakes),
                Err(_) => "error".into(),
            });
        }
        if let Some(at) = step.at {
            self.advance(Time::from_secs_f64(at));
        }
        if let Some(name) = &step.settle {
            self.settle((name != "all").then_some(name));
        }
        if let Some(name) = &step.close_loop {
            self.closed.insert(name.clone());
        }
        if step.fork == Some(true) {
            drop(self.limiter.reset());
            self.woken.clear();
        }
        Ok("done".into())
    }

    fn try_acquire(&mut self, name: &str, step: &Step) -> Outcomes<String> {
        let Some(ask) = ask(step) else {
            return Ok("error".into());
        };
        match self.limiter.try_acquire(self.now, &ask) {
            Ok(permit) => {
                self.hold(name, Holder::Holding(permit))?;
                Ok("admitted".into())
            }
            Err(rejection) => Ok(rejection.reason.as_str().into()),
        }
    }

    fn acquire(&mut self, name: &str, step: &Step) -> Outcomes<String> {
        let Some(mut ask) = ask(step) else {
            return Ok("error".into());
        };
        let event_loop = step.event_loop.clone().unwrap_or_else(|| "main".into());
        if !self.loops.contains(&event_loop) {
            self.loops.push(event_loop.clone());
        }
        ask.home = Some(self.home(&event_loop));
        ask.max_wait = step.timeout.map(Duration::from_secs_f64);
        let answer = match self
            .limiter
            .acquire(self.now, &ask, &mut Some(Sleeper(name.into())))
        {
            Admission::Admitted(permit) => {
                self.hold(name, Holder::Holding(permit))?;
                "admitted"
            }
            Admission::Waiting(ticket) => {
                self.hold(
                    name,
                    Holder::Waiting {
                        ticket,
                        event_loop: event_loop.clone(),
                    },
                )?;
                "waiting"
            }
            Admission::Rejected(_) => "timed_out",
        };
        self.settle(Some(&event_loop));
        Ok(answer.into())
    }

    fn release(&mut self, name: &str, step: &Step) -> Outcomes<String> {
        let outcome = match (&step.outcome, &step.raises) {
            (None, None) => Outcome::Success,
            (None, Some(raises)) => outcome_of(raises)?,
            (Some(outcome), _) => *Outcome::ALL
                .iter()
                .find(|known| known.as_str() == outcome)
                .ok_or_else(|| format!("no such outcome: {outcome}"))?,
        };
        match self.holders.insert(name.into(), Holder::Released) {
            Some(Holder::Holding(permit)) => {
                let wakes = self.limiter.release(self.now, permit, outcome);
                Ok(self.wake(wakes))
            }
            Some(Holder::Released) => Ok("ignored".into()),
            other => Err(format!("{name} holds no permit: {other:?}")),
        }
    }

    fn cancel(&mut self, name: &str) -> Outcomes<String> {
        match self.holders.insert(name.into(), Holder::Released) {
            Some(Holder::Waiting { ticket, .. }) => {
                self.woken.retain(|woken| woken != name);
                let wakes = self.limiter.cancel(self.now, ticket);
                Ok(self.wake(wakes))
            }
            other => Err(format!("{name} does not wait: {other:?}")),
        }
    }

    fn advance(&mut self, to: Time) {
        while let Some(due) = self.limiter.next_expiry().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            let wakes = self.limiter.expire(self.now, None);
            self.wake(wakes);
        }
        self.now = to;
        let wakes = self.limiter.expire(to, None);
        self.wake(wakes);
    }

    /// Lets the woken of a loop, or of all, run until none is left.
    fn settle(&mut self, event_loop: Option<&String>) {
        while let Some(position) = self
            .woken
            .iter()
            .position(|name| match &self.holders[name] {
                Holder::Waiting { event_loop: at, .. } => event_loop.is_none_or(|only| only == at),
                _ => false,
            })
        {
            let name = self.woken.remove(position);
            let Holder::Waiting { ticket, .. } = self.holders[&name] else {
                continue;
            };
            let (claim, wakes) = self.limiter.claim(self.now, ticket);
            match claim {
                Claim::Admitted(permit) => {
                    self.holders.insert(name.clone(), Holder::Holding(permit));
                    self.admitted.insert(name);
                }
                Claim::Waiting => {
                    let renewed = self.limiter.renew(ticket, Sleeper(name));
                    assert!(renewed.is_ok(), "nothing happened since the claim");
                }
                Claim::Rejected(_) => {
                    self.holders.insert(name.clone(), Holder::Released);
                    self.timed_out.insert(name);
                }
            }
            self.wake(wakes);
        }
    }

    fn wake(&mut self, wakes: Wakes<Sleeper>) -> String {
        for wake in wakes {
            let Sleeper(name) = wake.waiter;
            let is_closed = match &self.holders[&name] {
                Holder::Waiting { event_loop, .. } => self.closed.contains(event_loop),
                _ => false,
            };
            if is_closed {
                let wakes = self.limiter.cancel(self.now, wake.ticket);
                self.wake(wakes);
            } else {
                self.woken.push(name);
            }
        }
        "done".into()
    }

    fn look(&mut self, then: &Then) -> Outcomes {
        let snapshot = self.limiter.snapshot(self.now);
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        let seconds = |time: Time| time.as_secs_f64();
        check("in_flight", then.in_flight, snapshot.in_flight)?;
        check("waiting", then.waiting, snapshot.waiting)?;
        check("limit", then.limit, snapshot.limit)?;
        check("saturation", then.saturation, snapshot.saturation)?;
        check(
            "oldest_wait",
            then.oldest_wait,
            snapshot.oldest_wait.as_secs_f64(),
        )?;
        check("admitted", then.admitted.clone(), names(&self.admitted))?;
        check("timed_out", then.timed_out.clone(), names(&self.timed_out))?;
        check("revoked", then.revoked, snapshot.revoked)?;
        check(
            "next_expiry",
            then.next_expiry,
            self.limiter.next_expiry().map_or(-1.0, seconds),
        )?;
        let outcomes = counts(&Outcome::ALL.map(Outcome::as_str), &snapshot.outcomes);
        check("outcomes", then.outcomes.clone(), outcomes)?;
        let rejected = counts(&Reason::ALL.map(Reason::as_str), &snapshot.rejected);
        check("rejected", then.rejected.clone(), rejected)
    }

    fn hold(&mut self, name: &str, holder: Holder) -> Outcomes {
        match self.holders.insert(name.into(), holder) {
            None | Some(Holder::Released) => Ok(()),
            Some(_) => Err(format!("{name} is taken")),
        }
    }

    fn home(&self, event_loop: &str) -> Home {
        Home(
            self.loops
                .iter()
                .position(|name| name == event_loop)
                .map_or(0, |at| at as u64),
        )
    }
}

fn ask(step: &Step) -> Option<Ask> {
    Ask::new(u32::try_from(step.cost.unwrap_or(1)).ok()?).ok()
}

/// How a permit classifies an exception that ends its block.
fn outcome_of(raises: &str) -> Outcomes<Outcome> {
    match raises {
        "TimeoutError" => Ok(Outcome::Overload),
        "ValueError" | "CancelledError" | "KeyboardInterrupt" | "GeneratorExit" | "Rejected" => {
            Ok(Outcome::Ignored)
        }
        other => Err(format!("no such exception: {other}")),
    }
}

fn counts(names: &[&str], counts: &[u64]) -> BTreeMap<String, u64> {
    let pairs = names.iter().zip(counts).filter(|&(_, &count)| count > 0);
    pairs
        .map(|(name, &count)| ((*name).to_string(), count))
        .collect()
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, expected: Option<T>, got: T) -> Outcomes {
    match expected {
        Some(expected) if expected != got => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}
