use std::time::Duration;

use super::gate::GateRun;
use super::{ClassicLink, Link, seconds};
use crate::primitives::gradient::Because;
use crate::primitives::limits::{
    Aimd, AimdConfig, Algorithm, Gradient, Gradient2, Gradient2Config, GradientConfig, Vegas,
    VegasConfig, WindowConfig,
};
use crate::primitives::{
    Admission, Ask, Claim, ClassicLimiter, GateAsk, GateLimit, GradientLimiter, Home, Outcome,
    Permit, Rejection, SemaphoreLimiter, Ticket, Time, Waitable, Wakes,
};
use crate::sim::job::JobId;
use crate::sim::scenario::Error;

/// Any limiter, and how long one may wait for it; or a gate, which knows that itself.
#[derive(Debug)]
pub(crate) struct Limiter {
    kind: Kind,
    wait: Duration,
}

#[derive(Debug)]
enum Kind {
    Semaphore(Box<SemaphoreLimiter<JobId>>),
    Classic(Box<ClassicLimiter<JobId>>),
    Adaptive(Box<GradientLimiter<JobId>>),
    Gate(Box<GateRun>),
}

macro_rules! each {
    (ref $limiter:expr, $inner:ident => $action:expr) => {
        match &$limiter.kind {
            Kind::Semaphore($inner) => $action,
            Kind::Classic($inner) => $action,
            Kind::Adaptive($inner) => $action,
            Kind::Gate($inner) => $action,
        }
    };
    ($limiter:expr, $inner:ident => $action:expr) => {
        match &mut $limiter.kind {
            Kind::Semaphore($inner) => $action,
            Kind::Classic($inner) => $action,
            Kind::Adaptive($inner) => $action,
            Kind::Gate($inner) => $action,
        }
    };
}

pub(crate) enum Admitted {
    Now(Permit),
    Waits(Ticket),
    Not(Rejection),
}

/// Everybody waits at one place: none is ever blocked.
pub(super) const HERE: Home = Home(0);

impl Limiter {
    /// # Errors
    /// If the link is no limiter, or its parameters are out of their ranges.
    pub(crate) fn new(link: &Link, seed: u64) -> Result<Self, Error> {
        let kind = match link {
            Link::Gate(gate) => Kind::Gate(Box::new(GateRun::new(gate, seed)?)),
            link => match link.limit(seed)? {
                GateLimit::Fixed(limit) => Kind::Semaphore(Box::new(SemaphoreLimiter::new(limit)?)),
                GateLimit::Gradient(config) => {
                    Kind::Adaptive(Box::new(GradientLimiter::new(config)?))
                }
                GateLimit::Classic(algorithm, window) => {
                    Kind::Classic(Box::new(ClassicLimiter::new(*algorithm, window)?))
                }
            },
        };
        Ok(Self { kind, wait: seconds(link.wait()) })
    }

    pub(crate) fn limit(&self) -> f64 {
        each!(ref self, limiter => limiter.limit())
    }

