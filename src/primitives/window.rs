use std::ops::SubAssign;
use std::time::Duration;

use super::{ConfigError, Time};

/// The longest window.
const MAX_WINDOW: Duration = Duration::from_secs(3600);

/// How many buckets a window has: what it counts is forgotten after the window,
/// or up to a thirtieth of it earlier.
pub(crate) const BUCKETS: usize = 30;

/// Counts what happened within the last so many seconds, in a ring of buckets:
/// its size does not depend on how much happens.
///
/// `C` is what is counted. The caller advances it before every use; moments are
/// never less than the one before.
#[derive(Clone, Debug)]
pub(crate) struct Window<C> {
    buckets: [C; BUCKETS],
    /// The sum of the buckets.
    total: C,
    /// How long a bucket is, in nanoseconds.
    width: u64,
    /// Which bucket is the current one, counted from the origin of the clock.
    current: u64,
    /// When it ends, so that most advances need no division.
    end: u64,
}

impl<C: Copy + Default + SubAssign> Window<C> {
    /// An empty one.
    ///
    /// # Errors
    /// If `span` is not above 0 and at most an hour.
    pub(crate) fn new(span: Duration) -> Result<Self, ConfigError> {
        if span.is_zero() || span > MAX_WINDOW {
            let range = "a number of seconds above 0 and at most 3600";
            return Err(ConfigError::new("window", span.as_secs_f64(), range));
        }
        // Rounded down, so that nothing is counted for longer than the window.
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let width = (nanos / BUCKETS as u64).max(1);
        Ok(Self {
            buckets: [C::default(); BUCKETS],
            total: C::default(),
            width,
            current: 0,
            end: width,
        })
    }

    /// Forgets what is older than the window; whether the current bucket is
    /// another one than before.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) -> bool {
        now.as_nanos() >= self.end && self.turn(now.as_nanos() / self.width)
    }

    #[cold]
    fn turn(&mut self, number: u64) -> bool {
        let passed = number.saturating_sub(self.current);
        if passed >= BUCKETS as u64 {
            self.clear();
        } else {
            for skipped in self.current..number {
                let expired = std::mem::take(&mut self.buckets[slot(skipped + 1)]);
                self.total -= expired;
            }
        }
        self.current = number;
        self.end = number.saturating_add(1).saturating_mul(self.width);
        passed > 0
    }

    /// All that is within the window.
    #[inline]
    pub(crate) const fn total(&self) -> &C {
        &self.total
    }

    /// The `count` latest buckets, the current one among them.
    #[inline]
    pub(crate) fn latest(&self, count: usize) -> impl Iterator<Item = &C> {
        let newest = slot(self.current) + BUCKETS;
        (0..count).map(move |age| &self.buckets[(newest - age) % BUCKETS])
    }

    /// Which bucket is the current one.
    pub(crate) const fn current(&self) -> u64 {
        self.current
    }

    /// How long a bucket is.
    pub(crate) const fn width(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// Changes what is counted now.
    #[inline]
    pub(crate) fn count(&mut self, change: impl Fn(&mut C)) {
        change(&mut self.buckets[slot(self.current)]);
        change(&mut self.total);
    }

    /// Changes what was counted in an earlier bucket, unless that is forgotten.
    pub(crate) fn recount(&mut self, number: u64, change: impl Fn(&mut C)) {
        if number.saturating_add(BUCKETS as u64) > self.current {
            change(&mut self.buckets[slot(number)]);
            change(&mut self.total);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.buckets = [C::default(); BUCKETS];
        self.total = C::default();
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // below BUCKETS
const fn slot(number: u64) -> usize {
    (number % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seconds: u64) -> Window<u64> {
        Window::new(Duration::from_secs(seconds)).unwrap()
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn nothing_is_counted_for_longer_than_the_window() {
        // A span that does not divide into whole buckets, too.
        for span in [7, 10, 30, 3600] {
            let mut window = window(span);
            window.count(|count| *count += 1);
            window.advance(at(span * 1000 * 29 / 30 - 1));
            assert_eq!(*window.total(), 1);
            window.advance(at(span * 1000));
            assert_eq!(*window.total(), 0);
        }
    }

    #[test]
    fn buckets_are_forgotten_one_by_one() {
        let mut window = window(30);
        for second in 0..60 {
            window.advance(at(second * 1000));
            window.count(|count| *count += second);
            let expected: u64 = (second.saturating_sub(29)..=second).sum();
            assert_eq!(*window.total(), expected);
            assert_eq!(window.latest(30).sum::<u64>(), expected);
            assert_eq!(window.latest(1).sum::<u64>(), second);
        }
    }

    #[test]
    fn a_bucket_that_is_forgotten_cannot_be_recounted() {
        let mut window = window(30);
        let first = window.current();
        window.count(|count| *count += 2);
        window.advance(at(29_999));
        window.recount(first, |count| *count -= 1);
        assert_eq!(*window.total(), 1);
        window.advance(at(30_000));
        window.recount(first, |count| *count -= 1);
        assert_eq!(*window.total(), 0);
        assert_eq!(window.latest(30).sum::<u64>(), 0);
    }

    #[test]
    fn the_end_of_time_is_a_moment_like_any_other() {
        let mut window = window(30);
        window.count(|count| *count += 1);
        assert!(window.advance(Time::MAX));
        window.count(|count| *count += 5);
        assert!(!window.advance(Time::MAX));
        assert_eq!(*window.total(), 5);
    }
}
