//! A limiter that follows latency: whatever happens it keeps to its range, admits within its limit
//! and loses nothing; and in front of a service it does what it is for.

#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use sluicegate::primitives::gradient::Cause;
use sluicegate::primitives::{
    Admission, Ask, Claim, GradientConfig, GradientLimiter, Home, Outcome, Permit, Ticket, Time,
    Waitable, Wakes,
};

#[derive(Clone, Debug)]
enum Step {
    TryAcquire {
        cost: u32,
    },
    Acquire {
        cost: u32,
        home: u64,
    },
    Claim(prop::sample::Index),
    Cancel(prop::sample::Index),
    Release(prop::sample::Index, Outcome, Option<u8>),
    /// Everybody who can comes and goes, many times.
    Rush {
        turns: u16,
        nanos: u64,
        outcome: Outcome,
    },
    Pass(u64),
    GoBack(u64),
    Update {
        range: [f64; 2],
        target: Option<u64>,
    },
    Reset,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Success,
        Outcome::Success,
        Outcome::Ignored,
        Outcome::Overload,
    ])
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        0..1_000_000u64,
        0..1_000_000_000u64,
        0..100_000_000_000u64,
        Just(u64::MAX / 4),
        Just(u64::MAX),
    ]
}

fn limit() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.1), Just(1.0), 0.01..2.0f64, 1.0..100.0f64, Just(1e9), Just(1e-300)]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let cost = prop_oneof![6 => Just(1u32), 1 => 1..6u32, 1 => Just(1_000_000_000)];
    prop_oneof![
        6 => cost.clone().prop_map(|cost| Step::TryAcquire { cost }),
        3 => (cost, 0..3u64).prop_map(|(cost, home)| Step::Acquire { cost, home }),
        3 => index().prop_map(Step::Claim),
        1 => index().prop_map(Step::Cancel),
        8 => (index(), outcome(), prop::option::of(0..70u8))
            .prop_map(|(which, outcome, name)| Step::Release(which, outcome, name)),
        6 => (1..60u16, 0..1_000_000_000u64, outcome())
            .prop_map(|(turns, nanos, outcome)| Step::Rush { turns, nanos, outcome }),
        4 => span().prop_map(Step::Pass),
        1 => span().prop_map(Step::GoBack),
        1 => (prop::array::uniform2(limit()), prop::option::of(1..1_000_000_000u64))
            .prop_map(|(range, target)| Step::Update { range, target }),
        1 => Just(Step::Reset),
    ]
}

struct Player {
    limiter: GradientLimiter<()>,
    now: u64,
    permits: Vec<Permit>,
    /// Permits of an earlier life.
    strays: Vec<Permit>,
    tickets: Vec<(Ticket, u32)>,
}

