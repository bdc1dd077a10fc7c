//! The token bucket against a naive model of the same rules in rational arithmetic, against
//! the crate `governor`, and against what it promises.

#![allow(clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use model::{Answer, Model, PERS, Tariff};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use sluicegate::primitives::{
    ConfigError, Home, Reason, Taking, Ticket, Time, TokenAsk, TokenBucket, Waitable, Wakes,
};

#[derive(Clone, Debug)]
enum Step {
    TryTake(i64),
    Take { cost: i64, max_wait: Option<i64> },
    Claim(Index),
    Cancel(Index),
    Adjust(i64),
    Pause(i64),
    Update { rate: Option<i64>, burst: Option<i64> },
    Pass(i64),
    Expire,
}

/// In nano-tokens.
fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => (1..6i64).prop_map(|tokens| tokens * 1_000_000_000),
        2 => (1..60i64).prop_map(|tenths| tenths * 100_000_000),
        1 => 1..4_000_000_000i64,
        1 => 1..4i64,
    ]
}

/// In thousandths of a token.
fn rate() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(1_000i64),
        Just(3_000),
        Just(10_000),
        Just(1_000_000_000),
        Just(1),
        Just(300),
        1..100_000i64
    ]
}

fn tariff() -> impl Strategy<Value = Tariff> {
    (rate(), prop::sample::select(PERS.as_slice()), cost()).prop_map(|(rate, per, burst)| Tariff {
        rate: rate.into(),
        per,
        burst: burst.into(),
    })
}

/// In nanoseconds.
fn span() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => (0..50i64).prop_map(|tenths| tenths * 100_000_000),
        2 => 0..3_000_000_000i64,
        1 => 0..3i64,
        1 => Just(1_000_000_000_000_000_000i64),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => cost().prop_map(Step::TryTake),
        6 => (cost(), prop::option::weighted(0.4, span()))
            .prop_map(|(cost, max_wait)| Step::Take { cost, max_wait }),
        5 => any::<Index>().prop_map(Step::Claim),
        2 => any::<Index>().prop_map(Step::Cancel),
        1 => (-6_000_000_000..6_000_000_000i64).prop_map(Step::Adjust),
        1 => (0..5_000_000_000i64).prop_map(Step::Pause),
        1 => (prop::option::of(rate()), prop::option::of(cost()))
            .prop_map(|(rate, burst)| Step::Update { rate, burst }),
        6 => span().prop_map(Step::Pass),
        3 => Just(Step::Expire),
    ]
}

fn tokens(nano: i128) -> f64 {
    nano as f64 / 1e9
}

fn ask(nano: i128, max_wait: Option<i128>) -> TokenAsk {
    let mut ask = TokenAsk::new(tokens(nano)).expect("an amount in its range");
    ask.home = Some(Home(0));
    ask.max_wait = max_wait.map(|nanos| Duration::from_nanos(nanos as u64));
    ask
}

fn bucket(tariff: Tariff) -> TokenBucket<usize> {
    let (rate, per) = (tariff.rate as f64 / 1e3, tariff.per as f64 / 1e9);
    TokenBucket::new(rate, per, Some(tokens(tariff.burst))).expect("a tariff in its range")
}

/// Both sides, and what was handed out by them.
struct Pair {
    bucket: TokenBucket<usize>,
    model: Model,
    tariff: Tariff,
    next_name: usize,
    tickets: BTreeMap<usize, Ticket>,
    costs: BTreeMap<usize, i128>,
    /// Signals that are on their way, and not used up by a claim.
    signalled: BTreeSet<usize>,
    /// When something was taken, and how much.
    taken: BTreeMap<usize, (i128, i128)>,
}

impl Pair {
    fn new(tariff: Tariff) -> Self {
        Self {
            bucket: bucket(tariff),
            model: Model::new(tariff),
            tariff,
            next_name: 0,
            tickets: BTreeMap::new(),
            costs: BTreeMap::new(),
            signalled: BTreeSet::new(),
            taken: BTreeMap::new(),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.model.now as u64)
    }

    fn note(&mut self, name: usize) {
        self.taken.insert(name, (self.model.now, self.costs[&name]));
    }

