//! The classic limiter: its limit follows what is given back, whatever is
//! admitted meanwhile is within it, and nothing is left at the end.

#![allow(clippy::expect_used, clippy::float_cmp, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate::primitives::limits::{
    Aimd, AimdConfig, Algorithm, Fixed, FixedConfig, Gradient, Gradient2, Gradient2Config,
    GradientConfig, LimitAlgorithm, Vegas, VegasConfig, WindowConfig,
};
use sluicegate::primitives::{
    Admission, Ask, Claim, ClassicLimiter, ConfigError, Home, Outcome, Permit, Ticket, Time,
    Waitable, Wakes,
};

#[derive(Clone, Debug)]
enum Step {
    TryAcquire { cost: u32 },
    Acquire { cost: u32, home: u64, max_wait: Option<u64> },
    Claim(Index),
    Cancel(Index),
    Release(Index, Outcome),
    Pass(u64),
    GoBack(u64),
    Expire,
    Update([u32; 2]),
}

fn step() -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![8 => Just(1_u32), 1 => 1..40_u32];
    let outcome = prop_oneof![
        6 => Just(Outcome::Success),
        1 => Just(Outcome::Ignored),
        2 => Just(Outcome::Overload),
    ];
    prop_oneof![
        6 => cost().prop_map(|cost| Step::TryAcquire { cost }),
        8 => (cost(), 0..3_u64, prop::option::of(0..200_u64))
            .prop_map(|(cost, home, max_wait)| Step::Acquire { cost, home, max_wait }),
        8 => any::<Index>().prop_map(Step::Claim),
        2 => any::<Index>().prop_map(Step::Cancel),
        12 => (any::<Index>(), outcome).prop_map(|(which, outcome)| Step::Release(which, outcome)),
        6 => prop_oneof![Just(0), 0..30_u64].prop_map(Step::Pass),
        1 => (0..100_u64).prop_map(Step::GoBack),
        2 => Just(Step::Expire),
        1 => [1..30_u32, 1..30_u32].prop_map(Step::Update),
    ]
}

fn made<A: Into<Algorithm>>(algorithm: Result<A, ConfigError>) -> Algorithm {
    algorithm.expect("in its range").into()
}

/// Every algorithm, from small limits on.
fn algorithm() -> impl Strategy<Value = Algorithm> {
    let aimd = AimdConfig { min_limit: 1, initial: 3, ..AimdConfig::default() };
    let vegas = VegasConfig { initial: 3, probe_multiplier: Some(2), ..VegasConfig::default() };
    let gradient =
        GradientConfig { initial: 3, probe_interval: Some(9), ..GradientConfig::default() };
    let gradient2 = Gradient2Config { min_limit: 1, initial: 3, ..Gradient2Config::default() };
    prop::sample::select(vec![
        made(Fixed::new(FixedConfig { limit: 3 })),
        made(Aimd::new(aimd)),
        made(Vegas::new(vegas)),
        made(Gradient::new(gradient)),
        made(Gradient2::new(gradient2)),
    ])
}

struct Player {
    limiter: ClassicLimiter<()>,
    now: u64,
    /// What happened at which latest moment.
    latest: Time,
    permits: Vec<Permit>,
    /// With their costs.
    tickets: Vec<(Ticket, u32)>,
}

impl Player {
    fn time(&self) -> Time {
        Time::from_nanos(self.now * 1_000_000)
    }

    fn play(&mut self, step: &Step) {
        let mut left = self.limiter.in_flight();
        match *step {
            Step::TryAcquire { cost } => {
                let ask = Ask::new(cost).expect("a cost in its range");
                self.permits.extend(self.limiter.try_acquire(self.time(), &ask).ok());
            }
            Step::Acquire { cost, home, max_wait } => {
                let mut ask = Ask::new(cost).expect("a cost in its range");
                ask.home = Some(Home(home));
                ask.max_wait = max_wait.map(Duration::from_millis);
                match self.limiter.acquire(self.time(), &ask, &mut Some(())) {
                    Admission::Admitted(permit) => self.permits.push(permit),
                    Admission::Waiting(ticket) => self.tickets.push((ticket, cost)),
                    Admission::Rejected(_) => {}
                }
            }
            Step::Claim(which) if !self.tickets.is_empty() => {
                let at = which.index(self.tickets.len());
                let (ticket, _) = self.tickets[at];
                let (claim, _) = self.limiter.claim(self.time(), ticket);
                match claim {
                    Claim::Admitted(permit) => {
                        self.permits.push(permit);
                        self.tickets.swap_remove(at);
                    }
                    Claim::Waiting => _ = self.limiter.renew(ticket, ()),
                    Claim::Rejected(_) => _ = self.tickets.swap_remove(at),
                }
            }
            Step::Cancel(which) if !self.tickets.is_empty() => {
                let at = which.index(self.tickets.len());
                let (ticket, _) = self.tickets.swap_remove(at);
                let _: Wakes<_> = self.limiter.cancel(self.time(), ticket);
            }
            Step::Release(which, outcome) if !self.permits.is_empty() => {
                let at = which.index(self.permits.len());
                let permit = self.permits.swap_remove(at);
                left -= u64::from(permit.cost());
                let learned = self.limiter.algorithm().clone();
                let _: Wakes<_> = self.limiter.release(self.time(), permit, outcome);
                assert!(outcome != Outcome::Ignored || *self.limiter.algorithm() == learned);
            }
            Step::Claim(_) | Step::Cancel(_) | Step::Release(..) => {}
            Step::Pass(millis) => self.now += millis,
            Step::GoBack(millis) => self.now = self.now.saturating_sub(millis),
            Step::Expire => _ = self.limiter.expire(self.time(), Some(Home(0))),
            Step::Update(mut range) => {
                range.sort_unstable();
                let answer = self.limiter.update(self.time(), range[0], range[1]);
                let is_fixed = matches!(self.limiter.algorithm(), Algorithm::Fixed(_));
                assert!(answer.is_ok() || is_fixed);
            }
        }
        self.check(left);
    }

