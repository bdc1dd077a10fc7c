//! The priority threshold, in front of plants that are simulated in virtual time.

#![allow(clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::primitives::{Criticality, Position, Priority, Threshold, Time};

const CAPACITY: f64 = 1_000.0;

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What the threshold stands in front of: says how much pressure its work makes.
trait Plant {
    fn work(&mut self, now: f64);
    fn pressure(&mut self, now: f64) -> f64;
}

/// How much is admitted, over about `tau` seconds, by what can be done; no more than
/// `most`, as a processor cannot be busier than busy.
struct Proportional {
    tau: f64,
    most: f64,
    last: f64,
    admitted: f64,
}

impl Proportional {
    fn new(tau: f64, most: f64) -> Self {
        Self { tau, most, last: 0.0, admitted: 0.0 }
    }
}

impl Plant for Proportional {
    fn work(&mut self, now: f64) {
        self.pressure(now);
        self.admitted += 1.0 / self.tau / CAPACITY;
    }

    fn pressure(&mut self, now: f64) -> f64 {
        self.admitted *= ((self.last - now) / self.tau).exp();
        self.last = now;
        self.admitted.min(self.most)
    }
}

/// A queue: how long one waits in it, by 0.1 s.
struct Queue {
    last: f64,
    waiting: f64,
}

impl Plant for Queue {
    fn work(&mut self, now: f64) {
        self.pressure(now);
        // No more than a second of work waits: the queue rejects of its own.
        self.waiting = (self.waiting + 1.0).min(CAPACITY);
    }

    fn pressure(&mut self, now: f64) -> f64 {
        self.waiting = (self.waiting - (now - self.last) * CAPACITY).max(0.0);
        self.last = now;
        self.waiting / CAPACITY / 0.1
    }
}

/// How the decisions of one criticality went within a span.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    arrived: [u32; 4],
    admitted: [u32; 4],
}

impl Counts {
    fn admitted_share(&self, class: Criticality) -> f64 {
        let class = class.index();
        f64::from(self.admitted[class]) / f64::from(self.arrived[class])
    }

    fn throughput(&self, seconds: f64) -> f64 {
        f64::from(self.admitted.iter().sum::<u32>()) / seconds
    }
}

struct World<P> {
    now: f64,
    threshold: Threshold,
    plant: P,
    random: Random,
    /// The shares of the criticalities.
    mix: [f64; 4],
    /// (moment, pressure, rate), at each evaluation.
    record: Vec<(f64, f64, f64)>,
}

impl<P: Plant> World<P> {
    fn new(plant: P, seed: u64) -> Self {
        let (threshold, random) = (Threshold::new(), Random(seed));
        let mix = [0.25, 0.25, 0.25, 0.25];
        Self { now: 0.0, threshold, plant, random, mix, record: Vec::new() }
    }

    fn of(mut self, mix: [f64; 4]) -> Self {
        self.mix = mix;
        self
    }

    fn class(&mut self) -> Criticality {
        let mut draw = self.random.unit();
        for class in Criticality::ALL {
            draw -= self.mix[class.index()];
            if draw < 0.0 {
                return class;
            }
        }
        Criticality::default()
    }

    /// Plays so many seconds of so many times the capacity.
    fn play(&mut self, seconds: f64, load: f64) -> Counts {
        let (end, mut counts) = (self.now + seconds, Counts::default());
        loop {
            self.now += -(1.0 - self.random.unit()).ln() / (load * CAPACITY);
            if self.now >= end {
                self.now = end;
                return counts;
            }
            let now = Time::from_secs_f64(self.now);
            if self.threshold.is_due(now) {
                let pressure = self.plant.pressure(self.now);
                self.threshold.update(now, pressure);
                self.record.push((self.now, pressure, self.threshold.rate()));
            }
            let class = self.class();
            let priority = Priority::new(class, Position::random(self.random.unit()));
            counts.arrived[class.index()] += 1;
            if self.threshold.admits(now, priority) {
                counts.admitted[class.index()] += 1;
                self.plant.work(self.now);
            }
        }
    }

