use std::time::Duration;

use crate::primitives::{Ask, Offer, Permit, Position, Rejection, Ticket, Time};

/// What somebody asks of a [`Gate`](super::Gate).
#[derive(Clone, Copy, Debug)]
pub struct GateAsk<'a> {
    /// How much of the limit, how critical, and where from.
    pub ask: Ask,
    /// When nobody wants the answer any more.
    pub deadline: Option<Time>,
    /// How much of the rate; finite and 0 or more.
    pub tokens: f64,
    /// Where the caller stands among those who are as critical, if he is known.
    pub position: Option<Position>,
    /// What kind of work it is.
    pub operation: Option<&'a str>,
    /// Whether it was asked before, and refused or failed: then it is rejected before those of
    /// its criticality who ask for the first time, and waits only in the first half of the line.
    pub is_retry: bool,
}

impl GateAsk<'_> {
    /// Asks for one unit and one token, critical, without a deadline.
    #[must_use]
    pub const fn one() -> Self {
        Self {
            ask: Ask::one(),
            deadline: None,
            tokens: 1.0,
            position: None,
            operation: None,
            is_retry: false,
        }
    }

    pub(super) fn offer(&self, until: Option<Time>) -> Offer<'_> {
        Offer {
            criticality: self.ask.criticality,
            deadline: self.deadline,
            until,
            operation: self.operation,
        }
    }
}

/// A rate at which a gate admits, such as a [`TokenBucket`](crate::primitives::TokenBucket).
pub trait Rate {
    /// Takes so much now.
    ///
    /// # Errors
    /// If there is less: when it is worth coming back.
    fn take(&mut self, now: Time, tokens: f64) -> Result<(), Duration>;

    /// Takes back what was taken for somebody who was rejected after all.
    fn give_back(&mut self, now: Time, tokens: f64);
}

/// No rate.
impl Rate for () {
    fn take(&mut self, _now: Time, _tokens: f64) -> Result<(), Duration> {
        Ok(())
    }

    fn give_back(&mut self, _now: Time, _tokens: f64) {}
}

/// The answer to [`Gate::acquire`](super::Gate::acquire).
#[derive(Debug)]
pub enum GateAdmission {
    /// In flight now.
    Admitted(Permit),
    /// In line; a [`Wake`](crate::primitives::Wake) says when to claim.
    Waiting(Ticket),
    /// Neither.
    Rejected(Rejection),
}

/// The answer to [`Gate::claim`](super::Gate::claim).
#[derive(Debug)]
pub enum GateClaim {
    /// In flight from now on.
    Admitted(Permit),
    /// Still in line, and to be given a new waiter by [`Waitable::renew`](crate::primitives::Waitable::renew).
    Waiting,
    /// Not admitted.
    Rejected(Rejection),
    /// The ticket is of no wait: it was cancelled, or is of before a fork.
    Unknown,
}