impl Player {
    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn play(&mut self, step: &Step) {
        let mut left = self.limiter.in_flight();
        match *step {
            Step::TryAcquire { cost } => {
                let ask = Ask::new(cost).expect("a cost in its range");
                self.permits.extend(self.limiter.try_acquire(self.time(), &ask).ok());
            }
            Step::Acquire { cost, home } => {
                let mut ask = Ask::new(cost).expect("a cost in its range");
                ask.home = Some(Home(home));
                match self.limiter.acquire(self.time(), &ask, &mut Some(())) {
                    Admission::Admitted(permit) => self.permits.push(permit),
                    Admission::Waiting(ticket) => self.tickets.push((ticket, cost)),
                    Admission::Rejected(_) => {}
                }
            }
            Step::Claim(which) if !self.tickets.is_empty() => {
                let at = which.index(self.tickets.len());
                let (ticket, _) = self.tickets[at];
                match self.limiter.claim(self.time(), ticket).0 {
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
            Step::Release(which, outcome, name) if !self.permits.is_empty() => {
                let at = which.index(self.permits.len());
                let permit = self.permits.swap_remove(at);
                left -= u64::from(permit.cost());
                let name = name.map(|name| name.to_string());
                let time = self.time();
                let _: Wakes<_> = self.limiter.release(time, permit, name.as_deref(), outcome);
            }
            Step::Claim(_) | Step::Cancel(_) | Step::Release(..) => {}
            Step::Rush { turns, nanos, outcome } => {
                for _ in 0..turns {
                    self.rush(nanos, outcome);
                }
                left = self.limiter.in_flight();
            }
            Step::Pass(nanos) => self.now = self.now.saturating_add(nanos),
            Step::GoBack(nanos) => self.now = self.now.saturating_sub(nanos),
            Step::Update { mut range, target } => {
                range.sort_by(f64::total_cmp);
                let target = target.map(Duration::from_nanos);
                let answer = self.limiter.update(self.time(), range[0], range[1], target);
                let _: Wakes<_> = answer.expect("in its range");
            }
            Step::Reset => {
                drop(self.limiter.reset());
                self.strays.append(&mut self.permits);
                self.tickets.clear();
                (left, self.now) = (0, self.now.saturating_add(1));
                for permit in self.strays.drain(..) {
                    let time = Time::from_nanos(self.now);
                    assert!(self.limiter.release(time, permit, None, Outcome::Overload).is_empty());
                }
            }
        }
        self.check(left);
    }

    fn rush(&mut self, nanos: u64, outcome: Outcome) {
        let mut there = Vec::new();
        while there.len() < 25
            && let Ok(permit) = self.limiter.try_acquire(self.time(), &Ask::one())
        {
            there.push(permit);
        }
        self.now = self.now.saturating_add(nanos);
        for permit in there {
            let _: Wakes<_> = self.limiter.release(self.time(), permit, None, outcome);
        }
        self.check_limit();
    }

    fn check_limit(&self) {
        let (limit, config) = (self.limiter.limit(), self.limiter.config());
        assert!((config.min_limit..=config.max_limit).contains(&limit), "{limit}");
        let because = self.limiter.because();
        assert!(limit <= because.cap || limit == config.min_limit);
        for figure in [because.slowdown, because.significance, because.cap] {
            assert!(figure.is_finite(), "{because:?}");
        }
        assert!(because.slowdown >= 0.0);
        assert!(!because.to_string().is_empty());
    }

    /// `left` was in flight before anybody was admitted.
    fn check(&mut self, left: u64) {
        self.check_limit();
        let (limit, in_flight) = (self.limiter.limit(), self.limiter.in_flight());
        // Whoever comes in is within the limit of this moment, or alone.
        if in_flight > left {
            let permits = self.permits.iter().map(Permit::cost);
            let mut costs = permits.chain(self.tickets.iter().map(|&(_, cost)| cost));
            let is_alone = costs.any(|cost| u64::from(cost) == in_flight);
            assert!(in_flight as f64 <= limit || is_alone, "{in_flight} in flight, limit {limit}");
        }
        let held: u64 = self.permits.iter().map(|permit| u64::from(permit.cost())).sum();
        assert!(held <= in_flight);
        assert!(self.limiter.needs_time());
    }

    /// Everybody leaves.
    fn finish(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.tickets) {
            let _: Wakes<_> = self.limiter.cancel(self.time(), ticket);
        }
        for permit in std::mem::take(&mut self.permits) {
            let _: Wakes<_> = self.limiter.release(self.time(), permit, None, Outcome::Success);
        }
        assert_eq!(self.limiter.in_flight(), 0);
        assert_eq!(self.limiter.waiting(), 0);
        assert_eq!(self.limiter.next_expiry(), None);
        assert!(!self.limiter.has_unclaimed(None));
    }
}

fn cases() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig { cases: if full { 10_000 } else { 500 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn keeps_to_its_range_and_leaves_nothing(
        mut range in prop::array::uniform3(limit()),
        target in prop::option::of(1..1_000_000_000u64),
        steps in prop::collection::vec(step(), 1..100),
    ) {
        range.sort_by(f64::total_cmp);
        let config = GradientConfig {
            min_limit: range[0],
            initial: range[1],
            max_limit: range[2],
            latency_target: target.map(Duration::from_nanos),
        };
        let mut player = Player {
            limiter: GradientLimiter::new(config).expect("in its range"),
            now: 1_000,
            permits: Vec::new(),
            strays: Vec::new(),
            tickets: Vec::new(),
        };
        for step in &steps {
            player.play(step);
        }
        player.finish();
    }
}

/// Workers behind a limiter, who take one after another.
struct Service {
    limiter: GradientLimiter<()>,
    now: u64,
    workers: usize,
    busy: usize,
    line: VecDeque<(Permit, u64)>,
    ends: BTreeMap<u64, Vec<Permit>>,
    admitted: u64,
    rejected: u64,
}

const MILLI: u64 = 1_000_000;

impl Service {
    fn new(config: GradientConfig, workers: usize) -> Self {
        Self {
            limiter: GradientLimiter::new(config).expect("in its range"),
            now: 0,
            workers,
            busy: 0,
            line: VecDeque::new(),
            ends: BTreeMap::new(),
            admitted: 0,
            rejected: 0,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// One comes every so many µs for so many seconds, and takes so many ms.
    fn run(&mut self, seconds: u64, every: u64, takes: u64) -> &mut Self {
        (self.admitted, self.rejected) = (0, 0);
        let end = self.now + seconds * 1_000 * MILLI;
        let mut arrival = self.now;
        while arrival < end {
            while let Some((&at, _)) = self.ends.first_key_value().filter(|&(&at, _)| at <= arrival)
            {
                self.now = at;
                for permit in self.ends.remove(&at).expect("it is there") {
                    self.busy -= 1;
                    let time = self.time();
                    let _: Wakes<_> = self.limiter.release(time, permit, None, Outcome::Success);
                    self.start();
                }
            }
            self.now = arrival;
            match self.limiter.try_acquire(self.time(), &Ask::one()) {
                Ok(permit) => {
                    self.admitted += 1;
                    // Of uneven length, by a twentieth.
                    let uneven = takes * MILLI * (96 + self.admitted * 7 % 9) / 100;
                    self.line.push_back((permit, uneven));
                    self.start();
                }
                Err(_) => self.rejected += 1,
            }
            arrival += every * 1_000;
        }
        self
    }

    fn start(&mut self) {
        while self.busy < self.workers
            && let Some((permit, takes)) = self.line.pop_front()
        {
            self.busy += 1;
            self.ends.entry(self.now + takes).or_default().push(permit);
        }
    }

    fn limit(&self) -> f64 {
        self.limiter.limit()
    }

    fn hold(&mut self) -> Option<Permit> {
        self.limiter.try_acquire(self.time(), &Ask::one()).ok()
    }

    fn fill(&mut self) {
        while self.hold().is_some() {}
    }
}

#[test]
fn overload_neither_starves_nor_fills_a_service() {
    // Of 1,000 a second, with 2,000.
    let mut service = Service::new(GradientConfig::default(), 10);
    service.run(10, 500, 10);
    for _ in 0..60 {
        service.run(1, 500, 10);
        assert!(service.admitted >= 950, "{} of 1000", service.admitted);
        assert!(service.limit() <= 40.0, "a queue of three times the service");
    }
}

#[test]
fn what_has_become_slower_is_served_again() {
    // 200 a second, of 20 ms and then of 200 ms: that needs 40 in flight.
    let mut service = Service::new(GradientConfig::default(), 1_000);
    assert_eq!(service.run(60, 5_000, 20).rejected, 0);
    service.run(60, 5_000, 200);
    assert_eq!(service.run(60, 5_000, 200).rejected, 0);
    let because = service.limiter.because();
    let baseline = because.baseline.expect("it is known").as_secs_f64();
    assert!((0.19..0.21).contains(&baseline), "{because:?}");
}

#[test]
fn what_takes_12_seconds_is_served_again() {
    // 5 a second, of 4 s and then of 12 s.
    let mut service = Service::new(GradientConfig::default(), 1_000);
    service.run(300, 200_000, 4_000);
    service.run(300, 200_000, 12_000);
    assert_eq!(service.run(300, 200_000, 12_000).rejected, 0);
}

#[test]
fn an_idle_service_meets_a_burst_with_the_initial_limit() {
    let mut service = Service::new(GradientConfig::default(), 1_000);
    service.run(60, 500, 50);
    assert!(service.limit() > 100.0);
    service.run(59, 1_000_000, 50);
    // An hour later.
    service.now += 3_600_000 * MILLI;
    service.fill();
    assert_eq!((service.limiter.in_flight(), service.limit()), (20, 20.0));
    assert_eq!(service.limiter.because().cause, Cause::Peak);
}

#[test]
fn so_it_does_after_an_overload_long_ago() {
    let (mut limiter, mut now) = used();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 10, None, |_| Outcome::Overload);
    }
    assert_eq!(limiter.limit(), 1.0);
    let at = |seconds: u64| Time::from_nanos(now + seconds * 1_000 * MILLI);
    // Whoever comes now and then finds it as it was.
    for second in [30, 70, 110] {
        let permit = limiter.try_acquire(at(second), &Ask::one()).expect("the only one");
        let _: Wakes<_> = limiter.release(at(second), permit, None, Outcome::Ignored);
        assert_eq!(limiter.limit(), 1.0);
    }
    // So does whoever comes while something is in flight.
    let held = limiter.try_acquire(at(111), &Ask::one()).expect("the only one");
    assert!(limiter.try_acquire(at(1_000), &Ask::one()).is_err());
    let _: Wakes<_> = limiter.release(at(1_000), held, None, Outcome::Ignored);
    let permits = (0..30).filter_map(|_| limiter.try_acquire(at(5_000), &Ask::one()).ok());
    assert_eq!((permits.count(), limiter.because().cause), (4, Cause::Idle));
    assert_eq!(limiter.because().to_string(), "grown: nothing in flight of late");
}

#[test]
fn what_is_in_flight_for_long_is_not_forgotten() {
    let config = GradientConfig { initial: 100.0, min_limit: 1.0, ..GradientConfig::default() };
    let mut service = Service::new(config, 1_000);
    let held = (0..60).filter_map(|_| service.hold()).count();
    assert_eq!(held, 60);
    for _ in 0..20 {
        service.now += 60_000 * MILLI;
        assert!(service.hold().is_some());
        assert!(service.limiter.because().cap >= 240.0);
    }
}

#[test]
fn a_target_is_kept_whatever_the_baseline() {
    let target = |millis| GradientConfig {
        latency_target: Some(Duration::from_millis(millis)),
        ..GradientConfig::default()
    };
    // Overloaded, and a latency of 200 ms is fine: nothing is cut below it.
    let mut service = Service::new(target(200), 10);
    let mut lowest = f64::INFINITY;
    for _ in 0..60 {
        service.run(1, 500, 10);
        lowest = lowest.min(service.limit());
    }
    assert!(lowest >= 20.0);
    assert!((140.0..=230.0).contains(&service.limit()), "{}", service.limit());
    // What needs 10 ms is never fast enough: the queue is kept short, and no work is missed.
    let mut service = Service::new(target(5), 10);
    service.run(60, 500, 10);
    assert!((10.0..=15.0).contains(&service.limit()), "{}", service.limit());
    assert_eq!(service.limiter.because().cause, Cause::Target);
}

#[test]
fn a_limit_below_1_is_reached_and_left() {
    let config = GradientConfig { min_limit: 0.1, ..GradientConfig::default() };
    let mut limiter: GradientLimiter<()> = GradientLimiter::new(config).expect("in its range");
    let mut now = 0;
    let mut turn = |limiter: &mut GradientLimiter<()>, outcome| {
        if let Ok(permit) = limiter.try_acquire(Time::from_nanos(now), &Ask::one()) {
            now += 50 * MILLI;
            let _: Wakes<_> = limiter.release(Time::from_nanos(now), permit, None, outcome);
        }
        now += MILLI;
    };
    for _ in 0..200_000 {
        turn(&mut limiter, Outcome::Overload);
    }
    assert_eq!(limiter.limit(), 0.1);
    for _ in 0..200_000 {
        turn(&mut limiter, Outcome::Success);
    }
    assert!(limiter.limit() >= 1.0);
}

/// A limiter whose baseline is 10 ms, with everything given back.
fn used() -> (GradientLimiter<()>, u64) {
    let config = GradientConfig { initial: 4.0, ..GradientConfig::default() };
    let mut limiter = GradientLimiter::new(config).expect("in its range");
    let mut now = 0;
    for _ in 0..30 {
        window(&mut limiter, &mut now, 1, 10, None, |_| Outcome::Success);
    }
    let baseline = limiter.because().baseline;
    assert_eq!(baseline, Some(Duration::from_millis(10)));
    (limiter, now)
}

/// So many at once, 40 times in a row.
fn window(
    limiter: &mut GradientLimiter<()>,
    now: &mut u64,
    at_once: usize,
    millis: u64,
    operation: Option<&str>,
    outcome: impl Fn(usize) -> Outcome,
) {
    for turn in 0..40 {
        let permits: Vec<_> = (0..at_once)
            .filter_map(|_| limiter.try_acquire(Time::from_nanos(*now), &Ask::one()).ok())
            .collect();
        *now += millis * MILLI;
        for permit in permits {
            let time = Time::from_nanos(*now);
            let _: Wakes<_> = limiter.release(time, permit, operation, outcome(turn));
        }
    }
}

#[test]
fn what_strangers_give_up_teaches_nothing() {
    let (mut limiter, mut now) = used();
    let before = limiter.because();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 1, None, |_| Outcome::Ignored);
    }
    assert_eq!((limiter.limit(), limiter.because().cause), (4.0, before.cause));
    assert_eq!(limiter.because().recent, before.recent);
}

