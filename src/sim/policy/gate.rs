use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::Value;

use super::limiter::{Admitted, HERE};
use super::{BucketLink, FixedLink, Link, seconds};
use crate::primitives::gradient::Because;
use crate::primitives::{
    Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home, Outcome, Permit, Rate,
    Reserve, Ticket, Time, TokenAsk, TokenBucket, Waitable, Wakes,
};
use crate::sim::job::JobId;
use crate::sim::scenario::{Error, Faulty, Level};

/// A [`Gate`]; what is not given is by default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GateLink {
    limit: Option<LimitLink>,
    max_waiting: Option<usize>,
    /// In seconds.
    max_wait: Option<f64>,
    reserve: BTreeMap<Level, f64>,
    rate: Option<BucketLink>,
    /// Whether what the line would reject is rejected at once, the less critical first.
    queue_wait: bool,
    dry_run: bool,
}

/// A number, or a limiter that is none by itself.
#[derive(Clone, Debug, PartialEq)]
struct LimitLink(Box<Link>);

impl<'de> Deserialize<'de> for LimitLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let link = match Value::deserialize(deserializer)? {
            Value::Number(limit) => {
                let limit = limit.as_f64().unwrap_or(f64::NAN);
                Link::Fixed(FixedLink { limit, wait: 0.0 })
            }
            value => Link::read::<D::Error>(value)?,
        };
        if matches!(link, Link::Gate(_)) {
            return Err(D::Error::custom("gate.limit must be a number or a limiter, got a gate"));
        }
        Ok(Self(Box::new(link)))
    }
}

impl GateLink {
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(LimitLink(link)) = &self.limit {
            link.check_limit()?;
            link.wait().is_within(0.0..=0.0, "gate.limit.wait", "a number of seconds")?;
        }
        if let Some(max_wait) = self.max_wait {
            max_wait.is_within(0.0..=3600.0, "gate.max_wait", "a number of seconds")?;
        }
        drop(GateRun::new(self, 0)?);
        Ok(())
    }

    fn config(&self, seed: u64) -> Result<GateConfig, Error> {
        let limit = match &self.limit {
            Some(LimitLink(link)) => link.limit(seed)?,
            None => GateLimit::default(),
        };
        let share = |reserve: Reserve, (level, share): (&Level, &f64)| {
            reserve.with((*level).into(), *share)
        };
        Ok(GateConfig {
            limit,
            max_waiting: self.max_waiting,
            max_wait: self.max_wait.map(seconds),
            reserve: self.reserve.iter().fold(Reserve::none(), share),
            has_pressure: false,
            sheds_by_line: self.queue_wait,
            seed,
        })
    }
}

/// A gate at work, and its rate.
pub(super) struct GateRun {
    gate: Gate<JobId>,
    rate: Option<Tokens>,
}

impl fmt::Debug for GateRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gate.fmt(f)
    }
}

/// A bucket as a gate asks it.
struct Tokens(TokenBucket<JobId>);

impl Rate for Tokens {
    fn take(&mut self, now: Time, tokens: f64) -> Result<(), Duration> {
        let Ok(ask) = TokenAsk::new(tokens) else { return Ok(()) };
        match self.0.try_take(now, &ask) {
            Ok(true) => Ok(()),
            _ => Err(self.0.retry_after(now, &ask).unwrap_or(Duration::MAX)),
        }
    }

    fn give_back(&mut self, now: Time, tokens: f64) {
        // Nobody waits at it who could be woken.
        let _ = self.0.adjust(now, tokens);
    }
}

impl GateRun {
    pub(super) fn new(link: &GateLink, seed: u64) -> Result<Self, Error> {
        let mut gate = Gate::new(link.config(seed)?)?;
        let _ = gate.set_dry_run(Time::ZERO, link.dry_run);
        let rate = link.rate.as_ref().map(BucketLink::build).transpose()?;
        Ok(Self { gate, rate: rate.map(Tokens) })
    }

    pub(super) fn limit(&self) -> f64 {
        self.gate.limit()
    }

    pub(super) fn because(&self) -> Option<Because> {
        self.gate.estimate().map(|(because, _)| because)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.gate.in_flight()
    }

    pub(super) fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    pub(super) fn acquire(
        &mut self,
        now: Time,
        job: JobId,
        ask: &GateAsk<'_>,
    ) -> (Admitted, Wakes<JobId>) {
        let mut none = ();
        let rate: &mut dyn Rate = match &mut self.rate {
            Some(rate) => rate,
            None => &mut none,
        };
        let answer = if self.gate.is_dry_run() {
            let (permit, wakes) = self.gate.admit_in_dry_run(now, ask, true, rate);
            (Admitted::Now(permit), wakes)
        } else {
            let (admission, wakes) = self.gate.acquire(now, ask, rate, &mut Some(job));
            let admitted = match admission {
                GateAdmission::Admitted(permit) => Admitted::Now(permit),
                GateAdmission::Waiting(ticket) => Admitted::Waits(ticket),
                GateAdmission::Rejected(rejection) => Admitted::Not(rejection),
            };
            (admitted, wakes)
        };
        self.give_back(now);
        answer
    }

    /// `None` if the ticket is of no wait any more.
    pub(super) fn claim(
        &mut self,
        now: Time,
        ticket: Ticket,
        job: JobId,
    ) -> (Option<Admitted>, Wakes<JobId>) {
        let (claim, wakes) = self.gate.claim(now, ticket);
        self.give_back(now);
        let answer = match claim {
            GateClaim::Admitted(permit) => Some(Admitted::Now(permit)),
            GateClaim::Rejected(rejection) => Some(Admitted::Not(rejection)),
            GateClaim::Waiting => {
                let _ = self.gate.renew(ticket, job);
                Some(Admitted::Waits(ticket))
            }
            GateClaim::Unknown => None,
        };
        (answer, wakes)
    }

    pub(super) fn release(
        &mut self,
        now: Time,
        permit: Permit,
        operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<JobId> {
        let wakes = self.gate.release(now, permit, operation, outcome);
        self.give_back(now);
        wakes
    }

    pub(super) fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<JobId> {
        let wakes = self.gate.cancel(now, ticket);
        self.give_back(now);
        wakes
    }

    pub(super) fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<JobId> {
        debug_assert_eq!(home, Some(HERE));
        let wakes = self.gate.expire(now, home);
        self.give_back(now);
        wakes
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.gate.next_expiry()
    }

    /// Nobody who waits at it is told by another: a waiter is the job itself.
    pub(super) fn renew(&mut self, ticket: Ticket, job: JobId) -> Result<Option<JobId>, JobId> {
        self.gate.renew(ticket, job)
    }

    /// What of the rate was taken in vain.
    fn give_back(&mut self, now: Time) {
        let owed = self.gate.take_owed();
        if let Some(rate) = self.rate.as_mut().filter(|_| owed > 0.0) {
            rate.give_back(now, owed);
        }
    }
}
