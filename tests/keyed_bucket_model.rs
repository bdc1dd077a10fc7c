//! The keyed bucket against a naive model of the same rules, and against what it promises.

#![allow(clippy::expect_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sluicegate::primitives::{KeyedTokenBucket, TakenFromQuota, Time, TokenAsk};

const TOKEN: i128 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    TryTake { key: u8, cost: i64, is_told: bool },
    RetryAfter { key: u8, cost: i64 },
    Pass(i64),
    Update { rate: Option<i64>, burst: Option<i64> },
}

fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![(1..5i64).prop_map(|tokens| tokens * 1_000_000_000), 1..4_000_000_000i64]
}

/// Small enough that a few takes empty a bucket.
fn burst() -> impl Strategy<Value = i64> {
    prop_oneof![Just(4_000_000_000i64), 2_000_000_000..6_000_000_000i64]
}

fn step() -> impl Strategy<Value = Step> {
    let rate = prop_oneof![Just(1i64), 1..1_000i64];
    prop_oneof![
        8 => (0..9u8, cost(), any::<bool>())
            .prop_map(|(key, cost, is_told)| Step::TryTake { key, cost, is_told }),
        2 => (0..9u8, cost()).prop_map(|(key, cost)| Step::RetryAfter { key, cost }),
        4 => prop_oneof![(0..3i64).prop_map(|s| s * 1_000_000_000), 0..2_000_000_000i64]
            .prop_map(Step::Pass),
        1 => (prop::option::of(rate), prop::option::of(burst()))
            .prop_map(|(rate, burst)| Step::Update { rate, burst }),
    ]
}

/// With whole rates all amounts are whole nano-tokens.
#[derive(Clone, Copy, PartialEq)]
struct Bucket {
    level: i128,
    /// When it was full or will be, in nano-tokens that have come by then.
    full_at: i128,
    /// By when one has to know that it is full: an eighth of the span later, and three
    /// ticks, of which 2¹⁷ fill a bucket.
    known_at: i128,
}

#[derive(Clone, PartialEq)]
struct Model {
    rate: i128,
    burst: i128,
    max_keys: usize,
    own: BTreeMap<u8, Bucket>,
    shared: Bucket,
    now: i128,
}

/// What is seen of a take.
type Taken = (Option<bool>, bool, usize);

impl Model {
    fn new(rate: i128, burst: i128, max_keys: usize) -> Self {
        let shared = Bucket { level: burst, full_at: 0, known_at: 0 };
        Self { rate, burst, max_keys, own: BTreeMap::new(), shared, now: 0 }
    }

    fn pass(&mut self, nanos: i128) {
        self.now += nanos;
        for bucket in self.own.values_mut().chain([&mut self.shared]) {
            bucket.level = (bucket.level + nanos * self.rate).min(self.burst);
        }
    }

    fn update(&mut self, rate: Option<i128>, burst: Option<i128>) {
        self.rate = rate.unwrap_or(self.rate);
        self.burst = burst.unwrap_or(self.burst);
        for bucket in self.own.values_mut().chain([&mut self.shared]) {
            bucket.level = bucket.level.min(self.burst);
            bucket.plan(self.now * self.rate, self.burst);
        }
    }

    /// What the state can be after a take of which this was seen: whose place a newcomer
    /// gets, of those whose buckets are full, is not seen.
    fn try_take(self, key: u8, cost: i128, seen: Taken) -> Vec<Self> {
        let mut outcomes = vec![self.clone()];
        if cost <= self.burst && !self.own.contains_key(&key) && self.own.len() >= self.max_keys {
            let full = self.own.iter().filter(|(_, bucket)| bucket.level == self.burst);
            let has_to_know = |bucket: &Bucket| bucket.known_at <= self.now * self.rate;
            if full.clone().any(|(_, bucket)| has_to_know(bucket)) {
                outcomes.clear();
            }
            outcomes.extend(full.map(|(full, _)| {
                let mut outcome = self.clone();
                outcome.own.remove(full);
                outcome
            }));
        }
        outcomes.retain_mut(|outcome| outcome.take(key, cost) == seen);
        outcomes
    }