#[test]
fn what_is_given_up_after_long_is_overload() {
    let (mut limiter, mut now) = used();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 20, None, |_| Outcome::Ignored);
    }
    assert_eq!((limiter.limit(), limiter.because().cause), (1.0, Cause::Overload));
    // Between the two it is a sample, which is no reason to cut.
    let (mut limiter, mut now) = used();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 15, None, |_| Outcome::Ignored);
    }
    assert!(limiter.limit() > 4.0);
    assert_eq!(limiter.because().recent, Some(Duration::from_millis(15)));
}

/// What becomes of the limit if so many of 40 end in overload.
fn cut_by(overloads: usize) -> Option<f64> {
    let (mut limiter, mut now) = used();
    for _ in 0..400 {
        let before = limiter.limit();
        let permits: Vec<_> = (0..40)
            .filter_map(|_| limiter.try_acquire(Time::from_nanos(now), &Ask::one()).ok())
            .collect();
        now += 10 * MILLI;
        let many = permits.len();
        for (number, permit) in permits.into_iter().enumerate() {
            let is_overload = many == 40 && number < overloads;
            let outcome = if is_overload { Outcome::Overload } else { Outcome::Success };
            let _: Wakes<_> = limiter.release(Time::from_nanos(now), permit, None, outcome);
        }
        if limiter.because().cause == Cause::Overload {
            return Some(limiter.limit() / before);
        }
    }
    None
}

