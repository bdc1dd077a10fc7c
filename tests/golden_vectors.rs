//! The published algorithms do what their originals do, number for number.
//!
//! The numbers were taken from the originals, or computed from the formulas that
//! their makers publish. Limits are in whole units, as the originals report them.

#![allow(clippy::expect_used, clippy::float_cmp)]

use std::time::Duration;

use sluicegate::primitives::limits::{
    Aimd, AimdConfig, Gradient, Gradient2, Gradient2Config, GradientConfig, LimitAlgorithm, Sample,
    Vegas, VegasConfig,
};
use sluicegate::primitives::published::failsafe::Change::{Decrease, Hold, Increase};
use sluicegate::primitives::published::{envoy, failsafe, go_zero};

/// An algorithm that is fed one sample an update.
struct Fed<A>(A);

impl<A: LimitAlgorithm> Fed<A> {
    /// All of the limit is in flight.
    fn full(&mut self, millis: f64, times: usize) -> Vec<f64> {
        self.feed(millis, times, 1.0, false)
    }

    fn overload(&mut self, millis: f64, times: usize) -> Vec<f64> {
        self.feed(millis, times, 1.0, true)
    }

    /// Less than half of the limit is in flight.
    fn light(&mut self, millis: f64, times: usize) -> Vec<f64> {
        self.feed(millis, times, 0.4, false)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn feed(&mut self, millis: f64, times: usize, share: f64, is_overload: bool) -> Vec<f64> {
        let rtt = Duration::from_secs_f64(millis / 1e3);
        let mut limits = Vec::new();
        for _ in 0..times {
            let in_flight = (self.0.limit() * share) as u64;
            let limit = self.0.update(&Sample { rtt, in_flight, is_overload });
            assert_eq!(limit.to_bits(), self.0.limit().to_bits());
            limits.push(limit);
        }
        limits
    }
}

fn last(limits: &[f64]) -> f64 {
    *limits.last().expect("at least one")
}

fn lowest(limits: &[f64]) -> f64 {
    limits.iter().copied().fold(f64::INFINITY, f64::min)
}

fn aimd(config: AimdConfig) -> Fed<Aimd> {
    Fed(Aimd::new(config).expect("in its range"))
}

fn vegas(initial: u32) -> Fed<Vegas> {
    let config = VegasConfig { initial, probe_multiplier: None, ..VegasConfig::default() };
    Fed(Vegas::new(config).expect("in its range"))
}

fn gradient2(config: Gradient2Config) -> Fed<Gradient2> {
    Fed(Gradient2::new(config).expect("in its range"))
}

#[test]
fn aimd_by_default() {
    let mut aimd = aimd(AimdConfig::default());
    assert_eq!(aimd.full(10.0, 5), [21.0, 22.0, 23.0, 24.0, 25.0]);
    assert_eq!(aimd.light(10.0, 3), [25.0; 3]);
    assert_eq!(aimd.overload(10.0, 4), [22.0, 20.0, 20.0, 20.0]);
    assert_eq!(aimd.full(6_000.0, 2), [20.0; 2]);
}

#[test]
fn aimd_from_100_down() {
    let mut aimd = aimd(AimdConfig { initial: 100, min_limit: 1, ..AimdConfig::default() });
    let down = [90.0, 81.0, 72.0, 64.0, 57.0, 51.0, 45.0, 40.0, 36.0, 32.0, 28.0, 25.0];
    assert_eq!(aimd.overload(10.0, 12), down);
    assert_eq!(aimd.full(10.0, 3), [26.0, 27.0, 28.0]);
}

#[test]
fn gradient_without_probes() {
    let config = GradientConfig { probe_interval: None, ..GradientConfig::default() };
    let mut gradient = Fed(Gradient::new(config).expect("in its range"));
    assert_eq!(gradient.full(10.0, 6), [57.0, 64.0, 72.0, 80.0, 88.0, 97.0]);
    assert_eq!(
        gradient.full(20.0, 10),
        [106.0, 116.0, 126.0, 137.0, 148.0, 160.0, 172.0, 185.0, 198.0, 212.0]
    );
    assert_eq!(
        gradient.full(40.0, 10),
        [193.0, 176.0, 161.0, 147.0, 135.0, 124.0, 114.0, 104.0, 96.0, 88.0]
    );
    assert_eq!(
        gradient.full(100.0, 10),
        [81.0, 74.0, 69.0, 63.0, 58.0, 54.0, 50.0, 46.0, 43.0, 40.0]
    );
    assert_eq!(last(&gradient.full(100.0, 300)), 8.0);
    assert_eq!(gradient.overload(100.0, 3), [7.0; 3]);
    assert_eq!(gradient.light(100.0, 1), [7.0]);
    assert_eq!(gradient.full(10.0, 8), [11.0, 15.0, 19.0, 23.0, 27.0, 32.0, 37.0, 43.0]);
}

#[test]
fn gradient2_from_1_up() {
    let mut gradient = gradient2(Gradient2Config { min_limit: 1, ..Gradient2Config::default() });
    assert_eq!(
        gradient.full(10.0, 12),
        [20.0, 21.0, 22.0, 23.0, 24.0, 24.0, 25.0, 26.0, 27.0, 28.0, 28.0, 29.0]
    );
    assert_eq!(gradient.light(10.0, 1), [29.0]);
    assert_eq!(
        gradient.full(100.0, 12),
        [27.0, 25.0, 23.0, 22.0, 20.0, 19.0, 18.0, 17.0, 16.0, 15.0, 14.0, 14.0]
    );
    // Overload becomes normal.
    let later = gradient.full(100.0, 600);
    assert!(lowest(&later) < 10.0, "{}", lowest(&later));
    assert_eq!(last(&later), 200.0);
}

#[test]
fn gradient2_by_default_is_hidden_by_its_least_and_does_not_see_overload() {
    let mut gradient = gradient2(Gradient2Config::default());
    gradient.full(10.0, 12);
    assert_eq!(lowest(&gradient.overload(100.0, 12)), 20.0);
    assert_eq!(last(&gradient.overload(100.0, 600)), 200.0);
}

#[test]
fn gradient2_with_a_shorter_memory() {
    let config =
        Gradient2Config { long_window: 100, max_limit: 1000, ..Gradient2Config::default() };
    let mut gradient = gradient2(config);
    assert_eq!(last(&gradient.full(50.0, 100)), 100.0);
    assert_eq!(last(&gradient.overload(5_000.0, 100)), 63.0);
    assert_eq!(last(&gradient.overload(5_000.0, 300)), 303.0);
    assert_eq!(last(&gradient.overload(5_000.0, 500)), 703.0);
    assert_eq!(last(&gradient.overload(5_000.0, 500)), 1000.0);
}

#[test]
fn vegas_without_probes() {
    let mut vegas = vegas(20);
    assert_eq!(vegas.full(10.0, 1), [20.0]);
    assert_eq!(vegas.full(10.0, 5), [26.0, 32.0, 38.0, 44.0, 50.0]);
    assert_eq!(vegas.full(10.5, 5), [50.0; 5]);
    let down = |from: u32| (0..12).map(|step| f64::from(from - step)).collect::<Vec<_>>();
    assert_eq!(vegas.full(13.0, 12), down(49));
    assert_eq!(vegas.full(20.0, 12), down(37));
    assert_eq!(vegas.light(20.0, 1), [26.0]);
    assert_eq!(vegas.overload(20.0, 3), [25.0, 24.0, 23.0]);
}

#[test]
fn vegas_after_one_fast_sample() {
    let mut vegas = vegas(10);
    vegas.full(1.0, 1);
    assert_eq!(vegas.full(10.0, 6), [9.0, 8.0, 7.0, 6.0, 6.0, 6.0]);
}

#[test]
fn envoy_gradient() {
    let config = envoy::GradientConfig::default();
    let next = |limit, millis: f64| {
        let latency = Duration::from_secs_f64(millis / 1e3);
        envoy::next_limit(limit, Duration::from_millis(10), latency, &config)
    };
    let from_100 = [(10.0, 136), (12.5, 110), (20.0, 70), (100.0, 57), (5.0, 214)];
    for (millis, limit) in from_100 {
        assert_eq!(next(100, millis), limit, "{millis} ms");
    }
    assert_eq!(next(3, 100.0), 3);
    assert_eq!(next(3, 10.0), 5);
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 5e-5, "{value} is not {expected}");
}

