use std::time::Duration;

use super::{ConfigError, Time};

/// The controlled-delay algorithm as Facebook's folly has it, for comparison and
/// for those who come from there.
///
/// It is asked at each dequeue, and judges by the smallest delay within the last
/// `interval`: if that was above `target`, what has waited for more than twice
/// the target is to be rejected. What is not dequeued it does not see, so that a
/// queue whose workers are stuck keeps its items for ever; [`CoDelQueue`](super::CoDelQueue)
/// does not.
#[derive(Clone, Debug)]
pub struct Codel {
    target: Duration,
    interval: Duration,
    min_delay: Duration,
    interval_end: Time,
    is_reset: bool,
    is_overloaded: bool,
}

impl Codel {
    /// The target delay of folly.
    pub const TARGET: Duration = Duration::from_millis(5);
    /// The interval of folly.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// A controller that begins at `now`.
    ///
    /// # Errors
    /// Unless 0 < `target` < `interval`.
    pub fn new(now: Time, target: Duration, interval: Duration) -> Result<Self, ConfigError> {
        if target.is_zero() {
            return Err(ConfigError::new("target", "0", "a span above 0"));
        }
        if interval <= target {
            let value = interval.as_secs_f64();
            return Err(ConfigError::new("interval", value, "longer than target"));
        }
        Ok(Self {
            target,
            interval,
            min_delay: Duration::ZERO,
            interval_end: now,
            is_reset: true,
            is_overloaded: false,
        })
    }

    /// Whether an item that is dequeued at `now`, having waited for `delay`, is to
    /// be rejected.
    pub fn is_overloaded(&mut self, now: Time, delay: Duration) -> bool {
        if now > self.interval_end && !self.is_reset {
            self.is_reset = true;
            self.interval_end = now.after(self.interval);
            self.is_overloaded = self.min_delay > self.target;
        }
        if self.is_reset {
            self.is_reset = false;
            self.min_delay = delay;
            return false;
        }
        self.min_delay = self.min_delay.min(delay);
        self.is_overloaded && delay > self.slough()
    }

    /// How loaded it is, in percent: the smallest delay of this interval by twice
    /// the target, at most 100.
    #[must_use]
    pub fn load(&self) -> f64 {
        (100.0 * self.min_delay.as_secs_f64() / self.slough().as_secs_f64()).min(100.0)
    }

    /// The target delay.
    #[must_use]
    pub const fn target(&self) -> Duration {
        self.target
    }

    /// The interval over which the smallest delay is taken.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    fn slough(&self) -> Duration {
        self.target.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (t, delay, shed), in milliseconds.
    const VECTOR: [(u64, u64, bool); 15] = [
        (1, 20, false),
        (50, 20, false),
        (101, 20, true),
        (102, 20, true),
        (150, 11, true),
        (160, 10, false),
        (199, 20, true),
        (201, 20, true),
        (210, 4, false),
        (260, 20, true),
        (302, 20, false),
        (303, 20, false),
        (310, 50, false),
        (403, 3, false),
        (404, 50, true),
    ];

    #[test]
    fn it_is_true_to_folly() -> Result<(), ConfigError> {
        let mut codel = Codel::new(Time::ZERO, Codel::TARGET, Codel::INTERVAL)?;
        for (at, delay, expected) in VECTOR {
            let now = Time::from_nanos(at * 1_000_000);
            let is_overloaded = codel.is_overloaded(now, Duration::from_millis(delay));
            assert_eq!(is_overloaded, expected, "at {at} ms, after {delay} ms");
        }
        Ok(())
    }

    #[test]
    fn the_load_is_the_least_delay_by_twice_the_target() -> Result<(), ConfigError> {
        let mut codel = Codel::new(Time::ZERO, Codel::TARGET, Codel::INTERVAL)?;
        codel.is_overloaded(Time::from_nanos(1), Duration::from_millis(4));
        assert!((codel.load() - 40.0).abs() < 1e-9);
        codel.is_overloaded(Time::from_nanos(2), Duration::from_millis(1));
        assert!((codel.load() - 10.0).abs() < 1e-9);
        codel.is_overloaded(Time::from_secs_f64(1.0), Duration::from_secs(1));
        assert!((codel.load() - 100.0).abs() < 1e-9);
        Ok(())
    }

    #[test]
    fn the_target_is_below_the_interval() {
        let (target, interval) = (Codel::TARGET, Codel::INTERVAL);
        for (target, interval, parameter) in [
            (Duration::ZERO, interval, "target"),
            (target, target, "interval"),
            (target, Duration::ZERO, "interval"),
        ] {
            let error = Codel::new(Time::ZERO, target, interval).err();
            assert_eq!(error.as_ref().map(ConfigError::parameter), Some(parameter));
        }
    }
}
