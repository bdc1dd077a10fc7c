use std::time::Duration;

use super::ConfigError;

const RANGE: &str = "a number of seconds from 0 to 3600";
const LONGEST: Duration = Duration::from_secs(3600);
/// How often the span is doubled at most.
const DOUBLINGS: u32 = 6;

/// For how long to wait before a retry: *full jitter*, uniform from nothing up to a span
/// that doubles with each attempt, at most six times.
///
/// The random part is all of it, and not an addition: callers that failed at the same
/// moment are spread as widely as can be (M. Brooker, "Exponential Backoff And Jitter",
/// AWS 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
}

impl Backoff {
    /// One whose first wait is shorter than `first`, which is at most an hour.
    ///
    /// # Errors
    /// If it is longer.
    pub fn new(first: Duration) -> Result<Self, ConfigError> {
        if first > LONGEST {
            return Err(ConfigError::new("backoff", first.as_secs_f64(), RANGE));
        }
        Ok(Self { first })
    }

    /// The wait after so many attempts, of which there is at least one. `draw` is a random
    /// number from 0 up to 1; what is none of them counts as the nearest.
    #[must_use]
    pub fn after(&self, attempts: u32, draw: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS);
        let draw = if draw.is_nan() { 1.0 } else { draw.clamp(0.0, 1.0) };
        (self.first * 2_u32.pow(doublings)).mul_f64(draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_span_doubles_with_each_attempt_up_to_64_times() {
        let backoff = Backoff::new(ms(100)).unwrap();
        let spans = [1, 2, 3, 7, 8, u32::MAX].map(|attempts| backoff.after(attempts, 1.0));
        assert_eq!(spans, [ms(100), ms(200), ms(400), ms(6_400), ms(6_400), ms(6_400)]);
    }

    #[test]
    fn the_wait_is_the_share_that_was_drawn() {
        let backoff = Backoff::new(ms(100)).unwrap();
        assert_eq!(backoff.after(2, 0.0), Duration::ZERO);
        assert_eq!(backoff.after(2, 0.25), ms(50));
        // What cannot have been drawn is never more than the span.
        assert_eq!(backoff.after(0, 2.0), ms(100));
        assert_eq!(backoff.after(1, f64::NAN), ms(100));
        assert_eq!(backoff.after(1, -1.0), Duration::ZERO);
    }

    #[test]
    fn an_hour_is_the_longest() {
        assert!(Backoff::new(LONGEST).is_ok());
        let error = Backoff::new(LONGEST + ms(1)).unwrap_err();
        assert_eq!(error.parameter(), "backoff");
    }
}