    fn wake(&mut self, wakes: Wakes<usize>) {
        for wake in wakes {
            assert_eq!(self.tickets.get(&wake.waiter), Some(&wake.ticket));
            assert!(self.signalled.insert(wake.waiter), "signalled twice");
        }
    }

    fn play(&mut self, step: &Step) {
        let now = self.now();
        match *step {
            Step::TryTake(cost) => {
                let cost = cost.into();
                let name = self.name(cost);
                let (answer, wakes) = if self.bucket.is_home_wanted() {
                    self.bucket.try_take_behind(now, &ask(cost, None))
                } else {
                    (self.bucket.try_take(now, &ask(cost, None)), Wakes::none())
                };
                self.wake(wakes);
                let answer = match answer {
                    Ok(true) => Answer::Taken,
                    Ok(false) => Answer::Refused,
                    Err(error) => impossible(&error),
                };
                assert_eq!(answer, self.model.try_take(cost));
                if answer == Answer::Taken {
                    self.note(name);
                }
            }
            Step::Take { cost, max_wait } => {
                let (cost, max_wait) = (cost.into(), max_wait.map(i128::from));
                let name = self.name(cost);
                let mut waiter = Some(name);
                let (take, wakes) = self.bucket.take(now, &ask(cost, max_wait), &mut waiter);
                self.wake(wakes);
                let answer =
                    take.map_or_else(|error| impossible(&error), |take| self.answer(name, take));
                assert_eq!(waiter.is_none(), answer == Answer::Waiting);
                assert_eq!(answer, self.model.take(name, cost, max_wait));
            }
            Step::Claim(which) => {
                let Some((name, ticket)) = self.pick(which) else {
                    return;
                };
                let (take, wakes) = self.bucket.claim(now, ticket);
                self.wake(wakes);
                self.signalled.remove(&name);
                let answer = self.answer(name, take);
                if answer == Answer::Waiting {
                    assert!(self.bucket.renew(ticket, name).is_ok());
                } else {
                    self.tickets.remove(&name);
                }
                assert_eq!(answer, self.model.claim(name));
            }
            Step::Cancel(which) => {
                let Some((name, ticket)) = self.pick(which) else {
                    return;
                };
                self.tickets.remove(&name);
                self.signalled.remove(&name);
                let wakes = self.bucket.cancel(now, ticket);
                self.wake(wakes);
                self.model.cancel(name);
                // A ticket that is over is worth nothing, for ever.
                let (take, _) = self.bucket.claim(now, ticket);
                assert_eq!(take, Taking::Refused(Reason::Closed));
            }
            Step::Adjust(nano) => {
                let adjusted = self.bucket.adjust(now, tokens(nano.into()));
                self.wake(adjusted.expect("in its range"));
                self.model.adjust(nano.into());
            }
            Step::Pause(nanos) => {
                let wakes = self.bucket.pause(now, Duration::from_nanos(nanos as u64));
                self.wake(wakes);
                self.model.pause(nanos.into());
            }
            Step::Update { rate, burst } => {
                let rate_as_float = rate.map(|rate| rate as f64 / 1e3);
                let burst_as_float = burst.map(|burst| tokens(burst.into()));
                let updated = self.bucket.update(now, rate_as_float, burst_as_float);
                self.wake(updated.expect("in its range"));
                self.tariff.rate = rate.map_or(self.tariff.rate, i128::from);
                self.tariff.burst = burst.map_or(self.tariff.burst, i128::from);
                self.model.update(self.tariff);
            }
            Step::Pass(nanos) => self.model.pass(nanos.into()),
            Step::Expire => {
                let wakes = self.bucket.expire(now, None);
                self.wake(wakes);
                self.model.expire();
            }
        }
        self.compare();
    }

    fn name(&mut self, cost: i128) -> usize {
        self.next_name += 1;
        self.costs.insert(self.next_name, cost);
        self.next_name
    }

    fn answer(&mut self, name: usize, take: Taking) -> Answer {
        match take {
            Taking::Taken { .. } => {
                self.taken.entry(name).or_insert((self.model.now, self.costs[&name]));
                Answer::Taken
            }
            Taking::Waiting(ticket) => {
                self.tickets.insert(name, ticket);
                Answer::Waiting
            }
            Taking::Refused(reason) => {
                assert_eq!(reason, Reason::Wait);
                Answer::Refused
            }
        }
    }

