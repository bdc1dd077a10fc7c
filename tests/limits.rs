//! The published limit algorithms and their window, whatever they are fed.

#![allow(clippy::expect_used, clippy::float_cmp)]

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::primitives::limits::{
    Aimd, AimdConfig, Algorithm, Cause, Change, Fixed, FixedConfig, Gradient, Gradient2,
    Gradient2Config, GradientConfig, LimitAlgorithm, Sample, Vegas, VegasConfig, Window,
    WindowConfig,
};
use sluicegate::primitives::{ConfigError, Time};

fn sample() -> impl Strategy<Value = Sample> {
    let rtt = prop_oneof![
        1 => Just(Duration::ZERO),
        1 => Just(Duration::from_nanos(1)),
        1 => Just(Duration::MAX),
        8 => (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        4 => (9_000_000..11_000_000_u64).prop_map(Duration::from_nanos),
    ];
    let in_flight = prop_oneof![1 => Just(0), 1 => Just(u64::MAX), 8 => 0..300_u64];
    (rtt, in_flight, prop::bool::weighted(0.1)).prop_map(|(rtt, in_flight, is_overload)| Sample {
        rtt,
        in_flight,
        is_overload,
    })
}

/// The least, the first and the most of a limit.
fn range() -> impl Strategy<Value = [u32; 3]> {
    let limit = || prop_oneof![4 => 1..300_u32, 1 => Just(1), 1 => Just(1_000_000_000)];
    [limit(), limit(), limit()].prop_map(|mut range| {
        range.sort_unstable();
        range
    })
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let smoothing = || prop_oneof![Just(1.0), Just(0.2), Just(f64::MIN_POSITIVE), 0.001..1.0];
    let tolerance = || prop_oneof![Just(1.0), Just(1.5), Just(f64::MAX), 1.0..10.0];
    let every = |most: u32| prop::option::of(prop_oneof![1..most, Just(1_000_000_000)]);
    prop_oneof![
        range().prop_map(|[_, limit, _]| made(Fixed::new(FixedConfig { limit }))),
        (range(), 0.5..1.0, 0..u64::MAX).prop_map(
            |([min_limit, initial, max_limit], backoff_ratio, nanos)| {
                let timeout = Duration::from_nanos(nanos + 1);
                made(Aimd::new(AimdConfig {
                    initial,
                    min_limit,
                    max_limit,
                    backoff_ratio,
                    timeout,
                }))
            }
        ),
        (range(), smoothing(), (0..1001_u32, 0..1001_u32), every(100), any::<u64>()).prop_map(
            |([min_limit, initial, max_limit], smoothing, (one, other), probe_multiplier, seed)| {
                let (alpha, beta) = (one.min(other), one.max(other));
                made(Vegas::new(VegasConfig {
                    initial,
                    min_limit,
                    max_limit,
                    smoothing,
                    alpha,
                    beta,
                    probe_multiplier,
                    seed,
                }))
            }
        ),
        (range(), smoothing(), tolerance(), 0.5..=1.0, every(1_000_000_000), every(100)).prop_map(
            |(
                [min_limit, initial, max_limit],
                smoothing,
                tolerance,
                backoff_ratio,
                queue,
                every,
            )| {
                made(Gradient::new(GradientConfig {
                    initial,
                    min_limit,
                    max_limit,
                    smoothing,
                    tolerance,
                    backoff_ratio,
                    queue_size: queue,
                    probe_interval: every,
                    seed: 7,
                }))
            }
        ),
        (range(), smoothing(), tolerance(), 0..100_u32, 1..1000_u32).prop_map(
            |([min_limit, initial, max_limit], smoothing, tolerance, queue_size, long_window)| {
                made(Gradient2::new(Gradient2Config {
                    initial,
                    min_limit,
                    max_limit,
                    smoothing,
                    tolerance,
                    queue_size,
                    long_window,
                }))
            }
        ),
    ]
}

fn made<A: Into<Algorithm>>(algorithm: Result<A, ConfigError>) -> Algorithm {
    algorithm.expect("in its range").into()
}

fn config() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig { cases: if full { 10_000 } else { 300 }, ..ProptestConfig::default() }
}

