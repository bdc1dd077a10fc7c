//! The retry budgets: against a list of all that ever happened, and case by case.

#![allow(clippy::expect_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate::primitives::{
    Reason, RetryBudget, RetryBudgetConfig, RetryPermit, Time, TokenRetryBudget,
    TokenRetryBudgetConfig,
};

const BUCKETS: u64 = 30;

fn budget(ratio: f64, floor: f64) -> RetryBudget {
    RetryBudget::new(RetryBudgetConfig { ratio, floor, ..RetryBudgetConfig::default() })
        .expect("in its range")
}

fn tokens(max_tokens: f64, token_ratio: f64) -> TokenRetryBudget {
    TokenRetryBudget::new(TokenRetryBudgetConfig { max_tokens, token_ratio }).expect("in its range")
}

fn seconds(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Takes as many retries as there are.
fn take_all(budget: &mut RetryBudget, now: Time) -> Vec<RetryPermit> {
    std::iter::from_fn(|| budget.try_retry(now).ok()).take(10_000).collect()
}

struct Retry {
    given_at: u64,
    is_held: bool,
}

/// Keeps everything and forgets nothing.
struct Model {
    config: RetryBudgetConfig,
    seen: u64,
    requests: Vec<u64>,
    retries: BTreeMap<usize, Retry>,
}

impl Model {
    fn counts(&self, at: u64) -> bool {
        let nanos = u64::try_from(self.config.window.as_nanos()).unwrap_or(u64::MAX);
        let width = (nanos / BUCKETS).max(1);
        at / width + BUCKETS > self.seen / width
    }

    fn requests(&self) -> usize {
        self.requests.iter().filter(|&&at| self.counts(at)).count()
    }

    fn spent(&self) -> usize {
        let counts = |retry: &&Retry| retry.is_held || self.counts(retry.given_at);
        self.retries.values().filter(counts).count()
    }

    fn held(&self) -> usize {
        self.retries.values().filter(|retry| retry.is_held).count()
    }

    fn gives(&self) -> bool {
        let RetryBudgetConfig { ratio, floor, window } = self.config;
        let by_share = (ratio * self.requests() as f64 + 1e-9).floor() as usize;
        let by_floor = (floor * window.as_secs_f64() + 1e-9).floor() as usize;
        if self.spent() < by_share.max(by_floor) {
            return true;
        }
        let latest = self.retries.values().map(|retry| retry.given_at).max();
        let pace = |latest| (self.seen - latest) as f64 >= (1e9 / floor).round();
        by_floor == 0 && floor > 0.0 && self.spent() == 0 && latest.is_none_or(pace)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Request,
    Retry,
    Release(prop::sample::Index),
    Pass(u64),
    Back(u64),
    Update { ratio: f64, floor: f64 },
    Fork,
}

fn ratio() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.1), Just(0.2), Just(0.0), Just(1.0), 0.0..=1.0f64]
}

fn floor() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.1), Just(0.0), Just(0.01), Just(1.0), 0.0..2.0f64]
}

