//! What a queue must do that no single scenario shows.

#![allow(clippy::expect_used, clippy::panic)]

use std::time::Duration;

use sluicegate::primitives::{
    Certainty, CoDelQueue, Criticality, News, Offer, QueueConfig, Reason, Time,
};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn queue(capacity: usize, target: u64, interval: u64) -> CoDelQueue<u64> {
    let mut config = QueueConfig::new(capacity);
    config.target = Some(Duration::from_millis(target));
    config.interval = Some(Duration::from_millis(interval));
    CoDelQueue::new(config).expect("a sound configuration")
}

fn rejected(queue: &mut CoDelQueue<u64>) -> Vec<(u64, Reason)> {
    let told = queue.take_news().into_iter().filter_map(|news| match news {
        News::Rejected(item, rejection) => Some((item, rejection.reason)),
        News::Level(_) => None,
    });
    told.collect()
}

fn put(queue: &mut CoDelQueue<u64>, ms: u64, item: u64) {
    queue.push(at(ms), item, &Offer::default()).expect("there is room");
}

fn pop(queue: &mut CoDelQueue<u64>, ms: u64) -> Option<u64> {
    queue.pop(at(ms)).map(|taken| taken.item)
}

/// Overload from 0 on: one comes each millisecond, one goes each 2 ms.
#[test]
fn it_becomes_standing_and_healthy_again() {
    let mut queue = queue(1_000, 5, 100);
    let mut changes = Vec::new();
    for ms in 0..1_000 {
        put(&mut queue, ms, ms);
        if ms % 2 == 1 {
            pop(&mut queue, ms);
        }
        let is_standing = queue.is_standing();
        if changes.last().is_none_or(|&(_, last)| last != is_standing) {
            changes.push((ms, is_standing));
        }
    }
    // The oldest wait passes 5 ms at 10 ms, and stays above.
    let &[(0, false), (since, true)] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert!((105..=115).contains(&since), "{since}");
    rejected(&mut queue);
    // All goes at its target, without anybody asking for it in between.
    queue.expire(at(1_010));
    assert!(queue.is_empty());
    assert!(queue.is_standing());
    queue.expire(at(1_200));
    assert!(!queue.is_standing());
}

#[test]
fn a_flip_expels_a_few_at_a_time() {
    let mut queue = queue(10_000, 5, 100);
    put(&mut queue, 0, 0);
    for item in 1..1_000 {
        put(&mut queue, 50, item);
    }
    queue.expire(at(100));
    assert_eq!(rejected(&mut queue), [(0, Reason::Wait)]);
    // Since 5 ms the oldest wait is above the target.
    queue.expire(at(104));
    assert!(!queue.is_standing());
    let mut left = 999;
    for ms in 105..110 {
        queue.expire(at(ms));
        assert!(queue.is_standing());
        let expelled = rejected(&mut queue);
        left -= 32;
        assert_eq!((expelled.len(), queue.len()), (32, left), "at {ms} ms");
    }
    assert!(queue.next_expiry() == Some(at(110)));
}

#[test]
fn looking_late_gives_the_same_as_looking_often() {
    let play = |looks: &[u64]| {
        let mut queue = queue(10_000, 5, 100);
        put(&mut queue, 0, 0);
        for item in 1..500 {
            put(&mut queue, 50 + item % 40, item);
        }
        for &ms in looks {
            queue.expire(at(ms));
        }
        queue.expire(at(400));
        (rejected(&mut queue), queue.is_standing(), queue.is_empty())
    };
    let often: Vec<u64> = (90..400).collect();
    assert_eq!(play(&often), play(&[]));
}

#[test]
fn a_service_that_is_known_shapes_the_bounds() {
    let mut queue: CoDelQueue<u64> =
        CoDelQueue::new(QueueConfig::new(10)).expect("a sound configuration");
    let spans = |queue: &CoDelQueue<u64>| {
        let snapshot = queue.snapshot(Time::ZERO);
        (snapshot.target, snapshot.interval)
    };
    assert_eq!(spans(&queue), (Duration::from_millis(250), Duration::from_secs(1)));
    let mut now = 0;
    for _ in 0..20 {
        put(&mut queue, now, now);
        let taken = queue.pop(at(now)).expect("one is there");
        let work = queue.begin(&taken);
        now += 40;
        queue.finish(at(now), work, true);
    }
    // One worker: as long as it needs for 18 items, were that not longer than callers wait.
    assert_eq!(spans(&queue), (Duration::from_secs(2) / 3, Duration::from_secs(1)));
}

