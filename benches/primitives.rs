//! What a decision costs, without a lock, a clock or Python.

#![allow(clippy::panic)]

use std::time::Duration;

use divan::{Bencher, black_box};
use sluicegate::primitives::{
    AdaptiveThrottle, Admission, Ask, Claim, Criticality, Episodes, Home, Outcome, Position,
    Priority, Reason, RetryAfter, RetryBudget, RetryBudgetConfig, SemaphoreLimiter, Threshold,
    ThrottleConfig, Ticket, Time, TokenRetryBudget, TokenRetryBudgetConfig, Waitable,
};

fn main() {
    divan::main();
}

fn limiter(limit: f64) -> SemaphoreLimiter<u32> {
    SemaphoreLimiter::new(limit).unwrap_or_else(|error| panic!("{error}"))
}

fn ask() -> Ask {
    Ask::new(1).unwrap_or_else(|error| panic!("{error}"))
}

fn ask_to_wait() -> Ask {
    let mut ask = ask();
    ask.home = Some(Home(0));
    ask
}

fn join(limiter: &mut SemaphoreLimiter<u32>, now: Time, ask: &Ask) -> Ticket {
    match limiter.acquire(now, ask, &mut Some(0)) {
        Admission::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// A limiter that is full, with a line.
fn line(waiting: u32) -> (SemaphoreLimiter<u32>, Vec<Ticket>) {
    let (mut limiter, ask) = (limiter(1.0), ask_to_wait());
    let _held = limiter.try_acquire(Time::ZERO, &ask);
    let tickets = (0..waiting).map(|_| join(&mut limiter, Time::ZERO, &ask)).collect();
    (limiter, tickets)
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
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
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

#[divan::bench]
fn claim(bencher: Bencher<'_, '_>) {
    let granted = || {
        let (mut limiter, tickets) = line(1);
        let _ = limiter.update(Time::ZERO, 2.0);
        (limiter, tickets[0])
    };
    bencher
        .with_inputs(granted)
        .bench_local_refs(|(limiter, ticket)| limiter.claim(Time::ZERO, *ticket));
}

/// Somebody anywhere in the line leaves, and somebody else joins at the end.
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
fn cancel_and_join(bencher: Bencher<'_, '_>, waiting: u32) {
    let ((mut limiter, mut tickets), ask) = (line(waiting), ask_to_wait());
    let (mut random, mut now) = (1_u32, 0);
    bencher.bench_local(|| {
        now += 1;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let place = (u64::from(random) * tickets.len() as u64) >> 32;
        let ticket = &mut tickets[usize::try_from(place).unwrap_or_default()];
        let wakes = limiter.cancel(Time::from_nanos(now), *ticket).len();
        *ticket = join(&mut limiter, Time::from_nanos(now), &ask);
        wakes
    });
}

/// A sweep that finds nothing to do.
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
fn expire_nobody(bencher: Bencher<'_, '_>, waiting: u32) {
    let (mut limiter, _tickets) = line(waiting);
    bencher.bench_local(|| limiter.expire(Time::ZERO, Some(Home(0))).len());
}

/// Somebody joins for a nanosecond, is swept out, and comes to hear it.
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
fn join_and_expire(bencher: Bencher<'_, '_>, waiting: u32) {
    let ((mut limiter, _tickets), mut ask) = (line(waiting), ask_to_wait());
    ask.max_wait = Some(Duration::from_nanos(1));
    let mut now = 0;
    bencher.bench_local(|| {
        let ticket = join(&mut limiter, Time::from_nanos(now), &ask);
        now += 2;
        let time = Time::from_nanos(now);
        let wakes = limiter.expire(time, Some(Home(0))).len();
        matches!(limiter.claim(time, ticket).0, Claim::Rejected(_)) && wakes == 1
    });
}

/// A new limit that makes no room.
#[divan::bench(args = [10, 1_000, 100_000], sample_size = 1_000)]
fn update(bencher: Bencher<'_, '_>, waiting: u32) {
    let (mut limiter, _tickets) = line(waiting);
    let mut limit = 1.0;
    bencher.bench_local(|| {
        limit = 2.5 - limit;
        limiter.update(Time::ZERO, black_box(limit)).is_ok()
    });
}

/// A throttle in the middle of its window, of whose requests so many in ten are
/// accepted.
fn throttle(accepts: u32) -> (AdaptiveThrottle, u64) {
    let mut throttle =
        AdaptiveThrottle::new(ThrottleConfig::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut now = 0;
    for number in 0..30_000_u32 {
        now += 1_000_000;
        let time = Time::from_nanos(now);
        throttle.allow(time, Criticality::Critical, 1.0);
        let is_accepted = number % 10 < accepts;
        throttle.record(time, if is_accepted { Outcome::Success } else { Outcome::Overload });
    }
    (throttle, now)
}

/// At a backend that is well, that fails now and then, and that fails.
#[divan::bench(args = [10, 8, 0])]
fn allow(bencher: Bencher<'_, '_>, accepts: u32) {
    let (mut throttle, mut now) = throttle(accepts);
    let mut draw = 0.0;
    bencher.bench_local(|| {
        now += 1;
        draw = if draw < 0.9 { draw + 0.01 } else { 0.0 };
        throttle.allow(Time::from_nanos(now), black_box(Criticality::Critical), black_box(draw))
    });
}

#[divan::bench]
fn record(bencher: Bencher<'_, '_>) {
    let (mut throttle, mut now) = throttle(10);
    bencher.bench_local(|| {
        now += 1;
        throttle.record(Time::from_nanos(now), black_box(Outcome::Success));
    });
}

#[divan::bench]
fn record_request(bencher: Bencher<'_, '_>) {
    let (mut budget, mut now) = (budget(), 0);
    bencher.bench_local(|| {
        now += 1;
        budget.record_request(Time::from_nanos(now));
    });
}

fn budget() -> RetryBudget {
    RetryBudget::new(RetryBudgetConfig::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[divan::bench]
fn try_retry_refused(bencher: Bencher<'_, '_>) {
    let (mut budget, mut now) = (budget(), 0);
    let _held = budget.try_retry(Time::ZERO);
    bencher.bench_local(|| {
        now += 1;
        budget.try_retry(Time::from_nanos(now)).is_err()
    });
}

/// A request, its retry, and the end of that.
#[divan::bench]
fn try_retry_and_release(bencher: Bencher<'_, '_>) {
    let (mut budget, mut now) = (budget(), 0);
    let is_changed = budget.update(1.0, 0.1).is_ok();
    bencher.bench_local(|| {
        now += 1;
        let time = Time::from_nanos(now);
        budget.record_request(time);
        let permit = budget.try_retry(time);
        is_changed && permit.map(|permit| budget.release(permit)).is_ok()
    });
}

#[divan::bench]
fn try_retry_by_tokens_and_release(bencher: Bencher<'_, '_>) {
    let mut budget = TokenRetryBudget::new(TokenRetryBudgetConfig::default())
        .unwrap_or_else(|error| panic!("{error}"));
    bencher.bench_local(|| {
        budget.record_success();
        budget.try_retry().map(|permit| budget.release(permit))
    });
}

/// A threshold that admits everything, and one that rejects half of what comes.
#[divan::bench(args = [0.5, 1.5])]
fn admits(bencher: Bencher<'_, '_>, pressure: f64) {
    let (mut threshold, mut now, mut bits) = (Threshold::new(), 0, 1_u32);
    let mut priority = move || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Priority::new(Criticality::Critical, Position::from_bits(bits))
    };
    while now < 500_000_000 {
        now += 100_000;
        let time = Time::from_nanos(now);
        if threshold.is_due(time) {
            threshold.update(time, pressure);
        }
        threshold.admits(time, priority());
    }
    bencher.bench_local(|| {
        now += 1;
        threshold.admits(Time::from_nanos(now), black_box(priority()))
    });
}

/// An evaluation while it rejects, with as many decisions to look at as there can be.
#[divan::bench]
fn evaluate_threshold(bencher: Bencher<'_, '_>) {
    let (mut threshold, mut now, mut bits) = (Threshold::new(), 0, 1_u32);
    for _ in 0..10 {
        now += 100_000_000;
        threshold.update(Time::from_nanos(now), 2.0);
    }
    bencher
        .with_inputs(|| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Priority::new(Criticality::Critical, Position::from_bits(bits))
        })
        .bench_local_values(|priority| {
            now += 1_000_000;
            let time = Time::from_nanos(now);
            threshold.admits(time, priority);
            threshold.update(time, black_box(1.0));
        });
}

#[divan::bench(args = [8, 36])]
fn position_of_key(bencher: Bencher<'_, '_>, length: usize) {
    let key = "k".repeat(length);
    bencher.bench_local(|| Position::of_key(black_box(&key), black_box(500_000)));
}

/// For come-backs: a rejection and a completion, a millisecond apart.
#[divan::bench]
fn note_rejection_and_done(bencher: Bencher<'_, '_>) {
    let (mut retry_after, mut now) = (RetryAfter::new(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        let time = black_box(Time::from_nanos(now));
        retry_after.note_rejection(time);
        retry_after.note_done(time);
    });
    black_box(retry_after);
}

#[divan::bench]
fn retry_after_span(bencher: Bencher<'_, '_>) {
    let (mut retry_after, mut now) = (RetryAfter::new(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        let time = black_box(Time::from_nanos(now));
        retry_after.note_done(time);
        retry_after.span(time, black_box(0.5))
    });
}

/// On the path of what is admitted.
#[divan::bench]
fn note_ask(bencher: Bencher<'_, '_>) {
    let mut episodes = Episodes::new();
    bencher.bench_local(|| black_box(&mut episodes).note_ask());
}

#[divan::bench]
fn note_episode_and_look(bencher: Bencher<'_, '_>) {
    let (mut episodes, mut now) = (Episodes::new(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        let time = black_box(Time::from_nanos(now));
        episodes.note_ask();
        episodes.note(time, Reason::Full, Criticality::Critical);
        episodes.look(time)
    });
}
