use std::time::Duration;

use hdrhistogram::Histogram;

use super::Time;

/// How long a half of the window is.
const HALF: Duration = Duration::from_secs(2);
/// For how long a late sample says that it is so still.
const FRESH: Duration = Duration::from_millis(500);
const QUANTILE: f64 = 0.99;
/// A shorter lag is told from none, but not from others.
const SHORTEST: u64 = 100_000;
/// A sample counts as at most so long.
const LONGEST: Duration = Duration::from_secs(60);

/// How late an event loop runs what is due: the 99th percentile of samples of the last 2
/// to 4 s, in constant memory.
///
/// A sample is how much later than due a timer was called. Two things are left out, since
/// they say nothing about load: the one worst sample, however few there are, such as a
/// pause of the garbage collector; and everything once half a second was on time, so that
/// an overload that is over is not seen for as long as the window.
///
/// Lags are known to 1 %, from 0.1 ms to 60 s. `now` may stand still or jump back: the
/// latest moment seen counts.
#[derive(Clone, Debug)]
pub struct LagWindow {
    now: Time,
    /// The current half and the one before.
    recent: Option<Histogram<u32>>,
    current: Option<Histogram<u32>>,
    current_since: Time,
    /// The worst of the current quarter of a second or so, and of the one before.
    worst: [Duration; 2],
    worst_since: Time,
}

impl Default for LagWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl LagWindow {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            now: Time::ZERO,
            recent: histogram(),
            current: histogram(),
            current_since: Time::ZERO,
            worst: [Duration::ZERO; 2],
            worst_since: Time::ZERO,
        }
    }

    /// Takes a sample.
    pub fn record(&mut self, now: Time, lag: Duration) {
        self.advance(now);
        let lag = lag.min(LONGEST);
        let nanos = u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX);
        for histogram in [&mut self.recent, &mut self.current].into_iter().flatten() {
            histogram.saturating_record(nanos);
        }
        self.worst[0] = self.worst[0].max(lag);
    }

    /// The lag at this moment; zero without samples.
    pub fn lag(&mut self, now: Time) -> Duration {
        self.advance(now);
        let worst = self.worst[0].max(self.worst[1]);
        self.recent.as_ref().map_or(Duration::ZERO, |recent| quantile(recent).min(worst))
    }

    /// The lag as a pressure: 1 at `target`. A target of zero counts as one of a
    /// nanosecond.
    pub fn pressure(&mut self, now: Time, target: Duration) -> f64 {
        self.lag(now).as_secs_f64() / target.max(Duration::from_nanos(1)).as_secs_f64()
    }

    /// Forgets what is old.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        let (half, quarter) =
            (self.now.since(self.current_since), self.now.since(self.worst_since));
        if half >= HALF {
            std::mem::swap(&mut self.recent, &mut self.current);
            clear(&mut self.current);
            if half >= 2 * HALF {
                clear(&mut self.recent);
            }
            self.current_since = self.now;
        }
        if quarter >= FRESH / 2 {
            let is_old = quarter >= FRESH;
            self.worst = [Duration::ZERO, if is_old { Duration::ZERO } else { self.worst[0] }];
            self.worst_since = self.now;
        }
    }
}

/// These bounds are right: it is there.
fn histogram() -> Option<Histogram<u32>> {
    Histogram::new_with_bounds(SHORTEST, LONGEST.as_secs() * 1_000_000_000, 2).ok()
}

fn clear(histogram: &mut Option<Histogram<u32>>) {
    if let Some(histogram) = histogram {
        histogram.clear();
    }
}

