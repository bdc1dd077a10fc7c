use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate::primitives::limits::{Aimd, AimdConfig, Vegas, VegasConfig};
use sluicegate::primitives::{Criticality, GateConfig, GateLimit, GradientConfig, Reserve};
use std::time::Duration;

/// How many homes there are.
pub const HOMES: u64 = 3;
pub const OPERATIONS: [Option<&str>; 3] = [None, Some("read"), Some("write")];

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub cost: u32,
    pub criticality: usize,
    pub home: u64,
    /// In milliseconds from now.
    pub deadline: Option<i64>,
    pub tokens: u32,
    pub operation: usize,
    pub is_retry: bool,
}

/// Moments are in milliseconds from now.
#[derive(Clone, Debug)]
pub enum Step {
    TryAcquire(Asked, bool),
    Admit(Asked),
    Acquire(Asked),
    Claim(Index),
    ClaimStale(Index),
    Renew(Index),
    Cancel(Index),
    Unreached(Index),
    Release { which: Index, outcome: usize, operation: usize },
    ReleaseStale(Index),
    Annul(Index),
    Expire(Option<u64>),
    ExpireWhenDue(Option<u64>),
    Update { limit: Option<f64>, max_waiting: Option<usize>, max_wait: Option<u64> },
    Pass(u64),
    JumpBack(u64),
    Block(u64),
    Unblock(u64),
    Refill(u32),
    DryRun(bool),
    Close,
    Reset,
    JoinDrain { home: u64, until: Option<u64> },
    ClaimDrain(Index),
    CancelDrain(Index),
    UnreachedDrain(Index),
}

fn asked() -> impl Strategy<Value = Asked> {
    let cost = prop_oneof![4 => Just(1u32), 1 => 1..6u32];
    let deadline = prop_oneof![3 => Just(None), 1 => (-5..300i64).prop_map(Some)];
    let tokens = prop_oneof![Just(0u32), Just(1u32), 0..5u32];
    let is_retry = prop::bool::weighted(0.2);
    (cost, 0..4usize, 0..HOMES, deadline, tokens, 0..OPERATIONS.len(), is_retry).prop_map(
        |(cost, criticality, home, deadline, tokens, operation, is_retry)| Asked {
            cost,
            criticality,
            home,
            deadline,
            tokens,
            operation,
            is_retry,
        },
    )
}

fn limit() -> impl Strategy<Value = f64> {
    let edge = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 10.0];
    prop_oneof![prop::sample::select(edge.to_vec()), 0.1..8.0f64]
}

fn max_wait() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..20u64, 1..500u64]
}

pub fn step() -> impl Strategy<Value = Step> {
    let home = 0..HOMES;
    let maybe_home = prop::option::of(home.clone());
    let index = any::<Index>;
    let pass = prop_oneof![2 => 0..10u64, 3 => 0..80u64, 1 => 0..2_000u64];
    let update = (
        prop::option::weighted(0.7, limit()),
        prop::option::weighted(0.3, 0..8usize),
        prop::option::weighted(0.3, max_wait()),
    );
    let release = (any::<Index>(), 0..3usize, 0..OPERATIONS.len());
    prop_oneof![
        15 => prop_oneof![
            2 => (asked(), any::<bool>()).prop_map(|(asked, named)| Step::TryAcquire(asked, named)),
            2 => asked().prop_map(Step::Admit),
            8 => asked().prop_map(Step::Acquire),
        ],
        20 => prop_oneof![
            8 => index().prop_map(Step::Claim),
            1 => index().prop_map(Step::ClaimStale),
            1 => index().prop_map(Step::Renew),
            2 => index().prop_map(Step::Cancel),
            1 => index().prop_map(Step::Unreached),
            8 => release.prop_map(|(which, outcome, operation)| {
                Step::Release { which, outcome, operation }
            }),
            1 => index().prop_map(Step::ReleaseStale),
            1 => index().prop_map(Step::Annul),
        ],
        13 => prop_oneof![
            2 => maybe_home.clone().prop_map(Step::Expire),
            4 => maybe_home.prop_map(Step::ExpireWhenDue),
            5 => pass.prop_map(Step::Pass),
            1 => (0..100u64).prop_map(Step::JumpBack),
            1 => home.clone().prop_map(Step::Block),
            2 => home.clone().prop_map(Step::Unblock),
        ],
        4 => prop_oneof![
            4 => update.prop_map(|(limit, max_waiting, max_wait)| {
                Step::Update { limit, max_waiting, max_wait }
            }),
            2 => (0..20u32).prop_map(Step::Refill),
            2 => any::<bool>().prop_map(Step::DryRun),
            2 => (home, prop::option::of(0..200u64))
                .prop_map(|(home, until)| Step::JoinDrain { home, until }),
            1 => index().prop_map(Step::ClaimDrain),
            1 => index().prop_map(Step::CancelDrain),
            1 => index().prop_map(Step::UnreachedDrain),
        ],
        1 => prop_oneof![9 => Just(Step::Refill(50)), 1 => Just(Step::Close), 1 => Just(Step::Reset)],
    ]
}