    fn pick(&self, which: Index) -> Option<(usize, Ticket)> {
        let tickets: Vec<_> = self.tickets.iter().map(|(&name, &ticket)| (name, ticket)).collect();
        (!tickets.is_empty()).then(|| tickets[which.index(tickets.len())])
    }

    fn compare(&self) {
        let now = self.now();
        let (ours, exact) = (self.bucket.tokens(now), self.model.level());
        assert!((ours - exact).abs() <= 1e-12 * exact.abs().max(1.0), "{ours} for {exact}");
        assert_eq!(self.bucket.waiting(), self.model.waiting());
        // What is overdue is due at once.
        let next = self.bucket.next_expiry().map(|at| at.max(now).as_nanos());
        let expected = self.model.next_expiry().map(|at| at.max(self.model.now) as u64);
        assert_eq!(next, expected);
        for cost in [1, 1_000_000_000, 2_500_000_000] {
            let retry_after = self.bucket.retry_after(now, &ask(cost, None)).ok();
            let expected = self.model.retry_after(cost);
            assert_eq!(retry_after.map(|span| span.as_nanos().cast_signed()), expected);
        }
        for name in self.model.answered() {
            assert!(self.signalled.contains(&name), "{name} was answered and not signalled");
        }
    }

    fn finish(mut self) {
        while let Some((&name, &ticket)) = self.tickets.iter().next() {
            self.tickets.remove(&name);
            self.signalled.remove(&name);
            let wakes = self.bucket.cancel(self.now(), ticket);
            self.wake(wakes);
        }
        // A debt of a fast rate is paid by a slow one in thousands of years.
        let wakes = self.bucket.update(self.now(), Some(1e6), None).expect("in its range");
        self.wake(wakes);
        self.model.now += 1_000_000_000_000_000_000;
        assert!(self.bucket.tokens(self.now()) >= self.bucket.burst());
        assert_eq!(self.bucket.waiting(), 0);
        assert_eq!(self.bucket.next_expiry(), None);
        assert!(!self.bucket.has_unclaimed(None));
    }
}

/// Whoever leaves early makes room for others sooner.
fn without_max_wait(step: Step) -> Step {
    match step {
        Step::Take { cost, .. } => Step::Take { cost, max_wait: None },
        step => step,
    }
}

fn impossible(error: &ConfigError) -> Answer {
    assert_eq!(error.parameter(), "n");
    Answer::Impossible
}

