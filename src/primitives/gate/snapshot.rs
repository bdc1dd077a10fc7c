use std::time::Duration;

use crate::primitives::Criticality;
use crate::primitives::gradient::{Because, GradientConfig};

/// The state of a [`Gate`](super::Gate) at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSnapshot {
    /// The limit.
    pub limit: f64,
    /// Why it is what it is.
    pub limit_because: String,
    /// The same in figures, if it follows latency.
    pub estimate: Option<(Because, GradientConfig)>,
    /// The cost in flight.
    pub in_flight: u64,
    /// How many wait.
    pub waiting: usize,
    /// How many may wait.
    pub max_waiting: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
    /// For how long somebody who comes now may wait, if his deadline does not end it
    /// sooner.
    pub wait_bound: Duration,
    /// The mean of recent service times.
    pub service_mean: Duration,
    /// Their 95th percentile.
    pub service_p95: Duration,
    /// How long work is expected to take that begins now: with less time left than this
    /// it is rejected. Zero if nothing is known.
    pub service_estimate: Duration,
    /// The least critical that are not all rejected, whatever room there is.
    pub threshold: Criticality,
    /// In flight / limit.
    pub saturation: f64,
    /// How many permits were given since the start.
    pub admitted: u64,
    /// How many were rejected, by [`Reason::index`](crate::primitives::Reason::index).
    pub rejected: [u64; 12],
    /// How many permits were given back, by
    /// [`Outcome::index`](crate::primitives::Outcome::index).
    pub outcomes: [u64; 3],
    /// How many grants were taken back because nobody came to claim them.
    pub revoked: u64,
    /// How many releases came for a permit that had been given back already.
    pub stray_releases: u64,
    /// Whether it admits everybody and only counts.
    pub is_dry_run: bool,
    /// Whether it is closed.
    pub is_closed: bool,
}