fn assert_in_range(algorithm: &Algorithm) {
    let (least, most) = algorithm.estimate().range();
    let limit = algorithm.limit();
    assert!((f64::from(least)..=f64::from(most)).contains(&limit), "{algorithm:?}");
    assert_eq!(limit.fract().to_bits(), 0, "{algorithm:?}");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_limit_stays_in_its_range(
        mut algorithm in algorithm(),
        samples in prop::collection::vec(sample(), 0..60),
        [least, _, most] in range(),
        more in prop::collection::vec(sample(), 0..20),
    ) {
        assert_in_range(&algorithm);
        for sample in &samples {
            let before = algorithm.estimate().value();
            let limit = algorithm.update(sample);
            prop_assert_eq!(limit.to_bits(), algorithm.limit().to_bits());
            assert_in_range(&algorithm);
            let because = algorithm.estimate().because();
            match because.change {
                // A sample that is ignored leaves the last word to the one before.
                _ if sample.rtt.is_zero() => {}
                Change::Held => prop_assert_eq!(algorithm.estimate().value(), before),
                Change::Cut => prop_assert!(algorithm.estimate().value() < before),
                Change::Grown => prop_assert!(algorithm.estimate().value() > before),
            }
        }
        prop_assert!(algorithm.estimate().because().to_string().len() > 4);
        let is_fixed = matches!(algorithm, Algorithm::Fixed(_));
        let answer = algorithm.set_range(least, most);
        prop_assert_eq!(answer.is_err(), is_fixed && algorithm.estimate().range() != (least, most));
        for sample in &more {
            algorithm.update(sample);
            assert_in_range(&algorithm);
        }
    }

    #[test]
    fn a_sample_that_takes_no_time_teaches_at_most_an_overload(
        mut algorithm in algorithm(),
        samples in prop::collection::vec(sample(), 0..20),
    ) {
        let ignores = !matches!(algorithm, Algorithm::Aimd(_));
        for sample in &samples {
            algorithm.update(sample);
            let before = algorithm.clone();
            let sample = Sample { rtt: Duration::ZERO, in_flight: sample.in_flight, is_overload: false };
            algorithm.update(&sample);
            prop_assert!(!ignores || algorithm == before);
            algorithm = before;
        }
    }

    /// All samples that count are in the mean of exactly one window.
    #[test]
    fn a_window_loses_no_sample(
        [shortest, longest] in [1..300_u64, 1..300_u64],
        min_samples in 1..20_u32,
        min_rtt in 0..5_u64,
        samples in prop::collection::vec((0..40_u64, sample(), any::<bool>()), 1..100),
    ) {
        let millis = Duration::from_millis;
        let config = WindowConfig {
            min_duration: millis(shortest.min(longest)),
            max_duration: millis(longest.max(shortest)),
            min_samples,
            min_rtt: millis(min_rtt),
        };
        let mut window = Window::new(config).expect("in its range");
        let (mut now, mut open, mut end) = (Time::ZERO, Vec::<Sample>::new(), None);
        for (pass, mut sample, is_capped) in samples {
            if is_capped {
                sample.rtt = sample.rtt.min(millis(100));
            }
            now = now.after(millis(pass));
            let closed = window.add(now, &sample);
            if sample.rtt < config.min_rtt {
                prop_assert_eq!(closed, None);
                continue;
            }
            open.push(sample);
            let nanos = |sample: &Sample| u64::try_from(sample.rtt.as_nanos()).unwrap_or(u64::MAX);
            let lowest = open.iter().map(nanos).min().expect("one at least");
            let span = Duration::from_nanos(lowest.saturating_mul(2));
            let next = now.after(span.max(config.min_duration).min(config.max_duration));
            let is_over = end.is_some_and(|end| now > end) && open.len() >= min_samples as usize;
            if is_over {
                let sum = open.iter().map(nanos).fold(0, u64::saturating_add);
                let expected = Sample {
                    rtt: Duration::from_nanos(sum / open.len() as u64),
                    in_flight: open.iter().map(|sample| sample.in_flight).max().expect("one"),
                    is_overload: open.iter().any(|sample| sample.is_overload),
                };
                prop_assert_eq!(closed, Some(expected));
                open.clear();
                end = Some(next);
            } else {
                prop_assert_eq!(closed, None);
                end = end.or(Some(next));
            }
        }
    }
}

