use std::time::Duration;

use crate::primitives::Time;

const BUCKETS: usize = 6;

/// The most that was in flight of late, over a span that slides by a sixth of itself.
#[derive(Clone, Debug)]
pub(super) struct Peak {
    buckets: [u64; BUCKETS],
    current: usize,
    /// When the current bucket ends; `None` before the first use.
    end: Option<Time>,
}

impl Peak {
    pub(super) const fn new() -> Self {
        Self { buckets: [0; BUCKETS], current: 0, end: None }
    }

    /// Whether something is to be forgotten by [`advance`](Self::advance).
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.end.is_none_or(|end| end <= now)
    }

    #[inline]
    pub(super) fn record(&mut self, in_flight: u64) {
        let bucket = &mut self.buckets[self.current];
        *bucket = in_flight.max(*bucket);
    }

    /// Forgets what is older than `span`. What is in flight now is of this moment, however long
    /// ago it was admitted. Whether all of it was forgotten at once: nobody has asked for as long.
    pub(super) fn advance(&mut self, now: Time, span: Duration, in_flight: u64) -> bool {
        let width = (span / 6).max(Duration::from_nanos(1));
        let mut is_all = false;
        if let Some(end) = self.end {
            let passed = 1 + now.since(end).as_nanos() / width.as_nanos();
            is_all = passed >= BUCKETS as u128;
            for _ in 0..passed.min(BUCKETS as u128) {
                self.current = (self.current + 1) % BUCKETS;
                self.buckets[self.current] = 0;
            }
        }
        self.end = Some(now.after(width));
        self.record(in_flight);
        is_all
    }

    pub(super) fn highest(&self) -> u64 {
        self.buckets.into_iter().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_peak_is_forgotten_after_the_span() {
        let mut peak = Peak::new();
        let at = |second: u64| Time::from_nanos(second * 1_000_000_000);
        assert!(!peak.advance(at(0), MINUTE, 0));
        peak.record(100);
        for second in 1..50 {
            if peak.is_due(at(second)) {
                assert!(!peak.advance(at(second), MINUTE, 3));
            }
            assert_eq!(peak.highest(), 100, "{second}");
        }
        for second in 50..61 {
            if peak.is_due(at(second)) {
                assert!(!peak.advance(at(second), MINUTE, 3));
            }
        }
        assert_eq!(peak.highest(), 3);
        assert!(peak.advance(Time::MAX, MINUTE, 0));
        assert_eq!(peak.highest(), 0);
        assert!(peak.is_due(Time::MAX));
        assert!(!peak.advance(Time::MAX, Duration::ZERO, 7));
        assert_eq!(peak.highest(), 7);
    }
}