/// By rank, never that of the highest sample.
fn quantile(histogram: &Histogram<u32>) -> Duration {
    let count = histogram.len() as f64;
    let rank = (count * QUANTILE).ceil().min(count - 1.0);
    if rank < 1.0 {
        return Duration::ZERO;
    }
    Duration::from_nanos(histogram.value_at_quantile((rank - 0.5) / count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Samples each 50 ms until `end`, in milliseconds, as late as is said.
    fn play(window: &mut LagWindow, from: u64, end: u64, lag: impl Fn(u64) -> u64) {
        for now in (from..end).step_by(50) {
            window.record(at(now), millis(lag(now)));
        }
    }

    fn is_near(lag: Duration, expected: u64) -> bool {
        (lag.as_secs_f64() * 1e3 - expected as f64).abs() <= 0.011 * expected as f64 + 0.1
    }

    #[test]
    fn without_samples_there_is_no_lag() {
        let mut window = LagWindow::new();
        assert_eq!(window.lag(at(0)), Duration::ZERO);
        assert!(window.pressure(at(1_000), TARGET).abs() < 1e-9);
    }

    #[test]
    fn a_loop_that_is_late_is_seen_at_once_and_as_late_as_it_is() {
        let mut window = LagWindow::new();
        play(&mut window, 0, 4_000, |_| 1);
        assert!(window.pressure(at(4_000), TARGET) < 0.1);
        play(&mut window, 4_000, 4_500, |_| 100);
        let pressure = window.pressure(at(4_500), TARGET);
        assert!((pressure - 2.0).abs() < 0.03, "{pressure}");
    }

    #[test]
    fn one_pause_is_no_load() {
        let mut window = LagWindow::new();
        play(&mut window, 0, 60_000, |now| if now == 30_000 { 900 } else { 1 });
        for from in [0, 30_000] {
            let mut window = LagWindow::new();
            for now in (from..from + 8_000).step_by(50) {
                window.record(at(now), millis(if now == from { 900 } else { 1 }));
                assert!(window.lag(at(now)) < millis(2), "at {now} ms");
            }
        }
        // Two within the window are load.
        play(&mut window, 60_000, 60_500, |now| if now % 200 == 0 { 300 } else { 1 });
        assert!(is_near(window.lag(at(60_500)), 300));
    }

    #[test]
    fn an_overload_that_is_over_is_not_seen_for_longer_than_half_a_second() {
        let mut window = LagWindow::new();
        play(&mut window, 0, 10_000, |_| 400);
        assert!(is_near(window.lag(at(10_000)), 400));
        play(&mut window, 10_000, 10_600, |_| 1);
        assert!(window.lag(at(10_600)) < millis(2));
    }

    #[test]
    fn a_loop_that_is_sampled_no_more_has_no_lag() {
        let mut window = LagWindow::new();
        play(&mut window, 0, 10_000, |_| 400);
        assert_eq!(window.lag(at(10_600)), Duration::ZERO);
        assert_eq!(window.lag(at(3_600_000)), Duration::ZERO);
        // Nor is one late sample enough then.
        window.record(at(3_600_000), millis(3_600_000));
        assert_eq!(window.lag(at(3_600_000)), Duration::ZERO);
        window.record(at(3_600_000), millis(3_600_000));
        assert!(is_near(window.lag(at(3_600_000)), 60_000));
    }

    proptest! {
        #[test]
        fn no_clock_and_no_lag_is_too_odd(
            samples in prop::collection::vec((any::<u64>(), any::<u64>()), 0..200),
        ) {
            let mut window = LagWindow::new();
            for (now, lag) in samples {
                window.record(Time::from_nanos(now), Duration::from_nanos(lag));
                let lag = window.lag(Time::from_nanos(now / 2));
                prop_assert!(lag <= LONGEST);
                prop_assert!(window.pressure(Time::ZERO, Duration::ZERO).is_finite());
            }
        }

        #[test]
        fn it_is_the_percentile_of_the_window_without_the_worst(
            lags in prop::collection::vec(1_u64..2_000, 1..200),
        ) {
            let mut window = LagWindow::new();
            for lag in &lags {
                window.record(at(1), millis(*lag));
            }
            let mut sorted = lags.clone();
            sorted.sort_unstable();
            let rank = ((lags.len() * 99).div_ceil(100)).min(lags.len() - 1);
            let expected = if rank == 0 { 0 } else { sorted[rank - 1] };
            prop_assert!(is_near(window.lag(at(1)), expected), "{expected}");
        }
    }
}
