//! What must hold of the throttle, case by case and over time.

#![allow(clippy::expect_used)]

use std::time::Duration;

use sluicegate::primitives::{AdaptiveThrottle, Criticality, Outcome, ThrottleConfig, Time};

const SECOND: u64 = 1_000_000_000;

fn throttle(config: ThrottleConfig) -> AdaptiveThrottle {
    AdaptiveThrottle::new(config).expect("in its range")
}

fn book() -> ThrottleConfig {
    ThrottleConfig { max_rejection: 1.0, min_requests: 0, ..ThrottleConfig::default() }
}

fn seconds(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Sends requests whatever the probability, and answers them.
fn feed(throttle: &mut AdaptiveThrottle, now: Time, class: Criticality, count: u64, accepts: u64) {
    for number in 0..count {
        assert!(throttle.allow(now, class, 1.0));
        throttle.record(now, if number < accepts { Outcome::Success } else { Outcome::Overload });
    }
}

/// (requests, accepts) and the probability, computed by hand.
#[test]
fn the_formula_of_the_book() {
    let vectors = [
        (100, 50, 0.0),
        (100, 40, 0.1980),
        (100, 10, 0.7921),
        (100, 0, 0.9901),
        (1, 0, 0.5),
        (10, 0, 0.9091),
        (0, 0, 0.0),
    ];
    for (requests, accepts, expected) in vectors {
        let mut throttle = throttle(book());
        feed(&mut throttle, Time::ZERO, Criticality::Critical, requests, accepts);
        let asked = throttle.rejection_probability(Time::ZERO, Criticality::Critical);
        assert!((asked - expected).abs() < 5e-5, "({requests}, {accepts}): {asked}");
    }
}

#[test]
fn only_overload_is_no_accept() {
    let mut throttle = throttle(book());
    for outcome in [Outcome::Success, Outcome::Ignored] {
        assert!(throttle.allow(Time::ZERO, Criticality::Critical, 1.0));
        throttle.record(Time::ZERO, outcome);
    }
    let snapshot = throttle.snapshot(Time::ZERO);
    assert_eq!((snapshot.requests, snapshot.accepts), (2, 2));
    assert_eq!(snapshot.outcomes, [1, 1, 0]);
}

#[test]
fn a_single_failure_refuses_nothing() {
    let mut throttle = throttle(ThrottleConfig::default());
    feed(&mut throttle, Time::ZERO, Criticality::Critical, 1, 0);
    assert!(throttle.rejection_probability(Time::ZERO, Criticality::Critical) <= 0.0);
    assert!(throttle.allow(Time::ZERO, Criticality::Critical, 0.0));
}

#[test]
fn what_is_refused_here_is_a_request_too() {
    let mut throttle = throttle(ThrottleConfig { max_rejection: 1.0, ..Default::default() });
    feed(&mut throttle, Time::ZERO, Criticality::Critical, 10, 0);
    for _ in 0..89 {
        assert!(!throttle.allow(Time::ZERO, Criticality::Critical, 0.0));
    }
    let asked = throttle.rejection_probability(Time::ZERO, Criticality::Critical);
    assert!((asked - 99.0 / 100.0).abs() < 1e-12);
}

#[test]
fn the_window_ends_without_a_request() {
    let mut throttle = throttle(ThrottleConfig::default());
    feed(&mut throttle, seconds(100.0), Criticality::Critical, 100, 0);
    let class = Criticality::Critical;
    assert!(throttle.rejection_probability(seconds(128.9), class) > 0.8);
    assert!(throttle.rejection_probability(seconds(130.0), class) <= 0.0);
    // A clock that goes back brings nothing back.
    assert!(throttle.rejection_probability(seconds(100.0), class) <= 0.0);
}

#[test]
fn a_burst_that_is_not_answered_yet_is_not_throttled() {
    let mut throttle = throttle(book());
    for request in 0..100 {
        assert!(throttle.allow(seconds(f64::from(request) / 100.0), Criticality::Critical, 0.0));
    }
    // Nor if failures come faster than answers.
    for _ in 0..40 {
        throttle.record(seconds(1.0), Outcome::Overload);
    }
    assert!(throttle.allow(seconds(1.0), Criticality::Critical, 0.0));
    // But silence proves nothing for long.
    assert!(throttle.rejection_probability(seconds(10.0), Criticality::Critical) > 0.9);
}

#[test]
fn whoever_never_records_is_never_throttled() {
    let mut throttle = throttle(book());
    for request in 0..100_000 {
        let now = seconds(f64::from(request) / 100.0);
        assert!(throttle.allow(now, Criticality::Critical, 0.0));
    }
    assert!(throttle.snapshot(seconds(1000.0)).in_flight <= 3000);
    assert_eq!(throttle.snapshot(seconds(2000.0)).in_flight, 0);
}

#[test]
fn an_answer_without_a_request_is_both() {
    let mut throttle = throttle(book());
    for _ in 0..100 {
        throttle.record(Time::ZERO, Outcome::Overload);
    }
    let asked = throttle.rejection_probability(Time::ZERO, Criticality::Critical);
    assert!((asked - 100.0 / 101.0).abs() < 1e-12);
    assert_eq!(throttle.snapshot(Time::ZERO).in_flight, 0);
}

#[test]
fn the_least_critical_are_refused_first() {
    let (now, [sheddable, _, critical, plus]) = (Time::ZERO, Criticality::ALL);
    let probabilities = |accepts: u64| {
        let mut throttle = throttle(ThrottleConfig::default());
        // The answers do not say whose they are.
        feed(&mut throttle, now, sheddable, 50, accepts.min(50));
        feed(&mut throttle, now, critical, 50, accepts.saturating_sub(50));
        throttle.snapshot(now).rejection_probability
    };
    // 20 of 101 are to be refused: of the 50 sheddable ones.
    let few = probabilities(40);
    assert!((few[0] - 100.0 * 20.0 / 101.0 / 50.0).abs() < 1e-12);
    assert!(few[critical.index()] <= 0.0 && few[plus.index()] <= 0.0);
    // 80 of 101: 45 sheddable ones, and the rest of the critical ones.
    let many = probabilities(10);
    assert!((many[0] - 0.9).abs() < 1e-12);
    assert!((many[critical.index()] - (100.0 * 80.0 / 101.0 - 45.0) / 50.0).abs() < 1e-12);
    assert!(many[plus.index()] <= 0.0);
    // All are refused, and nobody is above the maximum.
    let all = probabilities(0);
    assert!((all[critical.index()] - 0.9).abs() < 1e-9 && all[plus.index()] < 1e-9);
}

#[test]
fn a_class_that_was_not_seen_is_where_it_stands() {
    let mut throttle = throttle(ThrottleConfig::default());
    feed(&mut throttle, Time::ZERO, Criticality::Critical, 100, 40);
    let probability = throttle.snapshot(Time::ZERO).rejection_probability;
    assert!((probability[0] - 0.9).abs() < 1e-12 && (probability[1] - 0.9).abs() < 1e-12);
    assert!((probability[2] - 20.0 / 101.0).abs() < 1e-12);
    assert!(probability[3] <= 0.0);
}

#[test]
fn parameters_that_cannot_be() {
    let default = ThrottleConfig::default();
    let wrong = [
        ("k", ThrottleConfig { k: 0.99, ..default }),
        ("k", ThrottleConfig { k: f64::NAN, ..default }),
        ("k", ThrottleConfig { k: f64::INFINITY, ..default }),
        ("max_rejection", ThrottleConfig { max_rejection: -0.1, ..default }),
        ("max_rejection", ThrottleConfig { max_rejection: 1.1, ..default }),
        ("max_rejection", ThrottleConfig { max_rejection: f64::NAN, ..default }),
        ("window", ThrottleConfig { window: Duration::ZERO, ..default }),
        ("window", ThrottleConfig { window: Duration::from_secs(3601), ..default }),
    ];
    for (parameter, config) in wrong {
        let error = AdaptiveThrottle::new(config).expect_err("out of its range");
        assert_eq!(error.parameter(), parameter);
    }
    let mut throttle = throttle(default);
    assert!(throttle.update(3.0, 2.0, 5).is_err());
    assert_eq!(*throttle.config(), default);
    throttle.update(3.0, 0.5, 5).expect("in its range");
    assert_eq!(throttle.config().min_requests, 5);
}

/// Whatever happens, there is nothing in it that could grow.
#[test]
fn its_size_is_fixed() {
    assert!(!std::mem::needs_drop::<AdaptiveThrottle>(), "it owns nothing on the heap");
    assert!(size_of::<AdaptiveThrottle>() < 2048);
}

/// A client that calls a backend at a steady rate.
struct Client {
    throttle: AdaptiveThrottle,
    now: u64,
    gap: u64,
    random: u64,
}

impl Client {
    fn new(config: ThrottleConfig, rate: f64, seed: u64) -> Self {
        let gap = Time::from_secs_f64(1.0 / rate).as_nanos();
        Self { throttle: throttle(config), now: 0, gap, random: seed }
    }

    /// Calls for so long; the share of the calls that were let through.
    fn call(&mut self, span: u64, is_well: bool) -> f64 {
        let (mut calls, mut passed, end) = (0, 0, self.now + span * SECOND);
        while self.now < end {
            self.now += self.gap;
            let now = Time::from_nanos(self.now);
            calls += 1;
            let draw = self.draw();
            if self.throttle.allow(now, Criticality::Critical, draw) {
                passed += 1;
                let answer = if is_well { Outcome::Success } else { Outcome::Overload };
                self.throttle.record(now, answer);
            }
        }
        f64::from(passed) / f64::from(calls)
    }

    /// `SplitMix64`, by its 53 highest bits.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn a_healed_backend_is_found_within_two_windows() {
    for rate in [10.0, 300.0] {
        for seed in 1..=8 {
            let mut client = Client::new(ThrottleConfig::default(), rate, seed);
            let failing = client.call(300, false);
            client.call(55, true);
            let healed = client.call(5, true);
            assert!(failing < 0.25, "{rate}/s, seed {seed}: {failing}");
            assert!(healed >= 0.9, "{rate}/s, seed {seed}: {healed}");
        }
    }
}

#[test]
fn it_never_refuses_everything_for_ever() {
    for rate in [1.0 / 60.0, 0.5, 10.0, 1000.0] {
        for min_requests in [0, 10] {
            for max_rejection in [0.9, 1.0] {
                let config =
                    ThrottleConfig { max_rejection, min_requests, ..ThrottleConfig::default() };
                let mut client = Client::new(config, rate, 1);
                client.call(300, false);
                // Ten calls or a second, whichever takes longer, let one through; so it
                // is with ill luck, too.
                for _ in 0..20 {
                    let span = SECOND.max(client.gap * 10);
                    let end = client.now + span;
                    let mut passed = 0;
                    while client.now < end {
                        client.now += client.gap;
                        let now = Time::from_nanos(client.now);
                        let is_allowed = client.throttle.allow(now, Criticality::Critical, 0.0);
                        passed += u32::from(is_allowed);
                        if is_allowed {
                            client.throttle.record(now, Outcome::Overload);
                        }
                    }
                    assert!(passed > 0, "{rate}/s, {max_rejection}");
                }
            }
        }
    }
}

#[test]
fn probes_are_at_most_one_in_ten() {
    let mut throttle = throttle(book());
    feed(&mut throttle, Time::ZERO, Criticality::Critical, 100, 0);
    let mut passed = 0;
    for second in 1..=1000 {
        let now = seconds(f64::from(second) * 10.0);
        // The window never empties: something fails without being asked for.
        throttle.record(now, Outcome::Overload);
        passed += u32::from(throttle.allow(now, Criticality::Critical, 0.0));
    }
    assert!((90..=100).contains(&passed), "{passed}");
}
