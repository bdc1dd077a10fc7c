use std::time::Duration;

use super::Criticality;

/// Why work was rejected: a closed set, used as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The gate or queue is closed.
    Closed = 0,
    /// The deadline has passed, or what is left of it cannot suffice.
    Deadline = 1,
    /// Over a rate or quota; the only reason that answers 429.
    Rate = 2,
    /// Below the priority that is being admitted.
    Priority = 3,
    /// No room, and waiting was not asked for.
    Limit = 4,
    /// No room in the waiting line either.
    Full = 5,
    /// Waited for as long as it may.
    Wait = 6,
    /// Pushed out of the line by more critical work.
    Evicted = 7,
    /// Refused by a client-side throttle.
    Throttled = 8,
    /// The next stage reports saturation.
    Saturated = 9,
    /// Too many streams or websockets are open.
    Streams = 10,
    /// The retry budget is used up.
    Budget = 11,
}

impl Reason {
    /// All reasons, in the order of their [`index`](Self::index).
    pub const ALL: [Self; 12] = [
        Self::Closed,
        Self::Deadline,
        Self::Rate,
        Self::Priority,
        Self::Limit,
        Self::Full,
        Self::Wait,
        Self::Evicted,
        Self::Throttled,
        Self::Saturated,
        Self::Streams,
        Self::Budget,
    ];

    /// The position in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Deadline => "deadline",
            Self::Rate => "rate",
            Self::Priority => "priority",
            Self::Limit => "limit",
            Self::Full => "full",
            Self::Wait => "wait",
            Self::Evicted => "evicted",
            Self::Throttled => "throttled",
            Self::Saturated => "saturated",
            Self::Streams => "streams",
            Self::Budget => "budget",
        }
    }
}

/// A refusal, as a value: why, when to come back, and how full it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// When it is worth coming back, if that is known.
    pub retry_after: Option<Duration>,
    /// The criticality of the work that was rejected.
    pub criticality: Criticality,
    /// The limit at that moment.
    pub limit: f64,
    /// The cost in flight at that moment.
    pub in_flight: u64,
    /// How many waited in line at that moment.
    pub waiting: usize,
    /// How many may wait there, if that is bounded.
    pub max_waiting: Option<usize>,
    /// The least critical work that is admitted, where less critical work is rejected for
    /// its [`Priority`](Reason::Priority).
    pub threshold: Option<Criticality>,
    /// What was left of its deadline, if that is why it was rejected.
    pub time_left: Option<Duration>,
}

impl Rejection {
    /// One that says no more than why and of what; the figures are zero and unknown.
    #[must_use]
    pub const fn new(reason: Reason, criticality: Criticality) -> Self {
        Self {
            reason,
            retry_after: None,
            criticality,
            limit: 0.0,
            in_flight: 0,
            waiting: 0,
            max_waiting: None,
            threshold: None,
            time_left: None,
        }
    }
}