#[test]
fn memory_is_given_back_to_no_stranger() {
    let mut queue = queue(10, 5, 100);
    // Names made up by strangers.
    for name in 0..10_000 {
        let name = name.to_string();
        let offer = Offer { operation: Some(&name), ..Offer::default() };
        queue.push(Time::ZERO, 0, &offer).expect("there is room");
        let taken = queue.pop(Time::ZERO).expect("one is there");
        let work = queue.begin(&taken);
        queue.finish(at(1), work, true);
    }
    assert_eq!(queue.snapshot(at(1)).working, 0);
}

#[test]
fn the_less_critical_makes_room() {
    let mut queue = queue(2, 5, 100);
    let offer = |criticality| Offer { criticality, ..Offer::default() };
    let sheddable = offer(Criticality::Sheddable);
    queue.push(at(0), 1, &sheddable).expect("there is room");
    queue.push(at(0), 2, &sheddable).expect("there is room");
    assert!(queue.push(at(0), 3, &sheddable).is_err());
    queue.push(at(0), 4, &offer(Criticality::Critical)).expect("2 makes room");
    assert_eq!(rejected(&mut queue), [(2, Reason::Evicted)]);
    assert_eq!(pop(&mut queue, 1), Some(4));
    assert_eq!(pop(&mut queue, 1), Some(1));
}

#[test]
fn nobody_makes_room_for_what_is_in_vain() {
    let mut queue = queue(1, 5, 100);
    put(&mut queue, 0, 1);
    let critical =
        Offer { criticality: Criticality::CriticalPlus, deadline: Some(at(1)), ..Offer::default() };
    let (item, rejection) = queue.push(at(1), 2, &critical).expect_err("it is too late");
    assert_eq!((item, rejection.reason), (2, Reason::Deadline));
    assert_eq!(rejected(&mut queue), []);
    assert_eq!(pop(&mut queue, 1), Some(1));
}

/// A queue over a service that is known to take 40 ms; it was last asked at 800 ms.
fn with_a_known_service() -> CoDelQueue<u64> {
    let mut queue = queue(10, 500, 10_000);
    for round in 0..20 {
        put(&mut queue, round * 40, round);
        let taken = queue.pop(at(round * 40)).expect("one is there");
        let work = queue.begin(&taken);
        queue.finish(at(round * 40 + 40), work, true);
    }
    queue
}

#[test]
fn a_deadline_falls_due_at_one_moment() {
    let play = |looks: &[u64]| {
        let mut queue = with_a_known_service();
        // It waits while the estimate ages, and is over its bound at 1300 ms.
        put(&mut queue, 800, 0);
        let offer = Offer { deadline: Some(at(1_338)), ..Offer::default() };
        queue.push(at(800), 1, &offer).expect("there is room");
        for &ms in looks {
            queue.expire(at(ms));
        }
        let next = queue.next_expiry();
        queue.expire(at(20_000));
        (next.map(Time::as_nanos), rejected(&mut queue))
    };
    let (next, often) = play(&[900, 1_000, 1_100, 1_200, 1_290]);
    assert_eq!(play(&[]), (next, often));
    // An exact one: less is left from then on, and not before.
    let queue = with_a_known_service();
    let left = |nanos: u64| Duration::from_nanos(1_338 * MS - nanos);
    let estimate = |nanos| queue.service().estimate(Time::from_nanos(nanos), Certainty::Fair);
    let next = next.expect("two wait");
    assert!(left(next) < estimate(next));
    assert!(left(next - 1) >= estimate(next - 1));
}

#[test]
fn what_is_left_to_nobody_may_begin_at_once() {
    let mut queue = with_a_known_service();
    let offer = Offer { deadline: Some(at(810)), ..Offer::default() };
    // Nobody waits before it.
    queue.push(at(800), 1, &offer).expect("it may begin");
    assert_eq!(pop(&mut queue, 800), Some(1));
    queue.push(at(800), 2, &offer).expect("it may begin");
    let (_, rejection) = queue.push(at(800), 3, &offer).expect_err("2 waits");
    assert_eq!(rejection.reason, Reason::Deadline);
    // It did not.
    queue.expire(at(801));
    assert_eq!(rejected(&mut queue), [(2, Reason::Deadline)]);
}

