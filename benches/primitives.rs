//! What a decision costs, without a lock, a clock or Python.

#![allow(clippy::panic)]

use divan::{Bencher, black_box};
use sluicegate::primitives::{Ask, Claim, Home, Outcome, SemaphoreLimiter, Time};

fn main() {
    divan::main();
}

fn limiter(limit: f64) -> SemaphoreLimiter<u32> {
    SemaphoreLimiter::new(limit).unwrap_or_else(|error| panic!("{error}"))
}

fn ask() -> Ask {
    Ask::new(1).unwrap_or_else(|error| panic!("{error}"))
}

#[divan::bench]
fn try_acquire_and_release(bencher: Bencher<'_, '_>) {
    let (mut limiter, ask, mut now) = (limiter(10.0), ask(), 0);
    bencher.bench_local(|| {
        now += 1;
        let time = Time::from_nanos(now);
        let permit = limiter.try_acquire(time, black_box(&ask));
        permit.map(|permit| limiter.release(time, permit, Outcome::Success).len())
    });
}

#[divan::bench]
fn refusal(bencher: Bencher<'_, '_>) {
    let (mut limiter, ask) = (limiter(1.0), ask());
    let _held = limiter.try_acquire(Time::ZERO, &ask);
    bencher.bench_local(|| limiter.try_acquire(Time::ZERO, black_box(&ask)).is_err());
}

/// A release, the grant it makes, the claim, and a new waiter at the end.
#[divan::bench(args = [10, 1_000, 100_000])]
fn hand_off(bencher: Bencher<'_, '_>, waiting: u64) {
    let (mut limiter, mut ask, mut now) = (limiter(1.0), ask(), 0);
    ask.home = Some(Home(0));
    let mut held = limiter.try_acquire(Time::ZERO, &ask).ok();
    for _ in 0..waiting {
        let _ = limiter.acquire(Time::ZERO, &ask, &mut Some(0));
    }
    bencher.bench_local(|| {
        now += 1;
        let time = Time::from_nanos(now);
        let permit = held.take().unwrap_or_else(|| panic!("held"));
        for wake in limiter.release(time, permit, Outcome::Success) {
            if let (Claim::Admitted(permit), _) = limiter.claim(time, wake.ticket) {
                held = Some(permit);
            }
        }
        limiter.acquire(time, &ask, &mut Some(0))
    });
}