    /// Why it is so, if it follows latency.
    pub(crate) fn because(&self) -> Option<Because> {
        match &self.kind {
            Kind::Adaptive(limiter) => Some(limiter.because()),
            Kind::Gate(gate) => gate.because(),
            Kind::Semaphore(_) | Kind::Classic(_) => None,
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        each!(ref self, limiter => limiter.in_flight())
    }

    pub(crate) fn waiting(&self) -> usize {
        each!(ref self, limiter => limiter.waiting())
    }

    /// Whether who waits before it is better off in its own line.
    pub(crate) const fn is_gate(&self) -> bool {
        matches!(self.kind, Kind::Gate(_))
    }

    /// Admits now or not at all, if it is no gate.
    pub(crate) fn try_acquire(&mut self, now: Time) -> Option<Permit> {
        match &mut self.kind {
            Kind::Semaphore(limiter) => limiter.try_acquire(now, &Ask::one()).ok(),
            Kind::Classic(limiter) => limiter.try_acquire(now, &Ask::one()).ok(),
            Kind::Adaptive(limiter) => limiter.try_acquire(now, &Ask::one()).ok(),
            Kind::Gate(_) => None,
        }
    }

    pub(crate) fn acquire(
        &mut self,
        now: Time,
        job: JobId,
        asked: &GateAsk<'_>,
    ) -> (Admitted, Wakes<JobId>) {
        macro_rules! acquire {
            ($limiter:expr, $ask:expr) => {
                if self.wait.is_zero() {
                    match $limiter.try_acquire(now, $ask) {
                        Ok(permit) => Admission::Admitted(permit),
                        Err(rejection) => Admission::Rejected(rejection),
                    }
                } else {
                    $limiter.acquire(now, $ask, &mut Some(job))
                }
            };
        }
        let mut asked = *asked;
        asked.ask.home = Some(HERE);
        let mut ask = asked.ask;
        ask.max_wait = Some(self.wait);
        let admission = match &mut self.kind {
            Kind::Semaphore(limiter) => acquire!(limiter, &ask),
            Kind::Classic(limiter) => acquire!(limiter, &ask),
            Kind::Adaptive(limiter) => acquire!(limiter, &ask),
            Kind::Gate(gate) => return gate.acquire(now, job, &asked),
        };
        let admitted = match admission {
            Admission::Admitted(permit) => Admitted::Now(permit),
            Admission::Waiting(ticket) => Admitted::Waits(ticket),
            Admission::Rejected(rejection) => Admitted::Not(rejection),
        };
        (admitted, Wakes::none())
    }

    pub(crate) fn claim(
        &mut self,
        now: Time,
        ticket: Ticket,
        job: JobId,
    ) -> (Option<Admitted>, Wakes<JobId>) {
        let (claim, wakes) = match &mut self.kind {
            Kind::Semaphore(limiter) => limiter.claim(now, ticket),
            Kind::Classic(limiter) => limiter.claim(now, ticket),
            Kind::Adaptive(limiter) => limiter.claim(now, ticket),
            Kind::Gate(gate) => return gate.claim(now, ticket, job),
        };
        let answer = match claim {
            Claim::Admitted(permit) => Admitted::Now(permit),
            Claim::Rejected(rejection) => Admitted::Not(rejection),
            Claim::Waiting => {
                let _ = each!(self, limiter => limiter.renew(ticket, job));
                Admitted::Waits(ticket)
            }
        };
        (Some(answer), wakes)
    }

    pub(crate) fn release(
        &mut self,
        now: Time,
        permit: Permit,
        outcome: Outcome,
        operation: Option<&str>,
    ) -> Wakes<JobId> {
        match &mut self.kind {
            Kind::Semaphore(limiter) => limiter.release(now, permit, outcome),
            Kind::Classic(limiter) => limiter.release(now, permit, outcome),
            Kind::Adaptive(limiter) => limiter.release(now, permit, operation, outcome),
            Kind::Gate(gate) => gate.release(now, permit, operation, outcome),
        }
    }

    pub(crate) fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<JobId> {
        each!(self, limiter => limiter.cancel(now, ticket))
    }

    pub(crate) fn expire(&mut self, now: Time) -> Wakes<JobId> {
        each!(self, limiter => limiter.expire(now, Some(HERE)))
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        each!(ref self, limiter => limiter.next_expiry())
    }
}

impl Link {
    /// What the limit is, or follows.
    ///
    /// # Errors
    /// If the link is no limiter, or its parameters are out of their ranges.
    pub(super) fn limit(&self, seed: u64) -> Result<GateLimit, Error> {
        Ok(match self {
            Self::Fixed(link) => GateLimit::Fixed(link.limit),
            Self::Adaptive(link) => GateLimit::Gradient(link.config()),
            Self::Aimd(link) => {
                let mut config = AimdConfig::default();
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                link.limit(Aimd::new(config)?)
            }
            Self::Vegas(link) => {
                let mut config = VegasConfig { seed, ..VegasConfig::default() };
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                link.limit(Vegas::new(config)?)
            }
            Self::Gradient(link) => {
                let mut config = GradientConfig { seed, ..GradientConfig::default() };
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                link.limit(Gradient::new(config)?)
            }
            Self::Gradient2(link) => {
                let mut config = Gradient2Config::default();
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                link.limit(Gradient2::new(config)?)
            }
            Self::Fifo(_) | Self::Lifo(_) | Self::Codel(_) | Self::Bucket(_) | Self::Gate(_) => {
                return Err(Error(format!("a {self} is no limiter of concurrency")));
            }
        })
    }
}

impl ClassicLink {
    fn set(&self, initial: &mut u32, min_limit: &mut u32, max_limit: &mut u32) {
        *initial = self.initial.unwrap_or(*initial);
        *min_limit = self.min_limit.unwrap_or(*min_limit);
        *max_limit = self.max_limit.unwrap_or(*max_limit);
    }

    fn limit(&self, algorithm: impl Into<Algorithm>) -> GateLimit {
        GateLimit::Classic(Box::new(algorithm.into()), self.windowed.then(WindowConfig::default))
    }
}
