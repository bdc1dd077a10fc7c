use super::random::{Purpose, draws};
use super::scenario::{Budget, Client, Error, Faulty, Jitter, Throttle};
use crate::primitives::random::Random;
use crate::primitives::{
    AdaptiveThrottle, Criticality, Outcome, RetryBudget, RetryBudgetConfig, RetryPermit,
    ThrottleConfig, Time,
};

/// The processes of one source of requests, and what keeps each of them in bounds.
#[derive(Debug)]
pub(super) struct Fleet {
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    throttle: Option<AdaptiveThrottle>,
    budget: Option<RetryBudget>,
    random: Random,
}

impl Fleet {
    pub(super) fn new(client: &Client, seed: u64, source: usize) -> Result<Self, Error> {
        let process = |number| {
            let part = (source as u64) << 32 | u64::from(number);
            Ok(Process {
                throttle: client.throttle.as_ref().map(Throttle::build).transpose()?,
                budget: client.budget.as_ref().map(Budget::build).transpose()?,
                random: draws(seed, Purpose::Throttle, part, 0),
            })
        };
        Ok(Self { processes: (0..client.processes).map(process).collect::<Result<_, Error>>()? })
    }

    fn of(&mut self, request: usize) -> &mut Process {
        let count = self.processes.len().max(1);
        &mut self.processes[request % count]
    }

    pub(super) fn record_request(&mut self, now: Time, request: usize) {
        if let Some(budget) = &mut self.of(request).budget {
            budget.record_request(now);
        }
    }

    /// Whether the throttle lets an attempt pass.
    pub(super) fn allows(&mut self, now: Time, request: usize, criticality: Criticality) -> bool {
        let process = self.of(request);
        let draw = process.random.unit();
        { process.throttle.as_mut() }.is_none_or(|throttle| throttle.allow(now, criticality, draw))
    }

    /// Tells the throttle what came of an attempt.
    pub(super) fn record(&mut self, now: Time, request: usize, outcome: Outcome) {
        if let Some(throttle) = &mut self.of(request).throttle {
            throttle.record(now, outcome);
        }
    }

    /// Whether a request may be tried again, and the permit for it if there is a
    /// budget.
    pub(super) fn try_retry(
        &mut self,
        now: Time,
        request: usize,
    ) -> Result<Option<RetryPermit>, ()> {
        match &mut self.of(request).budget {
            Some(budget) => budget.try_retry(now).map(Some).map_err(drop),
            None => Ok(None),
        }
    }

    pub(super) fn release(&mut self, request: usize, permit: RetryPermit) {
        if let Some(budget) = &mut self.of(request).budget {
            budget.release(permit);
        }
    }
}

impl Throttle {
    fn build(&self) -> Result<AdaptiveThrottle, Error> {
        let mut config = ThrottleConfig::default();
        config.k = self.k.unwrap_or(config.k);
        config.window = self.window.map_or(config.window, super::seconds);
        config.max_rejection = self.max_rejection.unwrap_or(config.max_rejection);
        config.min_requests = self.min_requests.unwrap_or(config.min_requests);
        Ok(AdaptiveThrottle::new(config)?)
    }
}

impl Budget {
    fn build(&self) -> Result<RetryBudget, Error> {
        let mut config = RetryBudgetConfig::default();
        config.ratio = self.ratio.unwrap_or(config.ratio);
        config.floor = self.floor.unwrap_or(config.floor);
        config.window = self.window.map_or(config.window, super::seconds);
        Ok(RetryBudget::new(config)?)
    }
}

impl Client {
    /// How long to wait before attempt number `attempt`, counted from 0, in seconds.
    pub(super) fn backoff(&self, seed: u64, request: usize, attempt: u32) -> f64 {
        let retry = &self.retry;
        let growth = libm::pow(retry.factor, f64::from(attempt.saturating_sub(1)));
        // Growth may be infinite, of which nothing would be no number.
        let wait = if retry.wait > 0.0 { (retry.wait * growth).min(retry.max_wait) } else { 0.0 };
        let mut random = draws(seed, Purpose::Backoff, request as u64, u64::from(attempt));
        match retry.jitter {
            Jitter::None => wait,
            Jitter::Full => wait * random.unit(),
            Jitter::Equal => wait * f64::midpoint(1.0, random.unit()),
        }
    }

    pub(super) fn check_fleet(&self) -> Result<(), Error> {
        let windows = [
            ("throttle.window", self.throttle.as_ref().and_then(|throttle| throttle.window)),
            ("budget.window", self.budget.as_ref().and_then(|budget| budget.window)),
        ];
        for (parameter, window) in windows {
            if let Some(window) = window {
                window.is_within(0.0..=3600.0, parameter, "a number of seconds")?;
            }
        }
        self.throttle.as_ref().map(Throttle::build).transpose()?;
        self.budget.as_ref().map(Budget::build).transpose()?;
        Ok(())
    }
}