fn step() -> impl Strategy<Value = Step> {
    let span = prop_oneof![3 => 0..3u64, 2 => 0..1_500u64, 1 => 0..15_000u64];
    prop_oneof![
        10 => Just(Step::Request),
        8 => Just(Step::Retry),
        6 => any::<prop::sample::Index>().prop_map(Step::Release),
        4 => span.clone().prop_map(Step::Pass),
        1 => span.prop_map(Step::Back),
        1 => (ratio(), floor()).prop_map(|(ratio, floor)| Step::Update { ratio, floor }),
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
        ratio in ratio(),
        floor in floor(),
        window in prop_oneof![
            Just(Duration::from_secs(10)),
            Just(Duration::from_millis(700)),
            Just(Duration::from_nanos(7)),
        ],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let config = RetryBudgetConfig { ratio, floor, window };
        let mut budget = RetryBudget::new(config).expect("in its range");
        let mut model =
            Model { config, seen: 0, requests: Vec::new(), retries: BTreeMap::new() };
        let mut permits = BTreeMap::new();
        let mut strangers = Vec::new();
        let mut now = 0_u64;
        for (number, step) in steps.into_iter().enumerate() {
            let time = Time::from_nanos(now);
            match step {
                Step::Request => {
                    budget.record_request(time);
                    model.seen = model.seen.max(now);
                    model.requests.push(model.seen);
                }
                Step::Retry => {
                    model.seen = model.seen.max(now);
                    let expected = model.gives();
                    match budget.try_retry(time) {
                        Ok(permit) => {
                            prop_assert!(expected);
                            permits.insert(number, permit);
                            let retry = Retry { given_at: model.seen, is_held: true };
                            model.retries.insert(number, retry);
                        }
                        Err(rejection) => {
                            prop_assert!(!expected);
                            prop_assert_eq!(rejection.reason, Reason::Budget);
                            prop_assert_eq!(rejection.in_flight, model.spent() as u64);
                        }
                    }
                }
                Step::Release(which) => {
                    let names: Vec<_> = permits.keys().copied().collect();
                    if !names.is_empty() {
                        let name = names[which.index(names.len())];
                        budget.release(permits.remove(&name).expect("it is there"));
                        model.retries.get_mut(&name).expect("it is there").is_held = false;
                    }
                }
                Step::Pass(millis) => now = now.saturating_add(millis * 1_000_000),
                Step::Back(millis) => now = now.saturating_sub(millis * 1_000_000),
                Step::Update { ratio, floor } => {
                    budget.update(ratio, floor).expect("in its range");
                    model.config = RetryBudgetConfig { ratio, floor, window };
                }
                Step::Fork => {
                    budget.reset();
                    strangers.extend(std::mem::take(&mut permits).into_values());
                    model.requests.clear();
                    model.retries.clear();
                }
            }
            // The permits of another process give nothing back.
            if let Some(permit) = strangers.pop() {
                budget.release(permit);
            }
            let snapshot = budget.snapshot(Time::from_nanos(now));
            model.seen = model.seen.max(now);
            prop_assert_eq!(snapshot.requests, model.requests() as u64);
            prop_assert_eq!(snapshot.retries, model.spent() as u64);
            prop_assert_eq!(snapshot.held, model.held() as u64);
        }
        // Whatever happened, all can be given back and nothing is left.
        for permit in permits.into_values() {
            budget.release(permit);
        }
        prop_assert_eq!(budget.snapshot(Time::from_nanos(now)).held, 0);
        prop_assert_eq!(budget.snapshot(Time::MAX).retries, 0);
    }

    #[test]
    fn tokens_stay_within_their_bounds(
        max_tokens in 0.001..=1000.0f64,
        token_ratio in 0.001..=1000.0f64,
        steps in prop::collection::vec((0..3usize, 0.001..=1000.0f64), 1..100),
    ) {
        let mut budget = tokens(max_tokens, token_ratio);
        for (step, other) in steps {
            match step {
                0 => budget.record_success(),
                1 => budget.record_failure(),
                _ => budget
                    .update(TokenRetryBudgetConfig { max_tokens: other, token_ratio })
                    .expect("in its range"),
            }
            let left = budget.snapshot().tokens;
            let most = budget.config().max_tokens;
            prop_assert!((0.0..=most + 1e-3).contains(&left));
            let is_given = budget.try_retry().map(|permit| budget.release(permit)).is_ok();
            // The decimals beyond the third do not count.
            if (left - most / 2.0).abs() > 2e-3 {
                prop_assert_eq!(is_given, left > most / 2.0);
            }
        }
    }
}

#[test]
fn of_a_hundred_active_requests_twenty_are_retried() {
    let mut budget = budget(0.2, 0.1);
    for _ in 0..100 {
        budget.record_request(Time::ZERO);
    }
    let mut held = take_all(&mut budget, Time::ZERO);
    assert_eq!(held.len(), 20);
    // In back-off for a second, then in an attempt that takes longer than the window.
    for now in [1.0, 9.9, 10.0, 60.0] {
        assert!(budget.try_retry(seconds(now)).is_err(), "{now}");
    }
    // One that ended long ago makes no room as long as the others fill it.
    budget.release(held.pop().expect("held"));
    assert!(budget.try_retry(seconds(60.0)).is_err());
    for permit in held {
        budget.release(permit);
    }
    // Nobody asks any more; what is left is the floor.
    assert_eq!(take_all(&mut budget, seconds(60.0)).len(), 1);
}

#[test]
fn a_backend_that_always_fails_gets_a_tenth_more() {
    for rate in [1.0, 10.0, 1010.0] {
        let mut budget = budget(0.1, 0.1);
        let (mut calls, mut attempts) = (0_u64, 0_u64);
        let mut pending: Vec<(f64, RetryPermit)> = Vec::new();
        while (calls as f64) < 120.0 * rate {
            let now = calls as f64 / rate;
            calls += 1;
            attempts += 1;
            budget.record_request(seconds(now));
            let due = pending.iter().position(|(at, _)| *at > now).unwrap_or(pending.len());
            let mut again = 1;
            for (_, permit) in pending.drain(..due) {
                // It has failed, too, and wants another.
                attempts += 1;
                again += 1;
                budget.release(permit);
            }
            for _ in 0..again {
                if let Ok(permit) = budget.try_retry(seconds(now)) {
                    pending.push((now + 1.0, permit));
                }
            }
        }
        let factor = attempts as f64 / calls as f64;
        assert!((1.05..=1.11).contains(&factor), "{rate}/s: {factor}");
    }
}

