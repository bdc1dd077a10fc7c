use std::time::Duration;

use super::{ClassicLink, Link, seconds};
use crate::primitives::gradient::Because;
use crate::primitives::limits::{
    Aimd, AimdConfig, Algorithm, Gradient, Gradient2, Gradient2Config, GradientConfig, Vegas,
    VegasConfig, WindowConfig,
};
use crate::primitives::{
    Admission, Ask, Claim, ClassicLimiter, Criticality, GradientLimiter, Home, Outcome, Permit,
    Rejection, SemaphoreLimiter, Ticket, Time, Waitable, Wakes,
};
use crate::sim::job::JobId;
use crate::sim::scenario::Error;

/// Any limiter, and how long one may wait for it.
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
}

macro_rules! each {
    (ref $limiter:expr, $inner:ident => $action:expr) => {
        match &$limiter.kind {
            Kind::Semaphore($inner) => $action,
            Kind::Classic($inner) => $action,
            Kind::Adaptive($inner) => $action,
        }
    };
    ($limiter:expr, $inner:ident => $action:expr) => {
        match &mut $limiter.kind {
            Kind::Semaphore($inner) => $action,
            Kind::Classic($inner) => $action,
            Kind::Adaptive($inner) => $action,
        }
    };
}

pub(crate) enum Admitted {
    Now(Permit),
    Waits(Ticket),
    Not(Rejection),
}

/// Everybody waits at one place: none is ever blocked.
const HERE: Home = Home(0);

impl Limiter {
    /// # Errors
    /// If the link is no limiter, or its parameters are out of their ranges.
    pub(crate) fn new(link: &Link, seed: u64) -> Result<Self, Error> {
        let (kind, wait) = match link {
            Link::Fixed(link) => {
                (Kind::Semaphore(Box::new(SemaphoreLimiter::new(link.limit)?)), link.wait)
            }
            Link::Adaptive(link) => {
                let config = link.config();
                (Kind::Adaptive(Box::new(GradientLimiter::new(config)?)), link.wait)
            }
            Link::Aimd(link) => {
                let mut config = AimdConfig::default();
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                (link.limiter(Aimd::new(config)?)?, link.wait)
            }
            Link::Vegas(link) => {
                let mut config = VegasConfig { seed, ..VegasConfig::default() };
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                (link.limiter(Vegas::new(config)?)?, link.wait)
            }
            Link::Gradient(link) => {
                let mut config = GradientConfig { seed, ..GradientConfig::default() };
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                (link.limiter(Gradient::new(config)?)?, link.wait)
            }
            Link::Gradient2(link) => {
                let mut config = Gradient2Config::default();
                link.set(&mut config.initial, &mut config.min_limit, &mut config.max_limit);
                (link.limiter(Gradient2::new(config)?)?, link.wait)
            }
            Link::Fifo(_) | Link::Lifo(_) | Link::Codel(_) | Link::Bucket(_) => {
                return Err(Error(format!("a {link} is no limiter of concurrency")));
            }
        };
        Ok(Self { kind, wait: seconds(wait) })
    }

    pub(crate) fn limit(&self) -> f64 {
        each!(ref self, limiter => limiter.limit())
    }

    /// Why it is so, if it follows latency.
    pub(crate) fn because(&self) -> Option<Because> {
        match &self.kind {
            Kind::Adaptive(limiter) => Some(limiter.because()),
            Kind::Semaphore(_) | Kind::Classic(_) => None,
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        each!(ref self, limiter => limiter.in_flight())
    }

    pub(crate) fn waiting(&self) -> usize {
        each!(ref self, limiter => limiter.waiting())
    }

    /// Admits now or not at all.
    pub(crate) fn try_acquire(&mut self, now: Time) -> Option<Permit> {
        each!(self, limiter => limiter.try_acquire(now, &Ask::one()).ok())
    }

    pub(crate) fn acquire(&mut self, now: Time, job: JobId, criticality: Criticality) -> Admitted {
        let mut ask = Ask::one();
        ask.criticality = criticality;
        ask.max_wait = Some(self.wait);
        ask.home = Some(HERE);
        if self.wait.is_zero() {
            return match each!(self, limiter => limiter.try_acquire(now, &ask)) {
                Ok(permit) => Admitted::Now(permit),
                Err(rejection) => Admitted::Not(rejection),
            };
        }
        match each!(self, limiter => limiter.acquire(now, &ask, &mut Some(job))) {
            Admission::Admitted(permit) => Admitted::Now(permit),
            Admission::Waiting(ticket) => Admitted::Waits(ticket),
            Admission::Rejected(rejection) => Admitted::Not(rejection),
        }
    }

    pub(crate) fn claim(
        &mut self,
        now: Time,
        ticket: Ticket,
        job: JobId,
    ) -> (Admitted, Wakes<JobId>) {
        let (claim, wakes) = each!(self, limiter => limiter.claim(now, ticket));
        let answer = match claim {
            Claim::Admitted(permit) => Admitted::Now(permit),
            Claim::Rejected(rejection) => Admitted::Not(rejection),
            Claim::Waiting => {
                let _ = each!(self, limiter => limiter.renew(ticket, job));
                Admitted::Waits(ticket)
            }
        };
        (answer, wakes)
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

impl ClassicLink {
    fn set(&self, initial: &mut u32, min_limit: &mut u32, max_limit: &mut u32) {
        *initial = self.initial.unwrap_or(*initial);
        *min_limit = self.min_limit.unwrap_or(*min_limit);
        *max_limit = self.max_limit.unwrap_or(*max_limit);
    }

    fn limiter(&self, algorithm: impl Into<Algorithm>) -> Result<Kind, Error> {
        let window = self.windowed.then(WindowConfig::default);
        Ok(Kind::Classic(Box::new(ClassicLimiter::new(algorithm, window)?)))
    }
}
