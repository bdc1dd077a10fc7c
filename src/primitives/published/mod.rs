//! Formulas of other systems as they are published: what the primitives are
//! compared with, in tests and in simulation. Nothing here decides anything.
//!
//! One file a system. They are pure, and take the arguments that the systems
//! themselves hand them; what is out of any sense gives a number out of any
//! sense, and no panic.

pub mod envoy;
pub mod failsafe;
pub mod go_zero;
