use std::time::Duration;

use crate::primitives::gradient::{Because, GradientConfig};
use crate::primitives::limits::{Algorithm, WindowConfig};
use crate::primitives::{
    Ask, ClassicLimiter, ConfigError, GradientLimiter, Outcome, Permit, SemaphoreLimiter, Time,
    Waitable,
};

/// What the limit of a [`Gate`](super::Gate) is, or follows.
#[derive(Clone, Debug, PartialEq)]
pub enum GateLimit {
    /// So much, fractions allowed, above 0 and at most 1e9.
    Fixed(f64),
    /// Latency.
    Gradient(GradientConfig),
    /// One of the published algorithms.
    Classic(Box<Algorithm>, Option<WindowConfig>),
}

impl Default for GateLimit {
    fn default() -> Self {
        Self::Gradient(GradientConfig::default())
    }
}

/// What becomes of the limit of a [`Gate`](super::Gate).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitUpdate {
    /// So much, from 0, which admits nobody, to 1e9: one that moves stays there.
    Hold(f64),
    /// It follows again what it was made to follow, from where it is.
    Follow,
}

/// The limiter inside a gate. Nobody waits at it: those who wait, wait at the gate.
#[derive(Debug)]
pub(super) enum Limit {
    Fixed(Box<SemaphoreLimiter<()>>),
    Gradient(Box<GradientLimiter<()>>),
    Classic(Box<ClassicLimiter<()>>),
}

macro_rules! each {
    ($limit:expr, $inner:ident => $action:expr) => {
        match $limit {
            Limit::Fixed($inner) => $action,
            Limit::Gradient($inner) => $action,
            Limit::Classic($inner) => $action,
        }
    };
}

impl Limit {
    pub(super) fn new(limit: &GateLimit) -> Result<Self, ConfigError> {
        Ok(match limit {
            GateLimit::Fixed(limit) => Self::Fixed(Box::new(SemaphoreLimiter::new(*limit)?)),
            GateLimit::Gradient(config) => {
                Self::Gradient(Box::new(GradientLimiter::of_gate(*config)?))
            }
            GateLimit::Classic(algorithm, window) => {
                let algorithm = algorithm.as_ref().clone();
                Self::Classic(Box::new(ClassicLimiter::new(algorithm, *window)?))
            }
        })
    }

    #[inline]
    pub(super) fn value(&self) -> f64 {
        each!(self, limiter => limiter.limit())
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        each!(self, limiter => limiter.in_flight())
    }

    pub(super) fn saturation(&self) -> f64 {
        each!(self, limiter => limiter.saturation())
    }

    /// Why it is what it is.
    pub(super) fn because(&self) -> String {
        match self {
            Self::Fixed(_) => "fixed".to_owned(),
            Self::Gradient(limiter) if limiter.is_held() => HELD.to_owned(),
            Self::Classic(limiter) if limiter.is_held() => HELD.to_owned(),
            Self::Gradient(limiter) => limiter.because().to_string(),
            Self::Classic(limiter) => limiter.because(),
        }
    }

    /// The same in figures, if it follows latency.
    pub(super) fn estimate(&self) -> Option<(Because, GradientConfig)> {
        match self {
            Self::Gradient(limiter) => Some((limiter.because(), *limiter.config())),
            Self::Fixed(_) | Self::Classic(_) => None,
        }
    }

    #[inline]
    pub(super) fn admit(&mut self, now: Time, ask: &Ask) -> Option<Permit> {
        match self {
            Self::Fixed(limiter) => limiter.admit(now, ask),
            Self::Gradient(limiter) => limiter.admit(now, ask),
            Self::Classic(limiter) => limiter.try_acquire(now, ask).ok(),
        }
    }

    /// Callers give so much time.
    pub(super) fn note_given(&mut self, given: Duration) {
        if let Self::Gradient(limiter) = self {
            limiter.note_given(given);
        }
    }

    /// Somebody met no room.
    #[inline]
    pub(super) fn note_no_room(&mut self) {
        if let Self::Gradient(limiter) = self {
            limiter.note_no_room();
        }
    }

    #[inline]
    pub(super) fn release(
        &mut self,
        now: Time,
        permit: Permit,
        operation: Option<&str>,
        outcome: Outcome,
    ) {
        // Nobody waits there who could be woken.
        let _ = match self {
            Self::Fixed(limiter) => limiter.release(now, permit, outcome),
            Self::Gradient(limiter) => limiter.release(now, permit, operation, outcome),
            Self::Classic(limiter) => limiter.release(now, permit, outcome),
        };
    }

    /// Takes back what was not used, without a sample.
    pub(super) fn annul(&mut self, now: Time, permit: Permit) {
        match self {
            Self::Fixed(limiter) => limiter.annul(now, permit),
            Self::Gradient(limiter) => limiter.semaphore.annul(now, permit),
            Self::Classic(limiter) => limiter.semaphore.annul(now, permit),
        }
    }

    /// When there is room by the mere passing of time.
    pub(super) fn room_at(&self) -> Option<Time> {
        match self {
            Self::Fixed(limiter) => limiter.room_at(),
            Self::Gradient(limiter) => limiter.semaphore.room_at(),
            Self::Classic(limiter) => limiter.semaphore.room_at(),
        }
    }

    /// Changes a fixed limit, and holds one that moves or lets it move again.
    pub(super) fn update(&mut self, now: Time, update: LimitUpdate) -> Result<(), ConfigError> {
        let limit = match update {
            LimitUpdate::Hold(limit) => limit,
            LimitUpdate::Follow => {
                return match self {
                    Self::Fixed(_) => Err(ConfigError::new("limit", "\"auto\"", FIXED)),
                    Self::Gradient(limiter) => limiter.hold(now, None),
                    Self::Classic(limiter) => limiter.hold(now, None),
                };
            }
        };
        match self {
            Self::Fixed(limiter) => limiter.update(now, limit).map(drop),
            Self::Gradient(limiter) => {
                limiter.hold(now, Some(limit)).map_err(|_| ConfigError::new("limit", limit, LIMIT))
            }
            Self::Classic(limiter) => {
                let whole = whole(limit).ok_or_else(|| ConfigError::new("limit", limit, WHOLE))?;
                limiter.hold(now, Some(whole))
            }
        }
    }

    pub(super) fn reset(&mut self) {
        let _ = each!(self, limiter => limiter.reset());
    }
}

const HELD: &str = "held by update()";
const LIMIT: &str = "a number from 0 (admits nobody) to 1e9";
const WHOLE: &str = "an integer from 0 (admits nobody) to 1e9";
const FIXED: &str = "a number from 0 (admits nobody) to 1e9, since it is fixed";

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is in the range
fn whole(limit: f64) -> Option<u32> {
    (limit.fract() == 0.0 && (0.0..=1e9).contains(&limit)).then_some(limit as u32)
}