    /// `left` was in flight before anybody was admitted.
    fn check(&mut self, left: u64) {
        let (limit, in_flight) = (self.limiter.limit(), self.limiter.in_flight());
        let (least, most) = self.limiter.algorithm().estimate().range();
        assert!((f64::from(least)..=f64::from(most)).contains(&limit));
        assert_eq!(limit, self.limiter.algorithm().limit());
        // Whoever comes in is within the limit of this moment, or alone.
        if in_flight > left {
            let permits = self.permits.iter().map(Permit::cost);
            let mut costs = permits.chain(self.tickets.iter().map(|&(_, cost)| cost));
            let is_alone = costs.any(|cost| u64::from(cost) == in_flight);
            assert!(in_flight as f64 <= limit || is_alone, "{in_flight} in flight, limit {limit}");
        }
        let held: u64 = self.permits.iter().map(|permit| u64::from(permit.cost())).sum();
        assert!(held <= in_flight);
        assert!(self.limiter.latest() >= self.latest);
        self.latest = self.limiter.latest();
        assert!(self.limiter.needs_time());
        assert!(!self.limiter.because().is_empty());
    }

    /// Everybody leaves.
    fn finish(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.tickets) {
            let _: Wakes<_> = self.limiter.cancel(self.time(), ticket);
        }
        for permit in std::mem::take(&mut self.permits) {
            let _: Wakes<_> = self.limiter.release(self.time(), permit, Outcome::Success);
        }
        assert_eq!(self.limiter.in_flight(), 0);
        assert_eq!(self.limiter.waiting(), 0);
        assert_eq!(self.limiter.next_expiry(), None);
        assert!(!self.limiter.has_unclaimed(None));
    }
}

