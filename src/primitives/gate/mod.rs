//! Admission as one call: a limit, a waiting line, deadlines, criticality, a reserve, a rate
//! and pressure, decided together.
//!
//! The parts are apart: `decision` is who comes in, in which order it is asked; `waiting` is
//! who waits, is served, and is told; the line is a [`CoDelQueue`](super::CoDelQueue) of
//! `seats`, which say what came of a ticket; `aside` is who waits where nobody moves. `limit` is what the limit follows, `reserve`
//! what is kept for the critical, `shedding` who is rejected for others, `refusals` what is
//! counted and told. `shadow` finds out what would have been done while everybody is
//! admitted.

mod aside;
mod ask;
mod config;
mod decision;
mod drain;
#[allow(clippy::module_inception)] // it is what the others are for
mod gate;
mod limit;
mod refusals;
mod reserve;
mod sampling;
mod seats;
mod shadow;
mod shedding;
mod snapshot;
mod waitable;
mod waiting;

pub use ask::{GateAdmission, GateAsk, GateClaim, Rate};
pub use config::{GateConfig, MAX_WAIT};
pub use gate::Gate;
pub use limit::{GateLimit, LimitUpdate};
pub use reserve::Reserve;
pub use snapshot::GateSnapshot;