#[test]
fn overload_counts_once_a_window() {
    // From one in 20 on a cut of a tenth, and from a half on of a half, half of which is done.
    assert_eq!(cut_by(1), None);
    for (overloads, share) in [(4, 0.95), (12, 0.95), (36, 0.75)] {
        let cut = cut_by(overloads).expect("it is overload");
        assert!((cut - share).abs() < 1e-9, "{overloads}: {cut}");
    }
}

#[test]
fn more_of_a_slow_operation_is_no_overload() {
    let (mut limiter, mut now) = used();
    for _ in 0..3 {
        window(&mut limiter, &mut now, 1, 400, Some("report"), |_| Outcome::Success);
        window(&mut limiter, &mut now, 1, 10, Some("page"), |_| Outcome::Success);
    }
    let before = limiter.limit();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 400, Some("report"), |_| Outcome::Success);
    }
    assert!(limiter.limit() > before);
    assert_eq!(limiter.because().slowdown, 1.0);
    // The same without a name is.
    window(&mut limiter, &mut now, 4, 400, None, |_| Outcome::Success);
    assert!(limiter.because().slowdown > 10.0);
}

#[test]
fn the_time_in_line_is_not_part_of_a_sample() {
    let (mut limiter, mut now) = used();
    let mut ask = Ask::one();
    ask.home = Some(Home(0));
    for _ in 0..400 {
        let held: Vec<_> = (0..1_000)
            .map_while(|_| limiter.try_acquire(Time::from_nanos(now), &Ask::one()).ok())
            .collect();
        let Admission::Waiting(ticket) =
            limiter.acquire(Time::from_nanos(now), &ask, &mut Some(()))
        else {
            panic!("there is no room")
        };
        now += 10 * MILLI;
        for permit in held {
            let time = Time::from_nanos(now);
            let _: Wakes<_> = limiter.release(time, permit, None, Outcome::Success);
        }
        let (Claim::Admitted(permit), _) = limiter.claim(Time::from_nanos(now), ticket) else {
            panic!("it was granted")
        };
        assert_eq!(permit.waited(), Duration::from_millis(10));
        now += 10 * MILLI;
        let _: Wakes<_> = limiter.release(Time::from_nanos(now), permit, None, Outcome::Success);
    }
    assert_eq!(limiter.because().recent, Some(Duration::from_millis(10)));
    assert!(limiter.limit() > 4.0);
}