    fn take(&mut self, key: u8, cost: i128) -> Taken {
        if cost > self.burst {
            return (None, false, self.own.len());
        }
        if self.own.len() < self.max_keys && !self.own.contains_key(&key) {
            self.own.insert(key, self.shared);
            self.own.get_mut(&key).expect("just put there").plan(self.now * self.rate, self.burst);
        }
        let is_shared = !self.own.contains_key(&key);
        let bucket = self.own.get_mut(&key).unwrap_or(&mut self.shared);
        let is_there = bucket.level >= cost;
        if is_there {
            bucket.level -= cost;
            bucket.plan(self.now * self.rate, self.burst);
        }
        (Some(is_there), is_shared, self.own.len())
    }

    fn bucket(&self, key: u8) -> &Bucket {
        self.own.get(&key).unwrap_or(&self.shared)
    }

    fn retry_after(&self, key: u8, cost: i128) -> Option<i128> {
        let missing = (cost - self.bucket(key).level).max(0);
        (cost <= self.burst).then(|| (missing + self.rate - 1) / self.rate)
    }

    /// What is told after a take.
    fn quota(&self, key: u8, cost: i128, was_taken: bool) -> TakenFromQuota {
        let nanos = |nanos| Duration::from_nanos(u64::try_from(nanos).expect("not negative"));
        let remaining = self.bucket(key).level / TOKEN;
        TakenFromQuota {
            retry_after: self.retry_after(key, cost).filter(|_| !was_taken).map(nanos),
            remaining: remaining as u64,
            more_after: self.retry_after(key, (remaining + 1) * TOKEN).map(nanos),
            quota: (self.burst / TOKEN) as u64,
            window: ((self.burst + self.rate * TOKEN - 1) / (self.rate * TOKEN)) as u64,
        }
    }
}

impl Bucket {
    fn plan(&mut self, came: i128, burst: i128) {
        let span = burst - self.level;
        self.full_at = came + span;
        self.known_at = self.full_at + span / 8 + 3 * (burst >> 17);
    }
}

fn ask(nano: i64) -> TokenAsk {
    TokenAsk::new(nano as f64 / 1e9).expect("an amount in its range")
}

fn bucket(rate: i64, burst: i64, max_keys: u32) -> KeyedTokenBucket {
    let burst = burst as f64 / 1e9;
    KeyedTokenBucket::new(rate as f64, 1.0, Some(burst), max_keys).expect("in range")
}

/// Long, and alike for long.
fn name(key: u8) -> Vec<u8> {
    let mut name = vec![b'x'; 50];
    name.push(key);
    name
}

fn config() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig {
        cases: if full { 10_000 } else { 1_000 },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn answers_like_the_model(
        rate in 1..5i64,
        burst in burst(),
        max_keys in 1..10u32,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut bucket = bucket(rate, burst, max_keys);
        let mut models = vec![Model::new(rate.into(), burst.into(), max_keys as usize)];
        for step in steps {
            let now = Time::from_nanos(models[0].now as u64);
            match step {
                Step::TryTake { key, cost, is_told } => {
                    let overflowed = bucket.snapshot().overflowed;
                    let taken = if is_told {
                        bucket.take_from_quota(now, &name(key), &ask(cost)).ok()
                    } else {
                        None
                    };
                    let ours = match taken {
                        Some(taken) => Some(taken.retry_after.is_none()),
                        None => bucket.try_take(now, &name(key), &ask(cost)).ok(),
                    };
                    let is_shared = bucket.snapshot().overflowed > overflowed;
                    let seen = (ours, is_shared, bucket.keys());
                    let outcomes = models.drain(..).flat_map(|model| {
                        model.try_take(key, cost.into(), seen)
                    });
                    let mut different = Vec::new();
                    for outcome in outcomes {
                        if !different.contains(&outcome) {
                            different.push(outcome);
                        }
                    }
                    models = different;
                    prop_assert!(!models.is_empty(), "{key} {cost}: {seen:?}");
                    if let Some(taken) = taken {
                        let was_taken = taken.retry_after.is_none();
                        models.retain(|model| model.quota(key, cost.into(), was_taken) == taken);
                        prop_assert!(!models.is_empty(), "{key} {cost}: {taken:?}");
                    }
                }
                Step::RetryAfter { key, cost } => {
                    let ours = bucket.retry_after(now, &name(key), &ask(cost)).ok();
                    let ours = ours.map(|span| span.as_nanos().cast_signed());
                    let tokens = bucket.tokens(now, &name(key));
                    models.retain(|model| {
                        (tokens - model.bucket(key).level as f64 / TOKEN as f64).abs() < 1e-9
                    });
                    models.retain(|model| model.retry_after(key, cost.into()) == ours);
                    prop_assert!(!models.is_empty(), "{key} {cost}: {ours:?}");
                }
                Step::Pass(nanos) => models.iter_mut().for_each(|model| model.pass(nanos.into())),
                Step::Update { rate, burst } => {
                    let burst_as_float = burst.map(|burst| burst as f64 / 1e9);
                    let updated = bucket.update(now, rate.map(|rate| rate as f64), burst_as_float);
                    prop_assert_eq!(updated, Ok(()));
                    for model in &mut models {
                        model.update(rate.map(i128::from), burst.map(i128::from));
                    }
                }
            }
        }
    }

    /// Whoever else comes, and however often a key is forgotten.
    #[test]
    fn no_key_gets_more_than_the_burst_and_the_rate(
        rate in 1..5i64,
        burst in burst(),
        max_keys in 1..4u32,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut bucket = bucket(rate, burst, max_keys);
        let mut taken: BTreeMap<u8, Vec<(i128, i128)>> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::TryTake { key, cost, .. } => {
                    let time = Time::from_nanos(now as u64);
                    if bucket.try_take(time, &name(key), &ask(cost)) == Ok(true) {
                        taken.entry(key).or_default().push((now, cost.into()));
                    }
                }
                Step::Pass(nanos) => now += i128::from(nanos),
                Step::RetryAfter { .. } | Step::Update { .. } => {}
            }
        }
        for taken in taken.values() {
            for first in 0..taken.len() {
                let mut sum = 0;
                for &(at, cost) in &taken[first..] {
                    sum += cost;
                    let most = i128::from(burst) + i128::from(rate) * (at - taken[first].0);
                    prop_assert!(sum <= most);
                }
            }
        }
    }
}