    /// The lowest, the mean and the highest pressure since a moment.
    fn pressure_since(&self, moment: f64) -> (f64, f64, f64) {
        let since = self.record.iter().filter(|(at, ..)| *at >= moment);
        let (mut least, mut most, mut sum, mut count) = (f64::MAX, 0.0_f64, 0.0, 0.0);
        for (_, pressure, _) in since {
            least = least.min(*pressure);
            most = most.max(*pressure);
            sum += pressure;
            count += 1.0;
        }
        (least, sum / count, most)
    }

    /// How long after a moment the rate came to 0 for good.
    fn recovery_since(&self, moment: f64) -> f64 {
        let last = self.record.iter().rev().find(|(.., rate)| *rate > 0.0);
        last.map_or(0.0, |(at, ..)| (at - moment).max(0.0))
    }
}

const LOADS: [f64; 3] = [1.2, 2.0, 5.0];

#[test]
fn without_pressure_everything_is_admitted() {
    let mut world = World::new(Proportional::new(0.5, f64::MAX), 1);
    let counts = world.play(60.0, 0.8);
    assert_eq!(counts.arrived, counts.admitted);
    assert_eq!(world.threshold.threshold(), Priority::LOWEST);
}

#[test]
fn pressure_settles_at_its_target_without_ringing() {
    for (tau, load) in [0.3, 0.5, 1.0].into_iter().flat_map(|tau| LOADS.map(|load| (tau, load))) {
        for seed in 1..=3 {
            let mut world = World::new(Proportional::new(tau, f64::MAX), seed);
            world.play(5.0, 0.8);
            world.play(5.0, load);
            let settled = world.now;
            let counts = world.play(30.0, load);
            let (least, mean, most) = world.pressure_since(settled);
            let said = format!("{load} times for {tau} s: {least} {mean} {most}, {counts:?}");
            assert!(least > 0.85 && most < 1.15 && (0.97..1.03).contains(&mean), "{said}");
            // What can be done is done.
            assert!((0.97..1.03).contains(&(counts.throughput(30.0) / CAPACITY)), "{said}");
        }
    }
}

#[test]
fn a_queue_stays_near_its_target_and_never_runs_dry() {
    for (load, seed) in LOADS.into_iter().flat_map(|load| (1..=4).map(move |seed| (load, seed))) {
        let mut world = World::new(Queue { last: 0.0, waiting: 0.0 }, seed);
        world.play(5.0, 0.8);
        world.play(5.0, load);
        let settled = world.now;
        let counts = world.play(30.0, load);
        let (least, mean, _) = world.pressure_since(settled);
        assert!(least > 0.0 && (0.9..1.1).contains(&mean), "{load}: {least} {mean}");
        assert!((0.98..1.02).contains(&(counts.throughput(30.0) / CAPACITY)), "{load}");
    }
}

#[test]
fn what_matters_least_is_rejected_first() {
    for load in LOADS {
        let mut world = World::new(Proportional::new(0.5, f64::MAX), 3);
        world.play(10.0, load);
        let counts = world.play(20.0, load);
        let mut room = 1.0 / load;
        for class in Criticality::ALL.into_iter().rev() {
            let fits = (room / 0.25_f64).clamp(0.0, 1.0);
            room -= 0.25 * fits;
            let admitted = counts.admitted_share(class);
            assert!((admitted - fits).abs() < 0.1, "{load}, {class:?}: {admitted} of {fits}");
        }
    }
}

#[test]
fn low_work_gets_what_high_work_leaves() {
    let mut world = World::new(Proportional::new(0.5, f64::MAX), 5).of([0.8, 0.0, 0.2, 0.0]);
    world.play(10.0, 2.0);
    let counts = world.play(20.0, 2.0);
    assert!(counts.admitted_share(Criticality::Critical) > 0.999, "{counts:?}");
    // 1.6 times the capacity asks for the 0.6 that are left.
    let admitted = counts.admitted_share(Criticality::Sheddable);
    assert!((admitted - 0.375).abs() < 0.02, "{admitted}");
}

#[test]
fn the_rate_rises_gradually() {
    let mut world = World::new(Proportional::new(0.3, f64::MAX), 1);
    world.play(5.0, 0.8);
    world.play(10.0, 5.0);
    for pair in world.record.windows(2) {
        let ((before, _, lower), (after, _, higher)) = (pair[0], pair[1]);
        assert!(higher - lower <= after - before + 1e-9, "{pair:?}");
    }
}

