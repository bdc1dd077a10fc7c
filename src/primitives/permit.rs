use std::time::Duration;

use super::operations::OperationId;
use super::{Criticality, Ticket, Time};

/// The right to be in flight, given back exactly once by
/// [`SemaphoreLimiter::release`](super::SemaphoreLimiter::release).
///
/// It cannot be cloned. Dropping it without releasing it leaves its cost in
/// flight for ever.
#[derive(Debug)]
#[must_use = "a permit that is not released stays in flight"]
pub struct Permit {
    pub(crate) cost: u32,
    pub(crate) epoch: u32,
    pub(crate) in_flight: u32,
    pub(crate) started: Time,
    /// In nanoseconds.
    pub(crate) waited: u64,
    /// For a gate: what it is for.
    pub(crate) operation: OperationId,
    pub(crate) criticality: Criticality,
    /// For a gate that admits everybody: what would have become of it. Then it takes no room.
    pub(crate) shadow: Option<Ticket>,
}

impl Permit {
    /// A permit that occupies nothing.
    pub(crate) const fn empty(epoch: u32, started: Time) -> Self {
        Self {
            cost: 0,
            epoch,
            in_flight: 0,
            started,
            waited: 0,
            operation: OperationId::UNNAMED,
            criticality: Criticality::Critical,
            shadow: None,
        }
    }

    /// Counts so much less as work: it waited elsewhere meanwhile.
    pub fn begin_later(&mut self, span: Duration) {
        self.started = self.started.after(span);
    }

    /// Whether nobody asked whether there is room for it, or for what of the rate.
    #[must_use]
    pub const fn is_unasked(&self) -> bool {
        self.shadow.is_some()
    }

    /// How many units of the limit it occupies.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// How much was in flight when it was admitted, itself included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        u64::from(self.in_flight)
    }

    /// When it was admitted.
    #[must_use]
    pub const fn started(&self) -> Time {
        self.started
    }

    /// How long it waited in line before it was admitted.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }
}