#[test]
fn envoy_admission_control() {
    let rows = [
        (100.0, 95.0, 1.0, 0.0),
        (100.0, 94.0, 1.0, 0.0104),
        (100.0, 94.0, 2.0, 0.1021),
        (100.0, 90.0, 1.0, 0.0521),
        (100.0, 90.0, 2.0, 0.2283),
        (100.0, 50.0, 1.0, 0.4690),
        (100.0, 50.0, 2.0, 0.6848),
        (100.0, 0.0, 1.0, 0.8),
        (1.0, 0.0, 1.0, 0.5),
    ];
    for (requests, successes, aggression, probability) in rows {
        close(envoy::rejection_probability(requests, successes, aggression), probability);
    }
}

#[test]
fn failsafe_change() {
    let change =
        |queue, is_full, throughput_correlation, throughput_variation, latency_correlation| {
            failsafe::change(&failsafe::Signals {
                queue,
                alpha: 3,
                beta: 6,
                is_full,
                throughput_correlation,
                throughput_variation,
                latency_correlation,
            })
        };
    assert_eq!(change(0, false, 0.5, 0.5, 0.5), Increase);
    assert_eq!(change(10, false, 0.5, 0.5, 0.5), Decrease("queue"));
    assert_eq!(change(0, true, -0.1, 0.5, 0.5), Decrease("thrptCorr"));
    assert_eq!(change(0, true, 0.2, 0.5, 0.6), Decrease("thrptCorrRtt"));
    assert_eq!(change(0, true, 0.6, 0.1, 0.6), Decrease("thrptCV"));
    assert_eq!(change(0, false, -0.5, 0.1, 0.9), Increase);
    assert_eq!(change(4, true, 0.9, 0.9, 0.1), Hold);
    assert_eq!(change(0, true, 0.9, 0.9, 0.1), Increase);
}

