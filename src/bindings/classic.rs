use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;

use super::clock::Clock;
use super::config::{integer, integer_or_none, number, seconds};
use super::limiter::{self, BaseLimiter, Limits};
use super::shared::{Hosted, Shared};
use super::waiter::Waiter;
use crate::primitives::limits::{self, LimitAlgorithm, ranges};
use crate::primitives::{
    ClassicLimiter as Classic, GateLimit, Outcome, Permit as Right, SemaphoreLimiter as Semaphore,
    Time, Wakes,
};

const COUNT_OR_NONE: &str = "an integer from 1 to 1e9, or None";

/// A limit algorithm in its initial state; see `sluicegate.classic`.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Algorithm {
    initial: limits::Algorithm,
}

impl Algorithm {
    fn new(initial: impl Into<limits::Algorithm>) -> Self {
        Self { initial: initial.into() }
    }
}

#[pymethods]
impl Algorithm {
    /// Make one that never moves; see `sluicegate.classic.Fixed`.
    #[staticmethod]
    #[pyo3(signature = (*, limit))]
    fn fixed(limit: &Bound<'_, PyAny>) -> PyResult<Self> {
        let config = limits::FixedConfig { limit: integer("limit", ranges::LIMIT, limit)? };
        Ok(Self::new(limits::Fixed::new(config)?))
    }

    /// Make an additive increase and multiplicative decrease; see
    /// `sluicegate.classic.Aimd`.
    #[staticmethod]
    #[pyo3(signature = (*, initial, min_limit, max_limit, backoff_ratio, timeout))]
    fn aimd(
        initial: &Bound<'_, PyAny>,
        min_limit: &Bound<'_, PyAny>,
        max_limit: &Bound<'_, PyAny>,
        backoff_ratio: &Bound<'_, PyAny>,
        timeout: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let range = "a number of seconds above 0 and at most 3600";
        let config = limits::AimdConfig {
            initial: integer("initial", ranges::INITIAL, initial)?,
            min_limit: integer("min_limit", ranges::LIMIT, min_limit)?,
            max_limit: integer("max_limit", ranges::MAX_LIMIT, max_limit)?,
            backoff_ratio: number(
                "backoff_ratio",
                "a number from 0.5 up to and without 1",
                backoff_ratio,
            )?,
            timeout: seconds("timeout", range, timeout)?,
        };
        Ok(Self::new(limits::Aimd::new(config)?))
    }

    /// Make one after TCP Vegas; see `sluicegate.classic.Vegas`.
    #[staticmethod]
    #[pyo3(signature = (*, initial, min_limit, max_limit, smoothing, alpha, beta, probe_multiplier, seed))]
    #[allow(clippy::too_many_arguments)] // keywords
    fn vegas(
        initial: &Bound<'_, PyAny>,
        min_limit: &Bound<'_, PyAny>,
        max_limit: &Bound<'_, PyAny>,
        smoothing: &Bound<'_, PyAny>,
        alpha: &Bound<'_, PyAny>,
        beta: &Bound<'_, PyAny>,
        probe_multiplier: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let config = limits::VegasConfig {
            initial: integer("initial", ranges::INITIAL, initial)?,
            min_limit: integer("min_limit", ranges::LIMIT, min_limit)?,
            max_limit: integer("max_limit", ranges::MAX_LIMIT, max_limit)?,
            smoothing: number("smoothing", ranges::SMOOTHING, smoothing)?,
            alpha: integer("alpha", "an integer from 0 to 1000", alpha)?,
            beta: integer("beta", "an integer from alpha to 1000", beta)?,
            probe_multiplier: integer_or_none("probe_multiplier", COUNT_OR_NONE, probe_multiplier)?,
            seed: seed_or_any(seed)?,
        };
        Ok(Self::new(limits::Vegas::new(config)?))
    }

    /// Make one of the latency against the lowest; see `sluicegate.classic.Gradient`.
    #[staticmethod]
    #[pyo3(signature = (*, initial, min_limit, max_limit, smoothing, tolerance, backoff_ratio, queue_size, probe_interval, seed))]
    #[allow(clippy::too_many_arguments)] // keywords
    fn gradient(
        initial: &Bound<'_, PyAny>,
        min_limit: &Bound<'_, PyAny>,
        max_limit: &Bound<'_, PyAny>,
        smoothing: &Bound<'_, PyAny>,
        tolerance: &Bound<'_, PyAny>,
        backoff_ratio: &Bound<'_, PyAny>,
        queue_size: Option<&Bound<'_, PyAny>>,
        probe_interval: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let config = limits::GradientConfig {
            initial: integer("initial", ranges::INITIAL, initial)?,
            min_limit: integer("min_limit", ranges::LIMIT, min_limit)?,
            max_limit: integer("max_limit", ranges::MAX_LIMIT, max_limit)?,
            smoothing: number("smoothing", ranges::SMOOTHING, smoothing)?,
            tolerance: number("tolerance", ranges::TOLERANCE, tolerance)?,
            backoff_ratio: number("backoff_ratio", "a number from 0.5 to 1", backoff_ratio)?,
            queue_size: integer_or_none(
                "queue_size",
                "an integer from 0 to 1e9, or None",
                queue_size,
            )?,
            probe_interval: integer_or_none("probe_interval", COUNT_OR_NONE, probe_interval)?,
            seed: seed_or_any(seed)?,
        };
        Ok(Self::new(limits::Gradient::new(config)?))
    }