fn config() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig {
        cases: if full { 10_000 } else { 1_000 },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn answers_like_the_model(
        tariff in tariff(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(tariff);
        for step in &steps {
            pair.play(step);
        }
        pair.finish();
    }

    #[test]
    fn answers_like_governor(
        // One token comes in so many nanoseconds.
        interval in prop_oneof![1..1_000u64, Just(1_000_000), 1..10_000_000_000u64],
        burst in 1..1_000u32,
        steps in prop::collection::vec((1..50u32, 0..30_000u64, any::<bool>()), 1..200),
    ) {
        let clock = FakeRelativeClock::default();
        let quota = Quota::with_period(Duration::from_nanos(interval)).expect("more than 0")
            .allow_burst(NonZeroU32::new(burst).expect("more than 0"));
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let per = interval as f64 / 1e9;
        let mut bucket = TokenBucket::<()>::new(1.0, per, Some(f64::from(burst))).expect("in range");
        let mut now = 0;
        for (n, thousandths, is_small) in steps {
            let passed = if is_small { thousandths } else { interval * thousandths / 1_000 };
            now += passed;
            clock.advance(Duration::from_nanos(passed));
            let ask = TokenAsk::new(f64::from(n)).expect("in its range");
            let time = Time::from_nanos(now);
            let retry_after = bucket.retry_after(time, &ask).ok();
            let ours = bucket.try_take(time, &ask);
            match oracle.check_n(NonZeroU32::new(n).expect("more than 0")) {
                Err(_) => prop_assert!(ours.is_err()),
                Ok(Ok(())) => {
                    prop_assert_eq!(ours, Ok(true));
                    prop_assert_eq!(retry_after, Some(Duration::ZERO));
                }
                Ok(Err(not_until)) => {
                    prop_assert_eq!(ours, Ok(false));
                    prop_assert_eq!(retry_after, Some(not_until.wait_time_from(clock.now())));
                }
            }
        }
    }

    /// Grants count when they are granted; those that are cancelled do not.
    #[test]
    fn no_window_holds_more_than_the_burst_and_the_rate(
        tariff in tariff(),
        steps in prop::collection::vec(
            step().prop_filter("the tariff stays", |step| {
                !matches!(step, Step::Adjust(_) | Step::Update { .. })
            }),
            1..150,
        ),
    ) {
        let mut pair = Pair::new(tariff);
        for step in &steps {
            let before: BTreeSet<_> = pair.signalled.iter().copied().collect();
            let cancelled: BTreeSet<_> = pair.tickets.keys().copied().collect();
            pair.play(step);
            let granted: Vec<_> = pair.signalled.difference(&before).copied().collect();
            for name in granted {
                let is_granted = pair.model.is_granted(name);
                if is_granted {
                    pair.note(name);
                }
            }
            if matches!(step, Step::Cancel(_)) {
                for name in cancelled.iter().filter(|name| !pair.tickets.contains_key(name)) {
                    pair.taken.remove(name);
                }
            }
        }
        let mut taken: Vec<_> = pair.taken.values().copied().collect();
        taken.sort_unstable();
        for first in 0..taken.len() {
            let mut sum = 0;
            for &(at, cost) in &taken[first..] {
                sum += cost;
                // burst + rate · W, times the period, in millionths of nano-tokens.
                let span = at - taken[first].0;
                let most = tariff.burst * tariff.per + tariff.rate * 1_000_000 * span;
                prop_assert!(sum * tariff.per <= most, "{} in {} ns", sum, span);
            }
        }
    }

    /// Whatever becomes of those who wait on several loops, some of them blocked: what a grant
    /// took that is given up at once is put back to the last billionth.
    #[test]
    fn no_token_is_lost_on_the_way(
        steps in prop::collection::vec((0..6u8, 0..3u64, cost(), any::<Index>(), 0..90u64), 1..150),
    ) {
        let mut bucket = TokenBucket::new(10.0, 1.0, Some(6.0)).expect("in range");
        let (mut now, mut waiting) = (Time::ZERO, Vec::<(Ticket, u64)>::new());
        for (step, home, cost, which, millis) in steps {
            let mut asked = ask(cost.into(), which.index(2).eq(&0).then_some(200_000_000));
            asked.home = Some(Home(home));
            let wakes = match step {
                0 => bucket.try_take_behind(now, &asked).1,
                1 | 2 => {
                    let (taking, wakes) = bucket.take(now, &asked, &mut Some(0));
                    if let Ok(Taking::Waiting(ticket)) = taking {
                        waiting.push((ticket, home));
                    }
                    wakes
                }
                3 => bucket.expire(now, Some(Home(home))),
                _ if waiting.is_empty() => Wakes::none(),
                4 => {
                    let place = which.index(waiting.len());
                    let (taking, wakes) = bucket.claim(now, waiting[place].0);
                    if !matches!(taking, Taking::Waiting(_)) {
                        waiting.swap_remove(place);
                    }
                    wakes
                }
                _ => {
                    let (ticket, _) = waiting.swap_remove(which.index(waiting.len()));
                    bucket.cancel(now, ticket)
                }
            };
            // A wake in seven does not reach its loop.
            for wake in wakes.into_iter().filter(|_| which.index(7) == 0) {
                let _ = bucket.unreached(now, wake.ticket, wake.waiter);
            }
            now = now.after(Duration::from_millis(millis));
            let tokens = bucket.tokens(now);
            prop_assert!((0.0..=6.0).contains(&tokens), "{}", tokens);
        }
        for (ticket, _) in waiting {
            let _ = bucket.cancel(now, ticket);
        }
        prop_assert_eq!(bucket.waiting(), 0);
        for n in [6.0, -6.0] {
            let _ = bucket.adjust(now, n).expect("in range");
        }
        let before = bucket.tokens(now).to_bits();
        let mut asked = ask(2_500_000_001, None);
        asked.home = Some(Home(9));
        for _ in 0..2 {
            let (taking, _) = bucket.take(now, &asked, &mut Some(0));
            let Ok(Taking::Waiting(ticket)) = taking else {
                return Err(TestCaseError::fail(format!("{taking:?}")));
            };
            prop_assert_eq!(bucket.adjust(now, 6.0).expect("in range").len(), 1);
            let _ = bucket.cancel(now, ticket);
            let _ = bucket.adjust(now, -6.0).expect("in range");
            prop_assert_eq!(bucket.tokens(now).to_bits(), before);
        }
    }

    /// At the moment that `retry_after` says, and not a nanosecond before; with others in
    /// line at most a nanosecond later for each.
    #[test]
    fn retry_after_is_exact(
        tariff in tariff(),
        steps in prop::collection::vec(step().prop_map(without_max_wait), 0..60),
        cost in cost(),
    ) {
        for is_too_early in [true, false] {
            let mut pair = Pair::new(tariff);
            for step in &steps {
                pair.play(step);
            }
            let cost = i128::from(cost).min(pair.tariff.burst);
            let retry_after = pair.bucket.retry_after(pair.now(), &ask(cost, None)).expect("it fits");
            pair.play(&Step::Expire);
            let behind = pair.bucket.waiting() as u64;
            let then = if is_too_early {
                pair.now().after(retry_after.saturating_sub(Duration::from_nanos(1)))
            } else {
                pair.now().after(retry_after + Duration::from_nanos(behind))
            };
            while let Some(due) = pair.bucket.next_expiry().filter(|&due| due <= then) {
                let due = due.max(pair.now());
                let _ = pair.bucket.expire(due, None);
            }
            let (taken, _) = pair.bucket.try_take_behind(then, &ask(cost, None));
            prop_assert_eq!(taken, Ok(!is_too_early || retry_after.is_zero()));
        }
    }
}

fn at_millis(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn waits(
    bucket: &mut TokenBucket<usize>,
    now: Time,
    n: f64,
    home: u64,
    max_wait: Option<Duration>,
) -> Ticket {
    let mut ask = TokenAsk::new(n).expect("in range");
    (ask.home, ask.max_wait) = (Some(Home(home)), max_wait);
    match bucket.take(now, &ask, &mut Some(0)) {
        (Ok(Taking::Waiting(ticket)), _) => ticket,
        other => panic!("{other:?} does not wait"),
    }
}

#[test]
fn what_a_blocked_loop_does_not_claim_goes_elsewhere() {
    let mut bucket = TokenBucket::new(1.0, 1.0, Some(1.0)).expect("in range");
    assert_eq!(bucket.try_take(Time::ZERO, &TokenAsk::one()), Ok(true));
    let blocked = waits(&mut bucket, Time::ZERO, 1.0, 1, None);
    let free = waits(&mut bucket, Time::ZERO, 1.0, 2, None);
    let wakes: Vec<_> = bucket.expire(at_millis(1_000), Some(Home(2))).into_iter().collect();
    assert_eq!(wakes.iter().map(|wake| wake.ticket).collect::<Vec<_>>(), [blocked]);
    assert_eq!(bucket.next_expiry(), Some(at_millis(1_050)));
    let wakes: Vec<_> = bucket.expire(at_millis(1_050), Some(Home(2))).into_iter().collect();
    assert_eq!(wakes.iter().map(|wake| wake.ticket).collect::<Vec<_>>(), [free]);
    let taken = Taking::Taken { waited: Duration::from_millis(1_050) };
    assert_eq!(bucket.claim(at_millis(1_050), free).0, taken);
    assert_eq!(bucket.snapshot(at_millis(1_050)).revoked, 1);
    // It kept its place, and has the next. What came while nobody claimed is lost: it came
    // on top of a full bucket.
    assert_eq!(bucket.claim(at_millis(1_051), blocked).0, Taking::Waiting(blocked));
    assert_eq!(bucket.next_expiry(), Some(at_millis(2_050)));
}

#[test]
fn a_grant_that_is_given_up_puts_back_only_what_was_not_refilled() {
    let mut bucket = TokenBucket::new(1.0, 1.0, Some(1.0)).expect("in range");
    assert_eq!(bucket.try_take(Time::ZERO, &TokenAsk::one()), Ok(true));
    let ticket = waits(&mut bucket, Time::ZERO, 1.0, 1, None);
    assert_eq!(bucket.expire(at_millis(1_000), None).len(), 1);
    // Half of it is there again, in place of half of the grant.
    let _ = bucket.cancel(at_millis(1_500), ticket);
    assert_eq!(bucket.tokens(at_millis(1_500)).to_bits(), 1.0_f64.to_bits());
    assert_eq!(bucket.try_take(at_millis(1_500), &TokenAsk::one()), Ok(true));
    assert_eq!(bucket.try_take(at_millis(1_500), &TokenAsk::new(1e-9).expect("n")), Ok(false));
}

#[test]
fn who_waits_for_more_than_a_lowered_burst_is_served_into_debt() {
    let mut bucket = TokenBucket::new(1.0, 1.0, Some(10.0)).expect("in range");
    assert_eq!(bucket.try_take(Time::ZERO, &TokenAsk::new(10.0).expect("n")), Ok(true));
    let large = waits(&mut bucket, Time::ZERO, 8.0, 1, None);
    let small = waits(&mut bucket, Time::ZERO, 1.0, 1, None);
    let _ = bucket.update(Time::ZERO, None, Some(2.0)).expect("in range");
    let error = bucket.try_take(Time::ZERO, &TokenAsk::new(8.0).expect("n"));
    assert_eq!(
        error.expect_err("above the burst").to_string(),
        "n must be a number of tokens from 1e-9 to the burst, got 8 with a burst of 2"
    );
    assert_eq!(bucket.next_expiry(), Some(at_millis(2_000)));
    assert_eq!(bucket.expire(at_millis(2_000), None).len(), 1);
    assert!(matches!(bucket.claim(at_millis(2_000), large).0, Taking::Taken { .. }));
    assert_eq!(bucket.tokens(at_millis(2_000)).to_bits(), (-6.0_f64).to_bits());
    assert_eq!(bucket.next_expiry(), Some(at_millis(9_000)));
    assert_eq!(bucket.expire(at_millis(9_000), None).len(), 1);
    assert!(matches!(bucket.claim(at_millis(9_000), small).0, Taking::Taken { .. }));
}

#[test]
fn a_wait_ends_at_its_bound_to_the_nanosecond() {
    let mut bucket = TokenBucket::new(1.0, 1.0, Some(1.0)).expect("in range");
    assert_eq!(bucket.try_take(Time::ZERO, &TokenAsk::one()), Ok(true));
    let second = Duration::from_secs(1);
    let early = Duration::from_nanos(999_999_999);
    let too_short = waits(&mut bucket, Time::ZERO, 1.0, 1, Some(early));
    let _ = bucket.expire(at_millis(0).after(early), None);
    assert_eq!(bucket.claim(at_millis(0).after(early), too_short).0, Taking::Refused(Reason::Wait));
    // What comes at the last moment comes too late: the bound is not part of the wait.
    let at_the_end = waits(&mut bucket, at_millis(0).after(early), 1.0, 1, Some(second));
    let _ = bucket.expire(at_millis(1_000), None);
    assert!(matches!(bucket.claim(at_millis(1_000), at_the_end).0, Taking::Taken { .. }));
    let both = waits(&mut bucket, at_millis(1_000), 1.0, 1, Some(second));
    let _ = bucket.expire(at_millis(2_000), None);
    assert_eq!(bucket.claim(at_millis(2_000), both).0, Taking::Refused(Reason::Wait));
    assert_eq!(bucket.snapshot(at_millis(2_000)).rejected[Reason::Wait.index()], 2);
}

#[test]
fn a_reset_gives_unclaimed_grants_up_and_keeps_the_rest() {
    let mut bucket = TokenBucket::new(1.0, 1.0, Some(4.0)).expect("in range");
    assert_eq!(bucket.try_take(Time::ZERO, &TokenAsk::new(4.0).expect("n")), Ok(true));
    let ticket = waits(&mut bucket, Time::ZERO, 1.0, 1, None);
    assert_eq!(bucket.expire(at_millis(1_000), None).len(), 1);
    let _ = bucket.reset();
    assert_eq!(bucket.claim(at_millis(1_000), ticket).0, Taking::Refused(Reason::Closed));
    assert_eq!(bucket.tokens(at_millis(1_000)).to_bits(), 1.0_f64.to_bits());
    assert!(!bucket.has_unclaimed(None));
}
