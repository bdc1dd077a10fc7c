//! The simulator itself: against theory, against its own laws, and against what was
//! published of services without control.

// What is exact is compared exactly.
#![allow(clippy::float_cmp, clippy::unwrap_used, clippy::panic, clippy::too_many_lines)]

mod arrivals;
mod clients;
mod faults;
mod play;
mod published;
mod queueing;
mod servers;