const FULL: Sample =
    Sample { rtt: Duration::from_millis(10), in_flight: 1_000_000, is_overload: false };

#[test]
fn gradient_probes_by_its_interval_and_forgets() {
    for seed in 0..20 {
        let config =
            GradientConfig { probe_interval: Some(100), seed, ..GradientConfig::default() };
        let mut gradient = Gradient::new(config).expect("in its range");
        let mut last_probe = 0;
        let mut intervals = Vec::new();
        for turn in 1..=1000 {
            gradient.update(&FULL);
            if gradient.estimate().because().cause == Cause::Probe {
                intervals.push(turn - last_probe - 1);
                last_probe = turn;
            }
        }
        assert!(intervals.iter().all(|interval| (100..200).contains(interval)), "{intervals:?}");
        assert!(intervals.iter().any(|&interval| interval != intervals[0]), "{intervals:?}");
        // What is slow from here on is the lowest after a probe.
        let slow = Sample { rtt: Duration::from_millis(80), ..FULL };
        while gradient.estimate().because().cause != Cause::Probe {
            gradient.update(&slow);
        }
        let before = gradient.limit();
        assert!(gradient.update(&slow) > before);
    }
}

#[test]
fn vegas_probes_by_its_limit_and_believes_it() {
    let config = VegasConfig { max_limit: 20, seed: 3, ..VegasConfig::default() };
    let mut vegas = Vegas::new(config).expect("in its range");
    let mut last_probe = 0;
    let mut intervals = Vec::new();
    for turn in 1..=10_000 {
        vegas.update(&FULL);
        if vegas.estimate().because().cause == Cause::Probe {
            intervals.push(turn - last_probe);
            last_probe = turn;
        }
    }
    assert!(intervals.iter().all(|interval| (300..=600).contains(interval)), "{intervals:?}");
    assert!(intervals.len() > 15);
    let slow = Sample { rtt: Duration::from_millis(80), ..FULL };
    while vegas.estimate().because().cause != Cause::Probe {
        vegas.update(&slow);
    }
    vegas.update(&slow);
    assert_eq!(vegas.estimate().because().cause, Cause::Queued(0.0));
}

