//! What the decisions of a queue cost, without a lock, a clock or Python.

#![allow(clippy::panic)]

use std::time::Duration;

use divan::counter::BytesCount;
use divan::{AllocProfiler, Bencher, black_box};
use sluicegate::primitives::{
    Channel, CoDelQueue, Criticality, Home, ItemId, Offer, Put, QueueConfig, Take, Time, Wait,
    Waitable,
};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const SIZES: [usize; 3] = [10, 1_000, 1_000_000];

fn config() -> QueueConfig {
    let mut config = QueueConfig::new(10_000_000);
    config.target = Some(Duration::from_secs(1_000));
    config.interval = Some(Duration::from_secs(3_000));
    config
}

fn queue() -> CoDelQueue<u64> {
    CoDelQueue::new(config()).unwrap_or_else(|error| panic!("{error}"))
}

fn push(queue: &mut CoDelQueue<u64>, now: u64, offer: &Offer<'_>) -> ItemId {
    let pushed = queue.push(Time::from_nanos(now), now, offer);
    pushed.unwrap_or_else(|(_, rejection)| panic!("{rejection:?}"))
}

fn filled(depth: usize) -> (CoDelQueue<u64>, Vec<ItemId>) {
    let mut queue = queue();
    let offer = Offer::default();
    let ids = (0..depth as u64).map(|now| push(&mut queue, now, &offer)).collect();
    (queue, ids)
}

/// One comes, one goes, by time and by criticality.
#[divan::bench(args = SIZES, sample_size = 1_000)]
fn push_and_pop(bencher: Bencher<'_, '_>, depth: usize) {
    let (mut queue, _) = filled(depth);
    let (mut now, mut offer) = (depth as u64, Offer::default());
    let mut criticalities = Criticality::ALL.into_iter().cycle();
    bencher.bench_local(|| {
        now += 1;
        offer.criticality = criticalities.next().unwrap_or_default();
        push(&mut queue, now, black_box(&offer));
        queue.pop(Time::from_nanos(now))
    });
}

/// The same with a deadline each.
#[divan::bench(args = SIZES, sample_size = 1_000)]
fn push_and_pop_with_deadlines(bencher: Bencher<'_, '_>, depth: usize) {
    let mut queue = queue();
    let (mut now, mut random) = (0, 1_u64);
    let mut put = |queue: &mut CoDelQueue<u64>| {
        now += 1;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let deadline = Some(Time::from_nanos(now + 500_000_000_000 + (random >> 30)));
        push(queue, now, &Offer { deadline, ..Offer::default() });
        now
    };
    for _ in 0..depth {
        put(&mut queue);
    }
    bencher.bench_local(|| {
        let now = put(&mut queue);
        queue.pop(Time::from_nanos(now))
    });
}

/// Somewhere one is cancelled, and another one comes.
#[divan::bench(args = SIZES, sample_size = 1_000)]
fn cancel_and_push(bencher: Bencher<'_, '_>, depth: usize) {
    let (mut queue, mut ids) = filled(depth);
    let (mut now, mut random, offer) = (depth as u64, 1_u32, Offer::default());
    bencher.bench_local(|| {
        now += 1;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let place = (u64::from(random) * ids.len() as u64) >> 32;
        let id = &mut ids[usize::try_from(place).unwrap_or_default()];
        let cancelled = queue.cancel(Time::from_nanos(now), *id);
        *id = push(&mut queue, now, &offer);
        cancelled
    });
}

/// The oldest is cancelled, as by time-outs, and another one comes.
#[divan::bench(args = SIZES, sample_size = 1_000)]
fn cancel_oldest_and_push(bencher: Bencher<'_, '_>, depth: usize) {
    let (mut queue, mut ids) = filled(depth);
    let (mut now, mut next, offer) = (depth as u64, 0, Offer::default());
    bencher.bench_local(|| {
        now += 1;
        let id = &mut ids[next];
        next = if next + 1 < depth { next + 1 } else { 0 };
        let cancelled = queue.cancel(Time::from_nanos(now), *id);
        *id = push(&mut queue, now, &offer);
        cancelled
    });
}

/// One that has left already is cancelled: what a look at any one of so many items
/// costs where they do not fit into the caches.
#[divan::bench(args = SIZES, sample_size = 1_000)]
fn cancel_of_one_that_left(bencher: Bencher<'_, '_>, depth: usize) {
    let (mut queue, ids) = filled(depth);
    for &id in &ids {
        queue.cancel(Time::ZERO, id);
        push(&mut queue, 0, &Offer::default());
    }
    let mut random = 1_u64;
    bencher.bench_local(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = ((random >> 32) * ids.len() as u64) >> 32;
        let id = ids[usize::try_from(place).unwrap_or_default()];
        // The next one is known only after this one.
        random ^= u64::from(queue.cancel(Time::ZERO, black_box(id)).is_some());
    });
}

#[divan::bench]
fn refusal(bencher: Bencher<'_, '_>) {
    let mut queue = CoDelQueue::new(QueueConfig { capacity: 1, ..config() })
        .unwrap_or_else(|error| panic!("{error}"));
    push(&mut queue, 0, &Offer::default());
    let mut now = 0;
    bencher.bench_local(|| {
        now += 1;
        queue.push(Time::from_nanos(now), 0, black_box(&Offer::default())).is_err()
    });
}

/// Work is timed, and teaches.
#[divan::bench(sample_size = 10_000)]
fn push_pop_and_finish(bencher: Bencher<'_, '_>) {
    let mut queue = queue();
    let mut now = 0;
    bencher.bench_local(|| {
        push(&mut queue, now, &Offer::default());
        let taken = queue.pop(Time::from_nanos(now));
        let work = taken.map(|taken| queue.begin(&taken));
        now += 1_000 + (now & 0xfff);
        work.map(|work| queue.finish(Time::from_nanos(now), work, true))
    });
}

/// A taker waits, an item comes, and the taker claims it.
#[divan::bench(sample_size = 1_000)]
fn hand_over(bencher: Bencher<'_, '_>) {
    let mut channel: Channel<u64, u32> =
        Channel::new(config()).unwrap_or_else(|error| panic!("{error}"));
    let wait = Wait { home: Some(Home(0)), until: None };
    let mut now = 0;
    bencher.bench_local(|| {
        now += 1;
        let time = Time::from_nanos(now);
        let (Take::Waiting(ticket), _) = channel.take_or_wait(time, wait, &mut Some(0)) else {
            panic!("nothing is there");
        };
        let (Put::Accepted(_), wakes) = channel.put_now(time, now, &Offer::default(), None) else {
            panic!("there is room");
        };
        let (take, _) = channel.claim_item(time, ticket);
        (wakes.len(), matches!(take, Take::Taken(_)), channel.next_expiry())
    });
}

/// What an item costs in memory, its own eight bytes included.
#[divan::bench(args = [1_000_000], sample_count = 1, sample_size = 1)]
fn memory(bencher: Bencher<'_, '_>, depth: usize) {
    bencher.counter(BytesCount::new(depth)).bench(|| filled(depth).0);
}