#[test]
fn the_floor_is_one_in_ten_seconds() {
    let mut budget = budget(0.1, 0.1);
    let mut given = Vec::new();
    for tenth in 0..1000_u32 {
        let now = f64::from(tenth) / 10.0;
        if let Ok(permit) = budget.try_retry(seconds(now)) {
            given.push(now);
            budget.release(permit);
        }
    }
    assert_eq!(given, (0..10).map(|ten| f64::from(ten) * 10.0).collect::<Vec<_>>());
}

#[test]
fn a_floor_of_less_than_one_in_a_window_is_a_pace() {
    let mut budget = budget(0.0, 0.01);
    let first = budget.try_retry(Time::ZERO).expect("the first");
    assert!(budget.try_retry(seconds(99.0)).is_err());
    // While it is held there is no other, however long it takes.
    assert!(budget.try_retry(seconds(101.0)).is_err());
    budget.release(first);
    let second = budget.try_retry(seconds(101.0)).expect("100 s later");
    budget.release(second);
    assert!(budget.try_retry(seconds(200.0)).is_err());
    let none = &mut budget;
    none.update(0.0, 0.0).expect("in its range");
    assert!(none.try_retry(seconds(1e6)).is_err());
}

#[test]
fn a_product_that_is_whole_but_for_its_rounding_is_whole() {
    let mut budget = budget(0.29, 0.0);
    for _ in 0..100 {
        budget.record_request(Time::ZERO);
    }
    assert_eq!(take_all(&mut budget, Time::ZERO).len(), 29);
    let snapshot = budget.snapshot(Time::ZERO);
    assert_eq!((snapshot.admitted, snapshot.rejected, snapshot.held), (29, 1, 29));
}

#[test]
fn a_budget_that_cannot_be() {
    let default = RetryBudgetConfig::default();
    let wrong = [
        ("ratio", RetryBudgetConfig { ratio: -0.1, ..default }),
        ("ratio", RetryBudgetConfig { ratio: 1.1, ..default }),
        ("ratio", RetryBudgetConfig { ratio: f64::NAN, ..default }),
        ("floor", RetryBudgetConfig { floor: -0.1, ..default }),
        ("floor", RetryBudgetConfig { floor: f64::INFINITY, ..default }),
        ("window", RetryBudgetConfig { window: Duration::ZERO, ..default }),
    ];
    for (parameter, config) in wrong {
        let error = RetryBudget::new(config).expect_err("out of its range");
        assert_eq!(error.parameter(), parameter);
    }
    let mut budget = budget(0.1, 0.1);
    assert!(budget.update(0.5, f64::NAN).is_err());
    assert_eq!(*budget.config(), default);
}

#[test]
fn five_failures_disable_and_one_success_enables() {
    let mut budget = tokens(10.0, 0.1);
    for _ in 0..4 {
        budget.record_failure();
    }
    let permit = budget.try_retry().expect("6 of 10 are left");
    budget.record_failure();
    let rejection = budget.try_retry().expect_err("5 of 10 are left");
    assert_eq!(rejection.reason, Reason::Budget);
    budget.record_success();
    let other = budget.try_retry().expect("5.1 of 10 are left");
    assert_eq!(budget.snapshot().held, 2);
    budget.release(permit);
    budget.release(other);
    assert_eq!(budget.snapshot().held, 0);
    for _ in 0..1000 {
        budget.record_failure();
    }
    assert!(budget.snapshot().tokens <= 0.0);
    for _ in 0..1000 {
        budget.record_success();
    }
    assert!((budget.snapshot().tokens - 10.0).abs() < 1e-9);
}

#[test]
fn tokens_have_three_decimals() {
    for (ratio, expected) in [(1.001, 1.001), (0.0019, 0.001), (0.019, 0.019), (0.29, 0.29)] {
        let mut budget = tokens(10.0, ratio);
        budget.record_failure();
        budget.record_failure();
        budget.record_success();
        assert!((budget.snapshot().tokens - 8.0 - expected).abs() < 1e-9, "{ratio}");
    }
}

#[test]
fn an_update_keeps_the_share_of_tokens() {
    let mut budget = tokens(10.0, 0.1);
    for _ in 0..4 {
        budget.record_failure();
    }
    let config = TokenRetryBudgetConfig { max_tokens: 100.0, token_ratio: 0.5 };
    budget.update(config).expect("in its range");
    assert!((budget.snapshot().tokens - 60.0).abs() < 1e-9);
    for wrong in [0.0, -1.0, 1000.1, f64::NAN] {
        assert!(budget.update(TokenRetryBudgetConfig { max_tokens: wrong, ..config }).is_err());
        assert!(budget.update(TokenRetryBudgetConfig { token_ratio: wrong, ..config }).is_err());
        assert!(
            TokenRetryBudget::new(TokenRetryBudgetConfig { max_tokens: wrong, ..config }).is_err()
        );
    }
    assert_eq!(*budget.config(), config);
    assert!((budget.snapshot().tokens - 60.0).abs() < 1e-9);
}