#[test]
fn those_that_are_late_hold_up_nobody() {
    let mut queue = queue(10_000, 5, 100);
    put(&mut queue, 0, 0);
    for item in 1..1_000 {
        put(&mut queue, 50, item);
    }
    // It becomes standing at 105 ms; this one is over the target 4 ms later.
    put(&mut queue, 104, 1_000);
    queue.expire(at(108));
    rejected(&mut queue);
    queue.expire(at(109));
    let expelled = rejected(&mut queue);
    assert_eq!(expelled.len(), 33);
    assert!(expelled.contains(&(1_000, Reason::Wait)));
}

#[test]
fn a_shorter_target_expels_a_few_at_a_time() {
    let mut queue = queue(10_000, 50, 100);
    put(&mut queue, 0, 0);
    put(&mut queue, 50, 1);
    for ms in (0..=160).rev().step_by(40) {
        put(&mut queue, 160 - ms, 2 + ms);
    }
    rejected(&mut queue);
    assert!(queue.is_standing());
    for item in 0..1_000 {
        put(&mut queue, 170, 1_000 + item);
    }
    let mut config = queue.config().clone();
    config.target = Some(Duration::from_millis(5));
    queue.update(at(180), config).expect("a sound configuration");
    let expelled = rejected(&mut queue);
    assert!((32..40).contains(&expelled.len()), "{}", expelled.len());
    queue.expire(at(181));
    assert_eq!(rejected(&mut queue).len(), 32);
}

#[test]
fn a_target_is_above_zero_and_below_its_interval() {
    let mut config = QueueConfig::new(1);
    config.interval = Some(Duration::from_nanos(19));
    let queue: CoDelQueue<u64> = CoDelQueue::new(config.clone()).expect("a sound configuration");
    assert_eq!(queue.snapshot(Time::ZERO).target, Duration::from_nanos(1));
    config.interval = Some(Duration::from_nanos(1));
    let error = CoDelQueue::<u64>::new(config).expect_err("no target is below it");
    assert_eq!(error.parameter(), "interval");
}

/// Overload by callers who give a second, of whom the newest are served.
#[test]
fn an_item_waits_for_half_of_its_own_time_whatever_others_give() {
    let mut queue: CoDelQueue<u64> =
        CoDelQueue::new(QueueConfig::new(10_000)).expect("a sound configuration");
    let until = |ms| Offer { deadline: Some(at(ms)), ..Offer::default() };
    let mut gone = None;
    let mut work = None;
    for ms in (0..20_000).step_by(5) {
        if ms == 3_000 {
            queue.push(at(ms), 0, &until(ms + 20_000)).expect("there is room");
        }
        let _ = queue.push(at(ms), ms + 1, &until(ms + 1_000));
        if ms % 10 == 0 {
            if let Some(work) = work.take() {
                queue.finish(at(ms), work, true);
            }
            let taken = queue.pop(at(ms)).expect("one is there");
            assert_ne!(taken.item, 0, "it is never the newest");
            work = Some(queue.begin(&taken));
        }
        let told = rejected(&mut queue).into_iter().find(|&(item, _)| item == 0);
        gone = gone.or(told.map(|(_, reason)| (ms, reason)));
    }
    assert_eq!(gone, Some((13_000, Reason::Wait)));
}

/// One worker that needs 0.1 s, and callers who do not say for how long they wait.
#[test]
fn one_of_twenty_who_claims_an_hour_does_not_speak_for_all() {
    let mut queue: CoDelQueue<u64> =
        CoDelQueue::new(QueueConfig::new(10)).expect("a sound configuration");
    let target = |queue: &CoDelQueue<u64>| queue.snapshot(Time::ZERO).target;
    let serve = |queue: &mut CoDelQueue<u64>, second: u64, deadline| {
        let now = at(second * 1_000);
        queue.push(now, second, &Offer { deadline, ..Offer::default() }).expect("there is room");
        let taken = queue.pop(now).expect("one is there");
        let work = queue.begin(&taken);
        queue.finish(now.after(Duration::from_millis(100)), work, true);
    };
    for second in 0..400 {
        let hour = (second % 20 == 0).then(|| at(1_000 * (second + 3_600)));
        serve(&mut queue, second, hour);
        // By two thirds of a second, were there no such callers.
        assert!(target(&queue) <= Duration::from_secs(1), "{:?}", target(&queue));
    }
    // If all give more, that counts.
    for second in 400..500 {
        serve(&mut queue, second, Some(at(1_000 * (second + 3_600))));
    }
    assert!(target(&queue) >= Duration::from_millis(1_700));
}
