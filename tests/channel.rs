//! What a channel must do at its edges.

#![allow(clippy::expect_used, clippy::panic)]

use std::time::Duration;

use sluicegate::primitives::{
    CLAIM_PATIENCE, Channel, Criticality, Home, Level, News, Offer, Put, QueueConfig, Reason, Take,
    Ticket, Time, Wait, Waitable, Wake, Wakes,
};

type Names = Channel<u64, &'static str>;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn channel(capacity: usize) -> Names {
    let mut config = QueueConfig::new(capacity);
    config.target = Some(Duration::from_millis(5));
    config.interval = Some(Duration::from_millis(100));
    Channel::new(config).expect("a sound configuration")
}

fn home(number: u64) -> Wait {
    Wait { home: Some(Home(number)), until: None }
}

/// `name` waits for an item.
fn taker(channel: &mut Names, ms: u64, name: &'static str, at_home: u64) -> Ticket {
    match channel.take_or_wait(at(ms), home(at_home), &mut Some(name)) {
        (Take::Waiting(ticket), _) => ticket,
        (other, _) => panic!("{other:?}"),
    }
}

/// `name` waits for room.
fn putter(channel: &mut Names, ms: u64, name: &'static str, item: u64) -> (Ticket, Woken) {
    let offer = Offer::default();
    match channel.put_or_wait(at(ms), item, &offer, home(9), &mut Some(name)) {
        (Put::Waiting(ticket, _), wakes) => (ticket, names(wakes)),
        (other, _) => panic!("{other:?}"),
    }
}

type Woken = Vec<&'static str>;

fn names(wakes: Wakes<&'static str>) -> Woken {
    wakes.into_iter().map(|wake| wake.waiter).collect()
}

fn put(channel: &mut Names, ms: u64, item: u64) -> Result<Woken, Reason> {
    match channel.put_now(at(ms), item, &Offer::default(), None) {
        (Put::Accepted(_), wakes) => Ok(names(wakes)),
        (Put::Rejected(_, rejection), _) => Err(rejection.reason),
        (other, _) => panic!("{other:?}"),
    }
}

fn claim_room(channel: &mut Names, ms: u64, ticket: Ticket, item: u64) -> (Put<u64>, Woken) {
    let (put, wakes) = channel.claim_room(at(ms), ticket, item, &Offer::default());
    (put, names(wakes))
}

#[test]
fn room_beside_an_idle_worker_is_gone_with_it() {
    let mut channel = channel(0);
    let (room, _) = putter(&mut channel, 0, "putter", 1);
    let worker = taker(&mut channel, 0, "worker", 1);
    // The putter was called, and the worker goes.
    assert!(names(channel.cancel(at(1), worker)).is_empty());
    let (put, _) = claim_room(&mut channel, 1, room, 1);
    assert!(matches!(put, Put::Waiting(..)), "{put:?}");
    assert!(channel.renew(room, "putter").is_ok());
    // Another one comes.
    let (take, wakes) = channel.take_or_wait(at(2), home(1), &mut Some("another"));
    assert!(matches!(take, Take::Waiting(_)));
    assert_eq!(names(wakes), ["putter"]);
    let (put, woken) = claim_room(&mut channel, 2, room, 1);
    assert!(matches!(put, Put::Accepted(_)), "{put:?}");
    assert_eq!(woken, ["another"]);
}

#[test]
fn a_smaller_capacity_counts_for_those_who_were_called() {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let (room, _) = putter(&mut channel, 0, "putter", 2);
    let (take, wakes) = channel.take_now(at(1), None);
    assert!(matches!(take, Take::Taken(_)));
    assert_eq!(names(wakes), ["putter"]);
    let wakes = channel.update(at(1), QueueConfig::new(0)).expect("it is sound");
    assert!(wakes.is_empty());
    let (put, _) = claim_room(&mut channel, 1, room, 2);
    assert!(matches!(put, Put::Waiting(..)), "{put:?}");
    assert!(channel.queue().is_empty());
}

#[test]
fn nothing_is_put_once_it_is_closed() {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let (first, _) = putter(&mut channel, 0, "first", 2);
    let (second, _) = putter(&mut channel, 0, "second", 3);
    let (_, wakes) = channel.take_now(at(1), None);
    assert_eq!(names(wakes), ["first"]);
    assert_eq!(names(channel.close(at(1), false)), ["second"]);
    for (ticket, item) in [(first, 2), (second, 3)] {
        let (put, _) = claim_room(&mut channel, 1, ticket, item);
        let Put::Rejected(_, rejection) = put else { panic!("{put:?}") };
        assert_eq!(rejection.reason, Reason::Closed);
    }
}

#[test]
fn whoever_could_not_be_reached_is_told_that_it_is_closed() {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let (ticket, _) = putter(&mut channel, 0, "putter", 2);
    let (_, wakes) = channel.take_now(at(1), None);
    assert!(channel.close(at(1), false).is_empty());
    let Some(Wake { waiter, .. }) = wakes.into_iter().next() else { panic!("it was not called") };
    assert!(names(channel.unreached(at(1), ticket, waiter)).contains(&"putter"));
    assert_eq!(channel.putters(), 0);
    let (put, _) = claim_room(&mut channel, 1, ticket, 2);
    assert!(matches!(put, Put::Rejected(..)), "{put:?}");
}