fn gate_limit() -> impl Strategy<Value = GateLimit> {
    let fixed = prop_oneof![Just(0.5), Just(1.0), Just(2.0), Just(5.0), 0.1..8.0f64];
    let gradient = (0.3..6.0f64).prop_map(|initial| {
        let min_limit = initial.min(1.0);
        GateLimit::Gradient(GradientConfig {
            initial,
            min_limit,
            max_limit: 8.0,
            latency_target: None,
        })
    });
    let aimd = (1..5u32).prop_map(|initial| {
        let range = AimdConfig { initial, min_limit: 1, max_limit: 8, ..AimdConfig::default() };
        let algorithm = Aimd::new(range).expect("it is within its ranges");
        GateLimit::Classic(Box::new(algorithm.into()), None)
    });
    let vegas = (1..5u32).prop_map(|initial| {
        let range = VegasConfig { initial, max_limit: 8, ..VegasConfig::default() };
        let algorithm = Vegas::new(range).expect("it is within its ranges");
        GateLimit::Classic(Box::new(algorithm.into()), None)
    });
    prop_oneof![6 => fixed.prop_map(GateLimit::Fixed), 2 => gradient, 1 => aimd, 1 => vegas]
}

pub fn config() -> impl Strategy<Value = GateConfig> {
    let share = prop_oneof![Just(0.0), Just(0.2), 0.0..0.4f64];
    let reserve = (share.clone(), share).prop_map(|(critical, plus)| {
        Reserve::none().with(Criticality::Critical, critical).with(Criticality::CriticalPlus, plus)
    });
    let reserve = prop_oneof![3 => Just(Reserve::none()), 1 => reserve];
    let max_waiting = prop::option::of(0..8usize);
    let max_wait = prop::option::weighted(0.4, max_wait());
    (gate_limit(), max_waiting, max_wait, reserve, any::<bool>(), any::<u64>()).prop_map(
        |(limit, max_waiting, max_wait, reserve, sheds_by_line, seed)| GateConfig {
            limit,
            max_waiting,
            max_wait: max_wait.map(Duration::from_millis),
            reserve,
            sheds_by_line,
            seed,
            ..GateConfig::default()
        },
    )
}

/// What one can do at a gate where all cost the same and nobody has a deadline.
#[derive(Clone, Debug)]
pub enum SimpleStep {
    TryAcquire(usize),
    Acquire(usize),
    Claim(Index),
    Cancel(Index),
    Release(Index),
    Limit(u64),
    /// In microseconds, so that the line stays healthy.
    Pass(u64),
}

pub fn simple_step() -> impl Strategy<Value = SimpleStep> {
    let index = any::<Index>;
    prop_oneof![
        2 => (0..4usize).prop_map(SimpleStep::TryAcquire),
        6 => (0..4usize).prop_map(SimpleStep::Acquire),
        5 => index().prop_map(SimpleStep::Claim),
        1 => index().prop_map(SimpleStep::Cancel),
        5 => index().prop_map(SimpleStep::Release),
        1 => (0..6u64).prop_map(SimpleStep::Limit),
        3 => (0..30u64).prop_map(SimpleStep::Pass),
    ]
}

/// How much later each comes, how critical he is, and how much time he gives, all in
/// milliseconds.
pub fn steps_in_line() -> impl Strategy<Value = Vec<(u64, usize, Option<u64>)>> {
    prop::collection::vec((0..100u64, 0..4usize, prop::option::of(0..300u64)), 1..40)
}

/// Somebody who comes, how much later, and how long his work takes, all in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub later: u64,
    pub service: u64,
    pub cost: u32,
    pub criticality: usize,
    pub deadline: Option<u64>,
    pub may_wait: bool,
    pub operation: usize,
    pub outcome: usize,
}

pub fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let cost = prop_oneof![4 => Just(1u32), 1 => 1..4u32];
    let deadline = prop::option::weighted(0.3, 1_000..500_000u64);
    let service = prop_oneof![3 => 1_000..50_000u64, 1 => 1..1_000_000u64];
    let outcome = prop_oneof![4 => Just(0usize), 1 => 0..3usize];
    let may_wait = prop::bool::weighted(0.9);
    let job = (0..20_000u64, service, cost, 0..4usize, deadline, may_wait, 0..3usize, outcome);
    let job = job.prop_map(
        |(later, service, cost, criticality, deadline, may_wait, operation, outcome)| Job {
            later,
            service,
            cost,
            criticality,
            deadline,
            may_wait,
            operation,
            outcome,
        },
    );
    prop::collection::vec(job, 1..200)
}

/// A moment that no sound clock shows.
fn odd_moment() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![Just(0), Just(1 << 32), Just(1 << 53), Just(1 << 63), Just(u64::MAX)];
    prop_oneof![
        (edge, 0..3u64, any::<bool>()).prop_map(|(edge, by, is_above)| {
            if is_above { edge.saturating_add(by) } else { edge.saturating_sub(by) }
        }),
        0..100_000_000u64,
        any::<u64>(),
    ]
}

#[derive(Clone, Copy, Debug)]
pub enum OddStep {
    Come { criticality: usize, home: u64, deadline: Option<u64> },
    Claim(Index),
    Cancel(Index),
    Release(Index, usize),
    Expire(Option<u64>),
    Update(f64),
    DryRun(bool),
}

/// What happens, and when.
pub fn odd_steps() -> impl Strategy<Value = Vec<(u64, OddStep)>> {
    let index = any::<Index>;
    let step = prop_oneof![
        8 => (0..4usize, 0..HOMES, prop::option::of(odd_moment())).prop_map(
            |(criticality, home, deadline)| OddStep::Come { criticality, home, deadline }
        ),
        6 => index().prop_map(OddStep::Claim),
        1 => index().prop_map(OddStep::Cancel),
        6 => (index(), 0..3usize).prop_map(|(which, outcome)| OddStep::Release(which, outcome)),
        3 => prop::option::of(0..HOMES).prop_map(OddStep::Expire),
        1 => limit().prop_map(OddStep::Update),
        1 => any::<bool>().prop_map(OddStep::DryRun),
    ];
    prop::collection::vec((odd_moment(), step), 1..80)
}
