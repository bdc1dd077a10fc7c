//! The algorithms: no Python, no wall clock, no thread, no global.
//!
//! Every method that can free something returns [`Wakes`], so that waking
//! happens after the caller's lock is released.

#![deny(unsafe_code)]

mod backoff;
mod bucket;
mod classic;
mod codel;
mod cohort;
mod criticality;
mod episodes;
mod error;
mod gate;
pub mod gradient;
mod keyed_bucket;
mod lag;
mod lanes;
pub mod limits;
mod line;
mod links;
mod names;
mod operations;
mod outcome;
mod permit;
pub mod published;
mod queue;
pub(crate) mod random;
mod refill;
mod rejection;
mod retry_after;
mod retry_budget;
mod semaphore;
mod service;
mod slots;
mod soonest;
mod threshold;
mod throttle;
mod time;
mod timing_wheel;
mod token_retry_budget;
mod turns;
mod usage;
mod waitable;
mod waits_at_semaphore;
mod wakes;
mod window;

pub use backoff::Backoff;
pub use bucket::{BucketSnapshot, Taking, TokenAsk, TokenBucket};
pub use classic::ClassicLimiter;
pub use codel::Codel;
pub use cohort::{Position, Priority, epoch};
pub use criticality::Criticality;
pub use episodes::{Episodes, Rejecting, Tally};
pub use error::ConfigError;
pub use gate::{
    Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, GateSnapshot, LimitUpdate,
    MAX_WAIT, Rate, Reserve,
};
pub use gradient::{GradientConfig, GradientLimiter};
pub use keyed_bucket::{KeyedBucketSnapshot, KeyedTokenBucket, TakenFromQuota};
pub use lag::LagWindow;
pub use line::{CLAIM_PATIENCE, Home, Ticket};
pub use outcome::Outcome;
pub use permit::Permit;
pub use queue::{
    Channel, CoDelQueue, ItemId, Level, MAX_CAPACITY, News, Offer, Put, QueueConfig, QueueSnapshot,
    Take, Taken, Wait, Work,
};
pub use refill::MAX_TOKENS;
pub use rejection::{Reason, Rejection};
pub use retry_after::RetryAfter;
pub use retry_budget::{RetryBudget, RetryBudgetConfig, RetryBudgetSnapshot, RetryPermit};
pub use semaphore::{Admission, Ask, Claim, SemaphoreLimiter, Snapshot};
pub use service::{Certainty, ServiceEstimate};
pub use slots::{MAX_COST, MAX_LIMIT};
pub use threshold::Threshold;
pub use throttle::{AdaptiveThrottle, ThrottleConfig, ThrottleSnapshot};
pub use time::Time;
pub use token_retry_budget::{TokenRetryBudget, TokenRetryBudgetConfig, TokenRetryBudgetSnapshot};
pub use usage::Usage;
pub use waitable::Waitable;
pub use wakes::{Wake, Wakes};
