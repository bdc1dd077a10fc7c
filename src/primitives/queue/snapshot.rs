use std::time::Duration;

/// The state of a queue at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSnapshot {
    /// How many items may wait.
    pub capacity: usize,
    /// How many wait, without those for which a worker is on its way.
    pub depth: usize,
    /// Depth / capacity.
    pub saturation: f64,
    /// How long the oldest item has waited.
    pub oldest_wait: Duration,
    /// Whether it is standing.
    pub is_standing: bool,
    /// For how long an item may wait while it is standing.
    pub target: Duration,
    /// For how long an item may wait while it is not.
    pub interval: Duration,
    /// How much work is under way that is timed.
    pub working: usize,
    /// The mean of recent service times; zero if unknown.
    pub service_mean: Duration,
    /// Their 95th percentile; zero if unknown.
    pub service_p95: Duration,
    /// How long an item is expected to take that is begun now: with less time left than
    /// this it is rejected. Zero if nothing is known.
    pub service_estimate: Duration,
    /// The mean without overload, if known.
    pub baseline: Option<Duration>,
    /// How many items were accepted since the start.
    pub accepted: u64,
    /// How many were taken.
    pub taken: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many were rejected, at once or later, by [`Reason::index`](crate::primitives::Reason::index).
    pub rejected: [u64; 12],
}