fn config() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig { cases: if full { 10_000 } else { 500 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn admits_within_its_limit_and_leaves_nothing(
        algorithm in algorithm(),
        is_windowed in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let window = WindowConfig {
            min_duration: Duration::from_millis(20),
            max_duration: Duration::from_millis(50),
            min_samples: 2,
            min_rtt: Duration::ZERO,
        };
        let limiter = ClassicLimiter::new(algorithm, is_windowed.then_some(window));
        let mut player = Player {
            limiter: limiter.expect("in its range"),
            now: 1_000,
            latest: Time::ZERO,
            permits: Vec::new(),
            tickets: Vec::new(),
        };
        for step in &steps {
            player.play(step);
        }
        player.finish();
    }
}

fn aimd(window: Option<WindowConfig>) -> ClassicLimiter<u32> {
    let config = AimdConfig { initial: 4, min_limit: 1, ..AimdConfig::default() };
    ClassicLimiter::new(Aimd::new(config).expect("in its range"), window).expect("in its range")
}

fn millis(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn take(limiter: &mut ClassicLimiter<u32>, now: u64, count: usize) -> Vec<Permit> {
    (0..count).filter_map(|_| limiter.try_acquire(millis(now), &Ask::one()).ok()).collect()
}

fn join(limiter: &mut ClassicLimiter<u32>, now: u64, name: u32) -> Ticket {
    let mut ask = Ask::one();
    ask.home = Some(Home(0));
    match limiter.acquire(millis(now), &ask, &mut Some(name)) {
        Admission::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_flight_is_what_it_was_at_the_admission() {
    let mut limiter = aimd(None);
    let mut permits = take(&mut limiter, 0, 4);
    assert_eq!(permits.iter().map(Permit::in_flight).collect::<Vec<_>>(), [1, 2, 3, 4]);
    // The first one saw less than half in flight, and the last one all of it.
    let first = permits.remove(0);
    assert!(limiter.release(millis(5), first, Outcome::Success).is_empty());
    assert_eq!(limiter.limit(), 4.0);
    assert_eq!(limiter.because(), "aimd: less than half in flight, held");
    let last = permits.pop().expect("three are left");
    assert!(limiter.release(millis(5), last, Outcome::Success).is_empty());
    assert_eq!(limiter.limit(), 5.0);
    assert_eq!(limiter.because(), "aimd: half or more in flight, grown");
}

#[test]
fn who_has_room_by_a_grown_limit_is_admitted_at_once() {
    let mut limiter = aimd(None);
    let mut permits = take(&mut limiter, 0, 4);
    let tickets = [1, 2, 3].map(|name| join(&mut limiter, 0, name));
    let last = permits.pop().expect("four are held");
    let wakes = limiter.release(millis(5), last, Outcome::Success);
    assert_eq!(wakes.into_iter().map(|wake| wake.waiter).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((limiter.in_flight(), limiter.waiting()), (5, 1));
    let claims = tickets.map(|ticket| limiter.claim(millis(5), ticket).0);
    assert!(matches!(claims, [Claim::Admitted(_), Claim::Admitted(_), Claim::Waiting]));
}

#[test]
fn nobody_is_admitted_by_what_a_cut_takes_away() {
    let mut limiter = aimd(None);
    let mut permits = take(&mut limiter, 0, 4);
    join(&mut limiter, 0, 1);
    let last = permits.pop().expect("four are held");
    assert!(limiter.release(millis(5), last, Outcome::Overload).is_empty());
    assert_eq!((limiter.limit(), limiter.in_flight()), (3.0, 3));
    assert_eq!(limiter.because(), "aimd: overload, cut");
}

#[test]
fn the_time_in_line_is_not_part_of_a_sample() {
    let mut limiter = aimd(None);
    let mut permits = take(&mut limiter, 0, 4);
    let ticket = join(&mut limiter, 0, 1);
    let wakes = limiter.release(millis(9_000), permits.remove(0), Outcome::Ignored);
    assert_eq!(wakes.len(), 1);
    let (Claim::Admitted(permit), _) = limiter.claim(millis(9_000), ticket) else {
        panic!("it was granted")
    };
    // The time-out of 5 s counts from 9 s on.
    assert!(limiter.release(millis(13_000), permit, Outcome::Success).is_empty());
    assert_eq!(limiter.limit(), 5.0);
    assert!(limiter.release(millis(13_000), permits.remove(0), Outcome::Success).is_empty());
    assert_eq!(limiter.because(), "aimd: slower than the time-out, cut");
}

#[test]
fn a_window_is_one_sample() {
    let window = WindowConfig { min_samples: 3, ..WindowConfig::default() };
    let mut limiter = aimd(Some(window));
    let mut limits = BTreeMap::new();
    for turn in 0..40 {
        let now = turn * 100;
        for permit in take(&mut limiter, now, 4) {
            assert!(limiter.release(millis(now + 10), permit, Outcome::Success).is_empty());
        }
        limits.entry(limiter.limit().to_string()).or_insert(now);
    }
    // The first sample ends at 10 ms, and a window with the first one more than 1 s later.
    assert_eq!(
        limits,
        BTreeMap::from(
            [("4", 0), ("5", 1_100), ("6", 2_200), ("7", 3_300)]
                .map(|(limit, at)| (limit.to_string(), at))
        )
    );
}

#[test]
fn a_permit_from_before_a_reset_teaches_nothing() {
    let mut limiter = aimd(None);
    let permits = take(&mut limiter, 0, 4);
    assert!(limiter.reset().is_empty());
    for permit in permits {
        assert!(limiter.release(millis(5), permit, Outcome::Overload).is_empty());
    }
    assert_eq!((limiter.limit(), limiter.in_flight()), (4.0, 0));
    assert_eq!(limiter.because(), "aimd: initial");
    assert_eq!(take(&mut limiter, 5, 5).len(), 4);
}

#[test]
fn a_changed_range_admits_and_holds_back() {
    let mut limiter = aimd(None);
    let permits = take(&mut limiter, 0, 4);
    join(&mut limiter, 0, 1);
    assert_eq!(limiter.update(millis(1), 5, 9).expect("in its range").len(), 1);
    assert_eq!(
        (limiter.limit(), limiter.because().as_str()),
        (5.0, "aimd: the range was changed, grown")
    );
    assert!(limiter.update(millis(1), 0, 9).is_err());
    assert!(limiter.update(millis(1), 9, 8).is_err());
    assert!(limiter.update(millis(1), 1, 2).expect("in its range").is_empty());
    assert_eq!((limiter.limit(), limiter.in_flight()), (2.0, 5));
    drop(permits);
}