#[test]
fn why_a_limit_is_what_it_is() {
    let mut algorithms = [
        made(Fixed::new(FixedConfig { limit: 3 })),
        made(Aimd::new(AimdConfig { min_limit: 10, ..AimdConfig::default() })),
        made(Vegas::new(VegasConfig::default())),
        made(Gradient::new(GradientConfig::default())),
        made(Gradient2::new(Gradient2Config { min_limit: 10, ..Gradient2Config::default() })),
    ];
    let mut all_say = |sample: Option<Sample>| {
        algorithms.each_mut().map(|algorithm| {
            sample.map(|sample| algorithm.update(&sample));
            algorithm.estimate().because().to_string()
        })
    };
    assert_eq!(all_say(None), ["fixed", "initial", "initial", "initial", "initial"]);
    let light = Sample { in_flight: 1, ..FULL };
    let lowest = "a new lowest latency, held";
    let is_light = "less than half in flight, held";
    assert_eq!(all_say(Some(light)), ["fixed", is_light, lowest, is_light, is_light]);
    let normal = [
        "fixed",
        "half or more in flight, grown",
        "0 queued by the latency, grown",
        "1.0x of the lowest latency, grown",
        "1.0x of the long-term latency, grown",
    ];
    assert_eq!(all_say(Some(FULL)), normal);
    let slow = Sample { rtt: Duration::from_secs(6), ..FULL };
    let late = [
        "fixed",
        "slower than the time-out, cut",
        "26 queued by the latency, cut",
        "600.0x of the lowest latency, cut",
        "3.0x of the long-term latency, cut",
    ];
    assert_eq!(all_say(Some(slow)), late);
    let overload = Sample { is_overload: true, ..FULL };
    let overloaded = [
        "fixed",
        "overload, cut",
        "overload, cut",
        "overload, cut",
        "0.0x of the long-term latency, grown",
    ];
    assert_eq!(all_say(Some(overload)), overloaded);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    fn parameter<T: std::fmt::Debug>(made: Result<T, ConfigError>) -> &'static str {
        made.expect_err("out of its range").parameter()
    }
    let aimd = AimdConfig::default();
    let ranges = [
        (0, 0, 5, "min_limit"),
        (5, 6, 5, "max_limit"),
        (4, 5, 6, "initial"),
        (7, 5, 6, "initial"),
        (1, 1, u32::MAX, "max_limit"),
    ];
    for (initial, min_limit, max_limit, name) in ranges {
        assert_eq!(
            parameter(Aimd::new(AimdConfig { initial, min_limit, max_limit, ..aimd })),
            name
        );
    }
    for backoff_ratio in [0.4, 1.0, f64::NAN, -1.0, f64::INFINITY] {
        let made = Aimd::new(AimdConfig { backoff_ratio, ..aimd });
        assert_eq!(parameter(made), "backoff_ratio");
        let gradient = GradientConfig::default();
        if backoff_ratio != 1.0 {
            let made = Gradient::new(GradientConfig { backoff_ratio, ..gradient });
            assert_eq!(parameter(made), "backoff_ratio");
        }
    }
    assert_eq!(parameter(Aimd::new(AimdConfig { timeout: Duration::ZERO, ..aimd })), "timeout");
    for smoothing in [0.0, -0.1, 1.1, f64::NAN] {
        let made = Vegas::new(VegasConfig { smoothing, ..VegasConfig::default() });
        assert_eq!(parameter(made), "smoothing");
    }
    for tolerance in [0.9, f64::NAN, f64::INFINITY] {
        let made = Gradient2::new(Gradient2Config { tolerance, ..Gradient2Config::default() });
        assert_eq!(parameter(made), "tolerance");
    }
    let vegas = VegasConfig::default();
    assert_eq!(parameter(Vegas::new(VegasConfig { alpha: 1001, beta: 1001, ..vegas })), "alpha");
    assert_eq!(parameter(Vegas::new(VegasConfig { beta: 2, ..vegas })), "beta");
    let never = Some(0);
    let made = Vegas::new(VegasConfig { probe_multiplier: never, ..vegas });
    assert_eq!(parameter(made), "probe_multiplier");
    let gradient = GradientConfig::default();
    let made = Gradient::new(GradientConfig { probe_interval: never, ..gradient });
    assert_eq!(parameter(made), "probe_interval");
    let made = Gradient::new(GradientConfig { queue_size: Some(u32::MAX), ..gradient });
    assert_eq!(parameter(made), "queue_size");
    let made = Gradient2::new(Gradient2Config { long_window: 0, ..Gradient2Config::default() });
    assert_eq!(parameter(made), "long_window");
    assert_eq!(parameter(Fixed::new(FixedConfig { limit: 0 })), "limit");
    let window = WindowConfig::default();
    let none = Duration::ZERO;
    assert_eq!(
        parameter(Window::new(WindowConfig { min_duration: none, ..window })),
        "min_duration"
    );
    assert_eq!(
        parameter(Window::new(WindowConfig { max_duration: none, ..window })),
        "max_duration"
    );
    assert_eq!(parameter(Window::new(WindowConfig { min_samples: 0, ..window })), "min_samples");
}

/// As when latency is normal again after a long overload.
#[test]
fn gradient2_forgets_faster_what_is_more_than_twice_the_latency() {
    let mut gradient = Gradient2::new(Gradient2Config::default()).expect("in its range");
    let slow = Sample { rtt: Duration::from_secs(1), ..FULL };
    (0..10).for_each(|_| _ = gradient.update(&slow));
    let factor = 2.0 / 601.0;
    let mut long_term = 1000.0;
    for _ in 0..5 {
        long_term = long_term * (1.0 - factor) + 10.0 * factor;
        gradient.update(&FULL);
        let Cause::OverLongTerm(ratio) = gradient.estimate().because().cause else {
            panic!("{gradient:?}")
        };
        assert!((ratio - 10.0 / long_term).abs() < 1e-9, "{ratio}");
        long_term *= 0.95;
    }
}