/// A latency that never changes queues nothing and correlates with nothing.
fn failsafe_windows(count: usize, full: bool) -> Vec<f64> {
    let mut limit: f64 = 20.0;
    let step = |_| {
        let in_flight = if full { limit } else { 2.0 };
        let change = failsafe::change(&failsafe::Signals {
            queue: failsafe::queue_size(limit, 0.01, 0.01),
            alpha: 3,
            beta: 6,
            is_full: full,
            throughput_correlation: 0.0,
            throughput_variation: 0.0,
            latency_correlation: 0.0,
        });
        limit = failsafe::next_limit(limit, change, 5.0 * in_flight);
        limit
    };
    (0..count).map(step).collect()
}

#[test]
fn failsafe_with_a_constant_latency() {
    assert_eq!(failsafe_windows(5, true), [21.0, 22.0, 23.0, 24.0, 25.0]);
    let light = failsafe_windows(14, false);
    assert_eq!(light[..3], [19.0, 18.0, 17.0]);
    assert_eq!(light[8..], [11.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
}

#[test]
fn failsafe_throttler() {
    close(failsafe::rejection_rate(100.0, 90.0), 0.0);
    close(failsafe::rejection_rate(100.0, 80.0), 0.11);
    close(failsafe::rejection_rate(100.0, 0.0), 0.9);
}

#[test]
fn go_zero_breaker() {
    close(go_zero::rejection_probability(100.0, 50.0, 0.0, 0.0), 0.198);
    close(go_zero::rejection_probability(100.0, 0.0, 40.0, 0.0), 0.9406);
    close(go_zero::rejection_probability(100.0, 0.0, 40.0, 10.0), 0.7054);
    close(go_zero::rejection_probability(6.0, 0.0, 40.0, 0.0), 0.1429);
}
