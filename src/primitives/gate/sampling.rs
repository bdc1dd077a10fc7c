use std::time::Duration;

use crate::primitives::Time;
use crate::primitives::random::Random;

/// How often a sample is enough.
const ENOUGH: Duration = Duration::from_millis(1);
/// At most so many are passed over.
const MOST: u64 = 4096;

/// Which ends of work are samples of the service time: all, up to about a thousand a
/// second, and of more as many, drawn by chance so that no pattern in what comes is seen
/// for the whole. A sample costs as much as all the rest of a decision.
#[derive(Debug)]
pub(super) struct Sampling {
    /// How many are passed over before the next one.
    pause: u64,
    /// How many are passed over in the mean.
    mean: u64,
    last: Time,
    /// Of its own: what is rejected, and by chance, is no reason to draw others.
    random: Random,
}

impl Sampling {
    pub(super) const fn new(seed: u64) -> Self {
        Self { pause: 0, mean: 0, last: Time::ZERO, random: Random::new(seed) }
    }

    /// Whether the last one is not just now.
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.pause == 0 || now >= self.last.after(ENOUGH)
    }

    /// Whether this one is a sample.
    #[inline]
    pub(super) fn takes(&mut self, now: Time) -> bool {
        if self.pause > 0 && now < self.last.after(ENOUGH) {
            self.pause -= 1;
            return false;
        }
        let is_often = now < self.last.after(ENOUGH);
        self.mean = if is_often { (2 * self.mean + 1).min(MOST) } else { self.mean / 2 };
        self.pause = if self.mean > 0 { self.random.bits() % (2 * self.mean + 1) } else { 0 };
        self.last = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(every: Duration, count: u32) -> u32 {
        let mut sampling = Sampling::new(1);
        let takes = (0..count).map(|turn| {
            let now = Time::ZERO.after(every * turn);
            u32::from(sampling.takes(now))
        });
        takes.sum()
    }

    #[test]
    fn all_that_are_rare_are_taken() {
        assert_eq!(taken(Duration::from_millis(1), 1000), 1000);
        assert_eq!(taken(Duration::from_secs(1), 10), 10);
    }

    #[test]
    fn of_many_about_a_thousand_a_second_are_taken() {
        for every in [100, 1_000, 10_000, 100_000].map(Duration::from_nanos) {
            let seconds = every.as_secs_f64() * 1e6;
            let rate = f64::from(taken(every, 1_000_000)) / seconds;
            assert!((500.0..4_000.0).contains(&rate), "{rate} of {every:?}");
        }
    }

    #[test]
    fn no_pattern_is_seen_for_the_whole() {
        let mut sampling = Sampling::new(1);
        let mut counts = [0_u32; 4];
        for turn in 0..1_000_000_u32 {
            let now = Time::ZERO.after(Duration::from_micros(20) * turn);
            counts[turn as usize % 4] += u32::from(sampling.takes(now));
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least > Some(&3_000) && most < Some(&8_000), "{counts:?}");
    }
}