#[test]
fn to_hand_over_raises_no_alarm() {
    let mut channel = channel(1);
    for round in 0..3 {
        let ticket = taker(&mut channel, round, "worker", 1);
        assert_eq!(put(&mut channel, round, round), Ok(vec!["worker"]));
        let (take, _) = channel.claim_item(at(round), ticket);
        assert!(matches!(take, Take::Taken(_)));
    }
    assert!(channel.take_news().is_empty());
    // It is there for nobody.
    put(&mut channel, 9, 9).expect("there is room");
    assert!(matches!(channel.take_news()[..], [News::Level(Level::High)]));
}

#[test]
fn what_was_promised_and_given_up_counts_again() {
    let mut channel = channel(1);
    let ticket = taker(&mut channel, 0, "worker", 1);
    put(&mut channel, 0, 1).expect("a worker waits for it");
    assert_eq!((channel.queue().depth(), channel.queue().len()), (0, 1));
    put(&mut channel, 0, 2).expect("there is room");
    assert!(channel.cancel(at(1), ticket).is_empty());
    assert_eq!((channel.queue().depth(), channel.queue().len()), (2, 2));
    assert_eq!(put(&mut channel, 1, 3), Err(Reason::Full));
}

/// One item that has waited for 4 ms, and the queue is full and standing.
fn standing() -> Names {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let mut config = channel.queue().config().clone();
    config.capacity = 2;
    channel.update(at(50), config.clone()).expect("it is sound").into_iter().for_each(drop);
    put(&mut channel, 50, 2).expect("there is room");
    put(&mut channel, 101, 3).expect("there is room");
    config.capacity = 1;
    channel.update(at(105), config).expect("it is sound").into_iter().for_each(drop);
    assert!(channel.queue().is_standing());
    drop(channel.take_news());
    channel
}

#[test]
fn whoever_waits_for_room_is_not_overtaken_by_eviction() {
    // Alone, a newer one takes the place of an older one.
    let mut channel = standing();
    assert_eq!(channel.queue().items().collect::<Vec<_>>(), [&3]);
    put(&mut channel, 105, 4).expect("3 makes room");
    assert_eq!(channel.queue().items().filter(|&&item| item == 4).count(), 1);
    let mut channel = standing();
    putter(&mut channel, 105, "putter", 5);
    assert_eq!(put(&mut channel, 105, 4), Err(Reason::Full));
    // The more critical does not wait for the less critical.
    let offer = Offer { criticality: Criticality::CriticalPlus, ..Offer::default() };
    let (put, _) = channel.put_now(at(105), 6, &offer, None);
    assert!(matches!(put, Put::Accepted(_)), "{put:?}");
}

#[test]
fn a_home_that_moves_is_served_with_the_newcomer() {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let (first, _) = putter(&mut channel, 0, "first", 2);
    let (second, _) = putter(&mut channel, 0, "second", 3);
    let (_, wakes) = channel.take_now(at(1), None);
    let Some(wake) = wakes.into_iter().next() else { panic!("nobody was called") };
    // Nobody there can be reached, until one comes from there.
    assert!(names(channel.unreached(at(1), first, wake.waiter)).is_empty());
    assert_eq!(channel.putters(), 2);
    let (_, woken) = putter(&mut channel, 2, "third", 4);
    assert_eq!(woken, ["first"]);
    let (put, _) = claim_room(&mut channel, 2, first, 2);
    assert!(matches!(put, Put::Accepted(_)), "{put:?}");
    channel.cancel(at(2), second).into_iter().for_each(drop);
    assert_eq!(channel.putters(), 1);
}

#[test]
fn a_blocked_worker_keeps_its_item_from_nobody() {
    let mut channel = channel(1);
    let blocked = taker(&mut channel, 0, "blocked", 1);
    let other = taker(&mut channel, 0, "other", 2);
    assert_eq!(put(&mut channel, 0, 1), Ok(vec!["blocked"]));
    let stale = Time::ZERO.after(CLAIM_PATIENCE);
    assert_eq!(channel.next_expiry(), Some(stale));
    assert_eq!(names(channel.expire(stale, None)), ["other"]);
    let (take, _) = channel.claim_item(stale, other);
    assert!(matches!(take, Take::Taken(_)), "{take:?}");
    let (take, _) = channel.claim_item(stale, blocked);
    assert!(matches!(take, Take::Waiting(_)), "{take:?}");
}

#[test]
fn what_is_put_back_reaches_who_has_not_heard_of_the_end() {
    let mut channel = channel(1);
    put(&mut channel, 0, 1).expect("there is room");
    let (Take::Taken(taken), _) = channel.take_now(at(0), None) else { panic!("it is there") };
    let ticket = taker(&mut channel, 0, "worker", 1);
    assert_eq!(names(channel.close(at(1), false)), ["worker"]);
    assert!(names(channel.put_back(at(1), taken)).is_empty());
    let (take, _) = channel.claim_item(at(1), ticket);
    assert!(matches!(take, Take::Taken(_)), "{take:?}");
    let (take, _) = channel.take_now(at(1), None);
    assert!(matches!(take, Take::Closed), "{take:?}");
}
