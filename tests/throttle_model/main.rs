//! The throttle against the formula over a list of all that ever happened.

#![allow(clippy::expect_used)]

mod model;

use std::time::Duration;

use model::Model;
use proptest::prelude::*;
use sluicegate::primitives::{AdaptiveThrottle, Criticality, Outcome, ThrottleConfig, Time};

fn throttle(config: ThrottleConfig) -> AdaptiveThrottle {
    AdaptiveThrottle::new(config).expect("in its range")
}

#[derive(Clone, Debug)]
enum Step {
    Allow { class: usize, draw: f64 },
    Record(usize),
    Ask(usize),
    Pass(u64),
    Back(u64),
    Update { k: f64, max_rejection: f64, min_requests: u32 },
    Fork,
}

fn config() -> impl Strategy<Value = ThrottleConfig> {
    let window = prop_oneof![
        Just(Duration::from_secs(30)),
        Just(Duration::from_secs(1)),
        Just(Duration::from_millis(40)),
        Just(Duration::from_nanos(7)),
    ];
    (prop_oneof![Just(2.0), 1.0..3.0f64], window, max_rejection(), 0..12u32).prop_map(
        |(k, window, max_rejection, min_requests)| ThrottleConfig {
            k,
            window,
            max_rejection,
            min_requests,
        },
    )
}

fn max_rejection() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.9), Just(1.0), Just(0.0), 0.0..=1.0f64]
}

fn step() -> impl Strategy<Value = Step> {
    let draw = prop_oneof![
        8 => 0.0..1.0f64,
        2 => Just(0.999_999),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0)],
    ];
    let class = prop_oneof![3 => Just(2usize), 2 => 0..4usize];
    let span = prop_oneof![3 => 0..3u64, 2 => 0..1_500u64, 1 => 0..40_000u64];
    prop_oneof![
        12 => (class.clone(), draw).prop_map(|(class, draw)| Step::Allow { class, draw }),
        8 => prop_oneof![2 => Just(2usize), 1 => 0..3usize].prop_map(Step::Record),
        4 => class.prop_map(Step::Ask),
        4 => span.clone().prop_map(Step::Pass),
        1 => span.prop_map(Step::Back),
        1 => (1.0..4.0f64, max_rejection(), 0..12u32).prop_map(|(k, max_rejection, min_requests)| {
            Step::Update { k, max_rejection, min_requests }
        }),
        1 => Just(Step::Fork),
    ]
}

fn cases() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig { cases: if full { 10_000 } else { 1_000 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn it_answers_like_the_model(
        config in config(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let (mut throttle, mut model) = (throttle(config), Model::new(config));
        let mut now = 0_u64;
        for step in steps {
            let time = Time::from_nanos(now);
            match step {
                Step::Allow { class, draw } => {
                    let allowed = throttle.allow(time, Criticality::ALL[class], draw);
                    let expected = model.allow(now, class, draw, allowed);
                    prop_assert!(expected.is_none_or(|expected| allowed == expected));
                }
                Step::Record(index) => {
                    throttle.record(time, Outcome::ALL[index]);
                    model.record(now, Outcome::ALL[index]);
                }
                Step::Ask(class) => {
                    let asked = throttle.rejection_probability(time, Criticality::ALL[class]);
                    let expected = model.probability(now, class);
                    prop_assert!((asked - expected).abs() < 1e-9, "{asked} is not {expected}");
                    prop_assert!((0.0..=throttle.config().max_rejection).contains(&asked));
                }
                Step::Pass(millis) => now = now.saturating_add(millis * 1_000_000),
                Step::Back(millis) => now = now.saturating_sub(millis * 1_000_000),
                Step::Update { k, max_rejection, min_requests } => {
                    throttle.update(k, max_rejection, min_requests).expect("in its range");
                    model.update(k, max_rejection, min_requests);
                }
                Step::Fork => {
                    throttle.reset();
                    model.reset();
                }
            }
            let snapshot = throttle.snapshot(Time::from_nanos(now));
            prop_assert_eq!(snapshot.in_flight, model.in_flight(now));
        }
    }
}
