//! What a token costs, without a lock, a clock or Python.

#![allow(clippy::panic)]

use std::fmt;

use divan::{Bencher, black_box};
use sluicegate::primitives::{
    ConfigError, Home, KeyedTokenBucket, Time, TokenAsk, TokenBucket, Waitable,
};

fn main() {
    divan::main();
}

fn valid<T>(result: Result<T, ConfigError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn bucket(rate: f64, per: f64) -> TokenBucket<u32> {
    valid(TokenBucket::new(rate, per, Some(1000.0)))
}

/// Whether a nanosecond brings a whole number of nano-tokens or not.
#[derive(Clone, Copy)]
enum Rate {
    Whole,
    Fractional,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "1,000 a second",
            Self::Fractional => "200,000 a minute",
        })
    }
}

impl Rate {
    fn bucket(self) -> TokenBucket<u32> {
        match self {
            Self::Whole => bucket(1e3, 1.0),
            Self::Fractional => bucket(2e5, 60.0),
        }
    }
}

/// Half of the tokens that come.
#[divan::bench(args = [Rate::Whole, Rate::Fractional])]
fn try_take(bencher: Bencher<'_, '_>, rate: Rate) {
    let (mut bucket, ask, mut now) = (rate.bucket(), TokenAsk::one(), 0);
    bencher.bench_local(|| {
        now += 2_000_000;
        bucket.try_take(Time::from_nanos(now), black_box(&ask))
    });
}

#[divan::bench(args = [Rate::Whole, Rate::Fractional])]
fn refusal(bencher: Bencher<'_, '_>, rate: Rate) {
    let mut bucket = rate.bucket();
    let _ = bucket.adjust(Time::ZERO, -1000.0);
    let (ask, mut now) = (TokenAsk::one(), 0);
    bencher.bench_local(|| {
        now = (now + 1) & 0xffff;
        bucket.try_take(Time::from_nanos(now), black_box(&ask))
    });
}

#[divan::bench(args = [Rate::Whole, Rate::Fractional])]
fn retry_after(bencher: Bencher<'_, '_>, rate: Rate) {
    let mut bucket = rate.bucket();
    let _ = bucket.adjust(Time::ZERO, -1000.0);
    let ask = TokenAsk::one();
    bencher.bench_local(|| bucket.retry_after(Time::ZERO, black_box(&ask)));
}

/// A token comes: the sweep, the grant, the claim, and a new waiter at the end.
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
fn grant_by_time(bencher: Bencher<'_, '_>, waiting: u64) {
    let (mut bucket, mut ask) = (bucket(1e3, 1.0), TokenAsk::one());
    ask.home = Some(Home(0));
    let _ = bucket.adjust(Time::ZERO, -1000.0);
    for _ in 0..waiting {
        let _ = bucket.take(Time::ZERO, &ask, &mut Some(0));
    }
    bencher.bench_local(|| {
        let now = bucket.next_expiry().unwrap_or_default();
        for wake in bucket.expire(now, ask.home) {
            let _ = black_box(bucket.claim(now, wake.ticket));
        }
        bucket.take(now, &ask, &mut Some(0))
    });
}

/// One after the other, each with a token to take.
#[divan::bench(args = [1, 100, 10_000], sample_size = 1_000)]
fn keyed_try_take(bencher: Bencher<'_, '_>, keys: usize) {
    let mut bucket = valid(KeyedTokenBucket::new(1e9, 1.0, Some(10.0), 10_000));
    let names: Vec<_> = (0..keys).map(|key| format!("user-{key:08}")).collect();
    let (ask, mut now, mut next) = (TokenAsk::one(), 0, 0);
    bencher.bench_local(|| {
        now += 1;
        next = if next + 1 < keys { next + 1 } else { 0 };
        bucket.try_take(Time::from_nanos(now), names[next].as_bytes(), black_box(&ask))
    });
}

/// A key that nobody has seen takes the place of one whose bucket is full.
#[divan::bench]
fn keyed_newcomer(bencher: Bencher<'_, '_>) {
    let mut bucket = valid(KeyedTokenBucket::new(1e9, 1.0, Some(10.0), 10_000));
    let (ask, mut now) = (TokenAsk::one(), 0_u64);
    bencher.bench_local(|| {
        now += 1;
        bucket.try_take(Time::from_nanos(now), &now.to_le_bytes(), black_box(&ask))
    });
}

/// A key that nobody has seen finds no place.
#[divan::bench]
fn keyed_flood(bencher: Bencher<'_, '_>) {
    let mut bucket = valid(KeyedTokenBucket::new(1e-6, 1.0, Some(10.0), 10_000));
    let (ask, mut key) = (TokenAsk::one(), 0_u64);
    let mut flood = || {
        key += 1;
        bucket.try_take(Time::ZERO, &key.to_le_bytes(), black_box(&ask))
    };
    for _ in 0..10_000 {
        let _ = flood();
    }
    bencher.bench_local(flood);
}