    /// Make one of the latency against its mean; see `sluicegate.classic.Gradient2`.
    #[staticmethod]
    #[pyo3(signature = (*, initial, min_limit, max_limit, smoothing, tolerance, queue_size, long_window))]
    fn gradient2(
        initial: &Bound<'_, PyAny>,
        min_limit: &Bound<'_, PyAny>,
        max_limit: &Bound<'_, PyAny>,
        smoothing: &Bound<'_, PyAny>,
        tolerance: &Bound<'_, PyAny>,
        queue_size: &Bound<'_, PyAny>,
        long_window: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let config = limits::Gradient2Config {
            initial: integer("initial", ranges::INITIAL, initial)?,
            min_limit: integer("min_limit", ranges::LIMIT, min_limit)?,
            max_limit: integer("max_limit", ranges::MAX_LIMIT, max_limit)?,
            smoothing: number("smoothing", ranges::SMOOTHING, smoothing)?,
            tolerance: number("tolerance", ranges::TOLERANCE, tolerance)?,
            queue_size: integer("queue_size", ranges::QUEUE_SIZE, queue_size)?,
            long_window: integer("long_window", ranges::COUNT, long_window)?,
        };
        Ok(Self::new(limits::Gradient2::new(config)?))
    }
}

/// The parameters of a window; see `sluicegate.classic.Window`.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Window {
    config: limits::WindowConfig,
}

#[pymethods]
impl Window {
    #[new]
    #[pyo3(signature = (*, min_duration, max_duration, min_samples, min_rtt))]
    fn new(
        min_duration: &Bound<'_, PyAny>,
        max_duration: &Bound<'_, PyAny>,
        min_samples: &Bound<'_, PyAny>,
        min_rtt: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let above = "a number of seconds above 0 and at most 3600";
        let from = "a number of seconds from 0 to 3600";
        let config = limits::WindowConfig {
            min_duration: seconds("min_duration", above, min_duration)?,
            max_duration: seconds("max_duration", above, max_duration)?,
            min_samples: integer("min_samples", ranges::COUNT, min_samples)?,
            min_rtt: seconds("min_rtt", from, min_rtt)?,
        };
        limits::Window::new(config)?;
        Ok(Self { config })
    }
}

/// A limit that follows an algorithm; see `sluicegate.classic.ClassicLimiter`.
#[pyclass(frozen, subclass, extends = BaseLimiter, module = "sluicegate._core")]
pub(crate) struct ClassicLimiter {
    core: Arc<Shared<Classic<Waiter>>>,
}

#[pymethods]
impl ClassicLimiter {
    #[new]
    #[pyo3(signature = (algorithm, *, window, name = None, clock = None))]
    fn new(
        py: Python<'_>,
        algorithm: &Algorithm,
        window: Option<&Window>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let window = window.map(|window| window.config);
        let primitive = Classic::new(algorithm.initial.clone(), window)?;
        let clock = Clock::new(clock)?;
        let core = Shared::new(primitive, limiter::name(py, name)?, clock);
        let base = PyClassInitializer::from(BaseLimiter::new(core.clone()));
        Ok(base.add_subclass(Self { core }))
    }

    /// Change the least or the most that the limit may become, and move the limit into
    /// it.
    #[pyo3(signature = (*, min_limit = None, max_limit = None))]
    fn update(
        slf: &Bound<'_, Self>,
        min_limit: Option<&Bound<'_, PyAny>>,
        max_limit: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        slf.as_super().get().refuse_if_given_away(py)?;
        let min_limit = integer_or_none("min_limit", ranges::LIMIT, min_limit)?;
        let max_limit = integer_or_none("max_limit", ranges::MAX_LIMIT, max_limit)?;
        if min_limit.is_none() && max_limit.is_none() {
            return Ok(());
        }
        let (updated, delivered) = this.core.change(py, |state, now| {
            let (least, most) = state.algorithm().estimate().range();
            match state.update(now, min_limit.unwrap_or(least), max_limit.unwrap_or(most)) {
                Ok(wakes) => (Ok(()), wakes),
                Err(error) => (Err(error), Wakes::none()),
            }
        })?;
        updated?;
        delivered
    }
}

impl Hosted for Classic<Waiter> {
    type Listener = ();
}

impl Limits for Classic<Waiter> {
    fn semaphore(&self) -> &Semaphore<Waiter> {
        &self.semaphore
    }

    fn semaphore_mut(&mut self) -> &mut Semaphore<Waiter> {
        &mut self.semaphore
    }

    fn release(
        &mut self,
        now: Time,
        right: Right,
        _operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<Waiter> {
        self.release(now, right, outcome)
    }

    fn gate_limit(&self) -> GateLimit {
        GateLimit::Classic(Box::new(self.algorithm().clone()), self.window().copied())
    }

    fn because(&self) -> String {
        self.because()
    }
}

/// Without one, by chance.
fn seed_or_any(seed: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    let seed = integer_or_none("seed", "an integer from 0 to 2**64 - 1, or None", seed)?;
    // Its keys come from the operating system.
    Ok(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
}
