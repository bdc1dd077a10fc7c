//! The simulator itself: against theory, against its own laws, and against what was
//! published of services without control.

mod arrivals;
mod clients;
mod faults;
mod play;
mod published;
mod queueing;
mod servers;
