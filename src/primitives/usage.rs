use std::time::Duration;

use super::Time;

/// How often there is something to read.
const INTERVAL: Duration = Duration::from_millis(200);
/// Over about how many seconds usage is smoothed.
const SMOOTHING: f64 = 0.5;
/// By how much the pressure is above 1, at least, if all is in use.
const FULL: f64 = 0.5;
const LEAST_TARGET: f64 = 1e-9;

/// What share of a resource is in use, from counters that only grow: of how much was
/// used, and of how much there was to use. Smoothed exponentially over 0.5 s.
///
/// A counter that went back, or that is no number, begins anew. `now` may stand still or
/// jump back: the latest moment seen counts.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    last: Option<Reading>,
    usage: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Time,
    used: f64,
    available: f64,
}

impl Usage {
    /// One that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it is time to read the counters again: 0.2 s have passed.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.last.is_none_or(|last| now.since(last.at) >= INTERVAL)
    }

    /// Takes a reading of the counters, both in the same unit.
    pub fn record(&mut self, now: Time, used: f64, available: f64) {
        let at = self.last.map_or(now, |last| last.at.max(now));
        let reading = Reading { at, used, available };
        if let Some(last) = self.last.replace(reading) {
            let step = at.since(last.at).as_secs_f64();
            let (used, available) = (used - last.used, available - last.available);
            if step > 0.0 && used >= 0.0 && available > 0.0 && available.is_finite() {
                // Readings may be a little apart in time: more than all cannot be in use.
                let usage = (used / available).min(1.0);
                let weight = -(-step / SMOOTHING).exp_m1();
                let old = self.usage.unwrap_or(usage);
                self.usage = Some(old + weight * (usage - old));
            }
        }
    }

    /// The share that is in use, from 0 to 1; 0 before there are two readings.
    #[must_use]
    pub fn usage(&self) -> f64 {
        self.usage.unwrap_or(0.0)
    }

    /// The usage as a pressure: 1 at `target`, from 0 to 1.
    ///
    /// More than all cannot be used, however much is asked for. So that this is told from
    /// a little too much, the pressure is at least 1.5 if all is in use, and rises evenly
    /// between.
    #[must_use]
    pub fn pressure(&self, target: f64) -> f64 {
        let (usage, beyond) = (self.usage(), self.usage() - target);
        if usage == 0.0 {
            return 0.0;
        }
        let steep = if beyond > 0.0 { 1.0 + FULL * beyond / (1.0 - target) } else { 0.0 };
        steep.max(usage / target.max(LEAST_TARGET))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn usage_is_the_share_of_what_there_was() {
        let mut usage = Usage::new();
        assert!(usage.is_due(at(0)));
        usage.record(at(0), 100.0, 1_000.0);
        assert!(usage.usage().abs() < 1e-9);
        assert!(!usage.is_due(at(199)) && usage.is_due(at(200)));
        usage.record(at(200), 100.2, 1_000.4);
        assert!((usage.usage() - 0.5).abs() < 1e-9);
        for (target, pressure) in
            [(1.0, 0.5), (0.8, 0.625), (0.5, 1.0), (0.25, 2.0), (0.48, 1.0 + 0.5 * 0.02 / 0.52)]
        {
            let asked = usage.pressure(target);
            let expected = f64::max(pressure, 0.5 / target);
            assert!((asked - expected).abs() < 1e-9, "{target}: {asked}");
        }
    }

    #[test]
    fn all_in_use_is_half_again_as_much_as_the_target() {
        let mut usage = Usage::new();
        usage.record(at(0), 0.0, 0.0);
        usage.record(at(1_000), 1.0, 1.0);
        assert!((usage.pressure(0.9) - 1.5).abs() < 1e-9);
        assert!((usage.pressure(1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn it_is_smoothed_by_time_however_often_it_is_read() {
        for step in [50, 100, 250, 500] {
            let (mut usage, mut used) = (Usage::new(), 0.0);
            for now in (0..=2_500_u64).step_by(step) {
                usage.record(at(now), used, now as f64 / 1e3);
                used += if now < 2_000 { 0.0 } else { step as f64 / 1e3 };
            }
            // One time constant after it went from 0 to all.
            assert!((usage.usage() - 0.632).abs() < 1e-3, "{step}: {}", usage.usage());
        }
    }

    #[test]
    fn counters_that_go_back_begin_anew() {
        let mut usage = Usage::new();
        usage.record(at(0), 0.0, 0.0);
        usage.record(at(1_000), 0.5, 1.0);
        for (used, available) in [(0.1, 2.0), (0.2, 1.0), (f64::NAN, f64::NAN), (9.0, 9.0)] {
            usage.record(at(2_000), used, available);
            assert!((usage.usage() - 0.5).abs() < 1e-9);
        }
        usage.record(at(60_000), 10.0, 10.0);
        assert!((usage.usage() - 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn no_reading_is_too_odd(readings in prop::collection::vec(any::<(u64, f64, f64)>(), 0..100)) {
            let mut usage = Usage::new();
            for (now, used, available) in readings {
                usage.record(Time::from_nanos(now), used, available);
                prop_assert!((0.0..=1.0).contains(&usage.usage()));
                for target in [0.0, 0.9, 1.0] {
                    prop_assert!(usage.pressure(target).is_finite());
                }
            }
        }
    }
}
