//! The queue against a naive model of the same rules: whatever happens, and however
//! often one looks, both answer the same.

#![allow(clippy::expect_used)]

mod model;
mod steps;
mod trio;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use sluicegate::primitives::{CoDelQueue, Criticality, News, Offer, QueueConfig, Time};
use steps::{config, step};
use trio::Trio;

const MS: u64 = 1_000_000;
const OPERATIONS: [Option<&str>; 3] = [None, Some("read"), Some("write")];

/// A moment that no sound clock shows.
fn odd_moment() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![Just(0), Just(1 << 32), Just(1 << 53), Just(1 << 63), Just(u64::MAX)];
    prop_oneof![
        (edge, 0..3u64, any::<bool>()).prop_map(|(edge, by, is_above)| {
            if is_above { edge.saturating_add(by) } else { edge.saturating_sub(by) }
        }),
        0..100 * MS,
        any::<u64>(),
    ]
}

#[derive(Clone, Debug)]
enum OddStep {
    Push(usize, Option<u64>),
    Pop(bool),
    Finish(Index, bool),
    Cancel(Index),
    Expire,
    Update(Option<Duration>, Option<Duration>),
}

fn odd_step() -> impl Strategy<Value = OddStep> {
    let span = prop_oneof![Just(1), Just(3_600_000 * MS), 1..3_600_000 * MS];
    let span = prop::option::of(span.prop_map(Duration::from_nanos));
    prop_oneof![
        6 => (0..4usize, prop::option::of(odd_moment()))
            .prop_map(|(criticality, deadline)| OddStep::Push(criticality, deadline)),
        3 => any::<bool>().prop_map(OddStep::Pop),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(which, ok)| OddStep::Finish(which, ok)),
        1 => any::<Index>().prop_map(OddStep::Cancel),
        2 => Just(OddStep::Expire),
        1 => (span.clone(), span).prop_map(|(target, interval)| OddStep::Update(target, interval)),
    ]
}

fn cases() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig {
        cases: if full { 10_000 } else { 200 },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/proptest-regressions/queue_model.txt",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn it_does_what_the_model_does(
        config in config(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut trio = Trio::new(&config);
        for step in &steps {
            trio.play(step);
        }
        trio.end();
    }

    #[test]
    fn odd_clocks_lose_nothing(
        steps in prop::collection::vec((odd_moment(), odd_step()), 1..60),
    ) {
        let mut queue = CoDelQueue::new(QueueConfig::new(10)).expect("a sound configuration");
        let (mut ids, mut works, mut inside) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (name, (now, step)) in steps.into_iter().enumerate() {
            let now = Time::from_nanos(now);
            match step {
                OddStep::Push(criticality, deadline) => {
                    let offer = Offer {
                        criticality: Criticality::ALL[criticality],
                        deadline: deadline.map(Time::from_nanos),
                        operation: OPERATIONS[name % 3],
                        ..Offer::default()
                    };
                    if let Ok(id) = queue.push(now, name, &offer) {
                        ids.push((id, name));
                        inside.insert(name);
                    }
                }
                OddStep::Pop(is_worked_on) => if let Some(taken) = queue.pop(now) {
                    assert!(inside.remove(&taken.item));
                    if is_worked_on {
                        works.push(queue.begin(&taken));
                    }
                },
                OddStep::Finish(which, is_success) => if !works.is_empty() {
                    let work = works.swap_remove(which.index(works.len()));
                    queue.finish(now, work, is_success);
                },
                OddStep::Cancel(which) => if !ids.is_empty() {
                    let (id, name) = ids[which.index(ids.len())];
                    let item = queue.cancel(now, id);
                    assert!(item.is_none_or(|item| item == name && inside.remove(&item)));
                },
                OddStep::Expire => {
                    queue.expire(now);
                    let next = queue.next_expiry();
                    assert!(next.is_none_or(|next| next > queue.latest()), "{next:?}");
                }
                OddStep::Update(target, interval) => {
                    let config = QueueConfig { target, interval, ..QueueConfig::new(10) };
                    // It may be refused.
                    let _ = queue.update(now, config);
                }
            }
            for news in queue.take_news() {
                if let News::Rejected(item, _) = news {
                    assert!(inside.remove(&item));
                }
            }
            assert_eq!(queue.items().copied().collect::<BTreeSet<_>>(), inside);
            assert_eq!(queue.snapshot(now).working, works.len());
        }
        queue.expire(Time::MAX);
        assert!(queue.is_empty());
        assert_eq!(queue.next_expiry(), None);
    }
}