#[test]
fn it_comes_back_within_two_seconds_and_leaves_no_tail() {
    for (load, after) in LOADS.into_iter().flat_map(|load| [0.1, 0.5, 0.7].map(|low| (load, low))) {
        let mut world = World::new(Proportional::new(0.3, f64::MAX), 2);
        world.play(20.0, load);
        let over = world.now;
        world.play(2.0, after);
        let counts = world.play(30.0, after);
        let recovery = world.recovery_since(over);
        assert!(recovery < 1.8, "from {load} to {after}: {recovery} s");
        assert_eq!(counts.arrived, counts.admitted);
    }
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn critical(draw: f64) -> Priority {
    Priority::new(Criticality::Critical, Position::random(draw))
}

/// One whose rate is this, as of the moment that is returned: under the pressure that this
/// takes, evaluated at such decisions.
fn at_rate(rate: f64, mut priority: impl FnMut() -> Priority) -> (Threshold, u64) {
    let (mut threshold, mut now) = (Threshold::new(), 0);
    while (threshold.rate() - rate).abs() > 0.002 || now < 10_000 {
        now += 1;
        if threshold.is_due(at(now)) {
            threshold.update(at(now), 1.0 + 2.0 * (rate - threshold.rate()));
        }
        threshold.admits(at(now), priority());
    }
    (threshold, now)
}

/// The share that is rejected of so many decisions, one each millisecond, while pressure
/// is at its target.
fn rejected(
    threshold: &mut Threshold,
    now: u64,
    count: u32,
    mut priority: impl FnMut() -> Priority,
) -> f64 {
    let mut rejected = 0;
    for step in 1..=u64::from(count) {
        let now = at(now + step);
        if threshold.is_due(now) {
            threshold.update(now, 1.0);
        }
        rejected += u32::from(!threshold.admits(now, priority()));
    }
    f64::from(rejected) / f64::from(count)
}

#[test]
fn within_one_criticality_the_share_that_is_rejected_is_the_rate() {
    for rate in [0.1, 0.3, 0.6, 0.9] {
        let mut random = Random(11);
        let mut any = || critical(random.unit());
        let (mut threshold, now) = at_rate(rate, &mut any);
        let share = rejected(&mut threshold, now, 20_000, &mut any);
        assert!((share - rate).abs() < 0.03, "{share} of {rate}");
        assert_eq!(threshold.level(), Criticality::Critical);
        // Who is rejected is who stands low.
        let edge = Priority::new(Criticality::Critical, Position::random(rate));
        assert!(!threshold.admits(at(now), critical(0.0)), "{edge:?}");
        assert!(threshold.admits(at(now), critical(0.999)));
    }
}

#[test]
fn one_caller_who_is_much_of_the_load_is_rejected_in_part() {
    // One stands at 0.3 of the way and makes 40 % of the decisions, the others are many.
    for (rate, hot_share) in [(0.1, 0.0), (0.3, 0.3), (0.5, 0.8), (0.7, 1.0)] {
        let mut random = Random(12);
        let mut any = || {
            let is_hot = random.unit() < 0.4;
            critical(if is_hot { 0.3 } else { random.unit() })
        };
        let (mut threshold, now) = at_rate(rate, &mut any);
        let share = rejected(&mut threshold, now, 20_000, &mut any);
        assert!((share - rate).abs() < 0.03, "{share} of {rate}");
        let hot = rejected(&mut threshold, now + 20_000, 50, || critical(0.3));
        assert!((hot - hot_share).abs() < 0.2, "{hot} of {hot_share} at {rate}");
    }
    // And one who is all of it.
    let (mut threshold, now) = at_rate(0.3, || critical(0.5));
    let share = rejected(&mut threshold, now, 10_000, || critical(0.5));
    assert!((share - 0.3).abs() < 0.01, "{share}");
}

#[test]
fn few_decisions_are_rejected_at_the_rate_too() {
    let (mut before, mut after, mut rejected) = (Random(13), Random(14), 0);
    let (mut threshold, mut now) = at_rate(0.3, || critical(before.unit()));
    for _ in 0..4_000 {
        now += 400; // 2.5 a second
        threshold.update(at(now), 1.0);
        rejected += u32::from(!threshold.admits(at(now), critical(after.unit())));
    }
    let share = f64::from(rejected) / 4_000.0;
    assert!((share - 0.3).abs() < 0.03, "{share}");
}

#[test]
fn an_idle_hour_is_no_memory() {
    let mut random = Random(15);
    let (mut threshold, now) = at_rate(0.9, || critical(random.unit()));
    let later = at(now + 3_600_000);
    assert!(threshold.is_due(later));
    threshold.update(later, 9.0);
    assert!(threshold.admits(later, Priority::LOWEST));
    assert!(threshold.rate() < 0.11, "{}", threshold.rate());
}

#[test]
fn seldom_evaluations_are_no_more_abrupt() {
    let mut threshold = Threshold::new();
    threshold.update(at(0), 0.0);
    let mut last = 0.0;
    for step in 1..20 {
        threshold.update(at(step * 5_000), 100.0);
        assert!(threshold.rate() <= last + 0.2501, "{last} to {}", threshold.rate());
        last = threshold.rate();
    }
    assert!((last - 0.95).abs() < 1e-9, "{last}");
}

#[test]
fn what_is_a_little_too_much_is_not_for_ever() {
    let mut threshold = Threshold::new();
    for step in 0..10_000 {
        threshold.update(at(step), 1.01);
    }
    assert!(threshold.rate() > 0.1, "{}", threshold.rate());
}

#[test]
fn it_is_due_each_tenth_of_a_second() {
    let mut threshold = Threshold::new();
    assert!(threshold.is_due(at(0)));
    threshold.update(at(1_000), 0.5);
    assert!(!threshold.is_due(at(1_099)) && threshold.is_due(at(1_100)));
    // A clock that goes back stands still.
    assert!(!threshold.is_due(at(0)));
    threshold.update(at(1_100), f64::NAN);
    assert!(!threshold.is_due(at(1_100)));
}

#[test]
fn pressure_that_is_no_number_changes_nothing() {
    let mut random = Random(16);
    let (mut threshold, now) = at_rate(0.5, || critical(random.unit()));
    let (rate, place) = (threshold.rate(), threshold.threshold());
    threshold.update(at(now + 100), f64::NAN);
    assert!((threshold.rate() - rate).abs() < 1e-12);
    assert_eq!(threshold.threshold(), place);
    threshold.reset();
    assert_eq!(
        (threshold.level(), threshold.threshold()),
        (Criticality::Sheddable, Priority::LOWEST)
    );
}

fn cases() -> ProptestConfig {
    let full = std::env::var("SLUICEGATE_TEST_FULL").is_ok_and(|value| value == "1");
    let cases = if full { 2_000 } else { 200 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn nothing_is_too_odd(
        steps in prop::collection::vec(
            (any::<u64>(), prop_oneof![any::<f64>(), 0.0..3.0], 0_usize..4, any::<u32>()),
            1..300,
        ),
        step in prop_oneof![Just(u64::MAX), Just(1_u64 << 30), Just(1_u64 << 25)],
    ) {
        let (mut threshold, mut clock, mut latest) = (Threshold::new(), 0_u64, 0);
        for (moment, pressure, class, bits) in steps {
            clock = clock.saturating_add(moment % step);
            let nanos = if moment % 50 == 0 { moment } else { clock };
            latest = latest.max(nanos);
            let now = Time::from_nanos(nanos);
            let priority = Priority::new(Criticality::ALL[class], Position::from_bits(bits));
            threshold.update(now, pressure);
            let rate = threshold.rate();
            prop_assert!((0.0..=0.95 + 1e-9).contains(&rate), "{rate}");
            let (place, admits) = (threshold.threshold(), threshold.admits(now, priority));
            prop_assert!(priority <= place || admits);
            prop_assert!(priority >= place || !admits);
            prop_assert!(rate > 0.0 || admits);
        }
        // Two seconds of calm admit everything, whatever was before.
        let end = Time::from_nanos(latest);
        for tenth in 1..=20 {
            threshold.update(end.after(Duration::from_millis(100 * tenth)), 0.5);
        }
        let has_time = latest < u64::MAX - 2_000_000_000;
        prop_assert!(!has_time || threshold.admits(end, Priority::LOWEST), "{threshold:?}");
    }
}
