use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate::primitives::QueueConfig;

use crate::MS;

#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub criticality: usize,
    /// In how many nanoseconds.
    pub deadline: Option<u64>,
    pub operation: usize,
}

#[derive(Clone, Debug)]
pub enum Step {
    Push(Ask),
    /// So many, so far apart.
    Burst(Ask, usize, u64),
    /// The same; and every so many one is taken and its work ended.
    Flow(Ask, usize, u64, usize),
    /// One, and when it is over the target so many more, so far apart; and then time
    /// passes until it is about to become standing.
    Wave(Ask, usize, u64, u64),
    /// Many wait for a while, and then target and interval are so many times shorter.
    Tighten(Ask, usize, u32),
    /// Work that takes so long, so many times.
    Learn(usize, usize, u64),
    Pop,
    Finish(Index, bool),
    Abandon(Index),
    /// One is taken, and work on it does not begin.
    Hold,
    PutBack(Index),
    /// So many are taken, and put back in any order.
    Return(usize, Vec<Index>),
    Cancel(Index),
    Expire,
    Pass(u64),
    GoBack(u64),
    Update(QueueConfig),
    RejectAll,
    Clear,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        3 => 0..3u64,
        6 => (0..30u64).prop_map(|ms| ms * MS),
        4 => (0..150u64).prop_map(|ms| ms * MS),
        4 => 0..20 * MS,
        1 => (0..15_000u64).prop_map(|ms| ms * MS),
        1 => 0..12_000 * MS,
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let deadline = prop_oneof![3 => Just(None), 4 => span().prop_map(Some)];
    (prop_oneof![3 => Just(2usize), 2 => 0..4usize], deadline, 0..3usize)
        .prop_map(|(criticality, deadline, operation)| Ask { criticality, deadline, operation })
}

pub fn config() -> impl Strategy<Value = QueueConfig> {
    let capacity = prop_oneof![1 => 0..3usize, 3 => 3..20usize, 3 => Just(1_000)];
    let target = prop_oneof![(1..20u64).prop_map(|ms| ms * MS), 1..10 * MS];
    // Just above the target, or far above.
    let interval = prop_oneof![
        1 => Just((1, 1)),
        1 => Just((1, MS)),
        2 => Just((2, 0)),
        3 => Just((20, 0)),
    ];
    let spans = prop_oneof![
        6 => (target.clone(), interval)
            .prop_map(|(target, (factor, plus))| (Some(target), Some(target * factor + plus))),
        1 => target.clone().prop_map(|target| (Some(target), None)),
        1 => target.prop_map(|target| (None, Some(target * 20))),
        2 => Just((None, None)),
    ];
    let marks = prop_oneof![Just((0.3, 0.7)), Just((0.0, 1.0)), Just((0.5, 0.500_001))];
    (capacity, spans, marks).prop_map(|(capacity, (target, interval), (low, high))| QueueConfig {
        capacity,
        target: target.map(Duration::from_nanos),
        interval: interval.map(Duration::from_nanos),
        low,
        high,
    })
}

pub fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![Just(0), Just(MS), 0..MS, 0..3 * MS];
    let service = prop_oneof![Just(0), (1..50u64).prop_map(|ms| ms * MS), 0..50 * MS];
    prop_oneof![
        8 => ask().prop_map(Step::Push),
        2 => (ask(), 1..100usize, gap.clone()).prop_map(|(ask, many, gap)| Step::Burst(ask, many, gap)),
        2 => (ask(), 1..150usize, gap, 1..5usize)
            .prop_map(|(ask, many, gap, every)| Step::Flow(ask, many, gap, every)),
        2 => (ask(), 30..100usize, prop_oneof![Just(0), 0..MS / 50], 0..MS)
            .prop_map(|(ask, many, gap, plus)| Step::Wave(ask, many, gap, plus)),
        2 => (ask(), 30..100usize, 2..10u32)
            .prop_map(|(ask, many, times)| Step::Tighten(ask, many, times)),
        2 => (0..3usize, prop_oneof![1..5usize, 20..30usize], service)
            .prop_map(|(operation, many, service)| Step::Learn(operation, many, service)),
        8 => Just(Step::Pop),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(which, ok)| Step::Finish(which, ok)),
        1 => any::<Index>().prop_map(Step::Abandon),
        2 => Just(Step::Hold),
        2 => any::<Index>().prop_map(Step::PutBack),
        2 => (2..5usize, prop::collection::vec(any::<Index>(), 5))
            .prop_map(|(many, order)| Step::Return(many, order)),
        3 => any::<Index>().prop_map(Step::Cancel),
        2 => Just(Step::Expire),
        10 => span().prop_map(Step::Pass),
        1 => span().prop_map(Step::GoBack),
        2 => config().prop_map(Step::Update),
        1 => Just(Step::RejectAll),
        1 => Just(Step::Clear),
    ]
}