#[test]
fn as_many_keys_as_there_may_be_are_independent() {
    let mut bucket = bucket(1, 2_000_000_000, 1_000);
    for round in 0..4 {
        for key in 0..1_000_u32 {
            let taken = bucket.try_take(Time::ZERO, &key.to_le_bytes(), &TokenAsk::one());
            assert_eq!(taken, Ok(round < 2), "{key}");
        }
    }
    let snapshot = bucket.snapshot();
    assert_eq!((snapshot.keys, snapshot.overflowed), (1_000, 0));
    assert_eq!((snapshot.admitted, snapshot.rejected), (2_000, 2_000));
}

#[test]
fn a_flood_of_keys_takes_no_memory_and_evicts_nobody() {
    let mut bucket = bucket(1, 2_000_000_000, 100);
    let victim = |bucket: &mut KeyedTokenBucket, now| {
        bucket.try_take(now, b"victim", &TokenAsk::one()).expect("below the burst")
    };
    assert!(victim(&mut bucket, Time::ZERO));
    assert!(victim(&mut bucket, Time::ZERO));
    let mut admitted = 0;
    for key in 0..100_000_u32 {
        let taken = bucket.try_take(Time::ZERO, &key.to_le_bytes(), &TokenAsk::one());
        admitted += u32::from(taken.expect("below the burst"));
    }
    // 99 with a bucket of their own, and two from the shared one.
    assert_eq!(admitted, 101);
    assert_eq!(bucket.keys(), 100);
    assert!(!victim(&mut bucket, Time::ZERO));
    assert_eq!(bucket.snapshot().overflowed, 100_000 - 99);
    // A second later one token is there, whoever came meanwhile.
    let later = Time::from_nanos(TOKEN as u64);
    assert!(victim(&mut bucket, later));
    assert!(!victim(&mut bucket, later));
}

#[test]
fn time_that_stands_still_or_jumps_back_refills_nothing() {
    let mut bucket = bucket(1_000, 1_000_000_000, 10);
    let now = Time::from_nanos(5_000_000_000);
    assert_eq!(bucket.try_take(now, b"a", &TokenAsk::one()), Ok(true));
    for back in [5_000_000_000, 0, 4_999_999_999] {
        assert_eq!(bucket.try_take(Time::from_nanos(back), b"a", &TokenAsk::one()), Ok(false));
    }
    assert_eq!(bucket.latest(), now);
}