#[test]
fn what_was_learned_outlives_a_reset() {
    let (mut limiter, mut now) = used();
    for _ in 0..10 {
        window(&mut limiter, &mut now, 4, 10, None, |_| Outcome::Success);
    }
    let (limit, because) = (limiter.limit(), limiter.because());
    assert!(limit > 4.0);
    let permit = limiter.try_acquire(Time::from_nanos(now), &Ask::one()).expect("there is room");
    assert!(limiter.reset().is_empty());
    assert!(limiter.release(Time::from_nanos(now), permit, None, Outcome::Overload).is_empty());
    assert_eq!((limiter.limit(), limiter.because()), (limit, because));
    assert_eq!(limiter.in_flight(), 0);
}

#[test]
fn a_test_that_a_reset_or_an_update_ends_takes_nothing_away() {
    let until_test = || {
        let mut service = Service::new(GradientConfig::default(), 10_000);
        service.run(30, 1_000, 20);
        while service.limiter.because().cause != Cause::Test {
            service.run(1, 1_000, 400);
            assert!(service.now < 120_000 * MILLI, "there was no test");
        }
        service
    };
    let mut service = until_test();
    let trial = service.limit();
    assert!(service.limiter.reset().is_empty());
    assert!(service.limit() >= 2.0 * trial);
    let mut service = until_test();
    let trial = service.limit();
    let time = service.time();
    assert!(service.limiter.update(time, 1.0, 900.0, None).is_ok());
    assert!(service.limit() >= 2.0 * trial);
}

#[test]
fn bad_parameters_are_named() {
    let usual = GradientConfig::default();
    let wrong = |config| {
        let error = GradientLimiter::<()>::new(config).map(|_| ()).expect_err("it is wrong");
        error.parameter()
    };
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
        assert_eq!(wrong(GradientConfig { min_limit: limit, ..usual }), "min_limit");
        assert_eq!(wrong(GradientConfig { max_limit: limit, ..usual }), "max_limit");
        assert_eq!(wrong(GradientConfig { initial: limit, ..usual }), "initial");
    }
    assert_eq!(wrong(GradientConfig { max_limit: 19.0, ..usual }), "initial");
    let zero = GradientConfig { latency_target: Some(Duration::ZERO), ..usual };
    assert_eq!(wrong(zero), "latency_target");
    let (mut limiter, now) = used();
    let now = Time::from_nanos(now);
    let before = (limiter.limit(), *limiter.config());
    assert!(limiter.update(now, 5.0, 4.0, None).is_err());
    assert!(limiter.update(now, 1.0, f64::NAN, None).is_err());
    assert!(limiter.update(now, 1.0, 4.0, Some(Duration::ZERO)).is_err());
    assert_eq!((limiter.limit(), *limiter.config()), before);
}
