//! The limiter against a naive model of the same rules: whatever happens, both
//! answer the same.

#![allow(clippy::expect_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Answer, Model};
use proptest::prelude::*;
use sluicegate::primitives::{
    Admission, Ask, Claim, Criticality, Home, Outcome, Permit, SemaphoreLimiter, Ticket, Time,
    Waitable, Wakes,
};

#[derive(Clone, Debug)]
enum Step {
    TryAcquire { cost: u32, criticality: usize, home: Option<u64> },
    Acquire { cost: u32, criticality: usize, home: u64, max_wait: Option<u64> },
    Claim(prop::sample::Index),
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    Update(f64),
    Pass(u64),
    Expire(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    let home = 0..3u64;
    let cost = prop_oneof![4 => Just(1u32), 1 => 1..6u32];
    let limit = prop_oneof![
        Just(0.0),
        Just(0.25),
        Just(0.5),
        Just(1.0),
        Just(1.5),
        Just(2.0),
        Just(4.0),
        0.1..8.0f64
    ];
    prop_oneof![
        2 => (cost.clone(), 0..4usize, prop::option::of(home.clone()))
            .prop_map(|(cost, criticality, home)| Step::TryAcquire { cost, criticality, home }),
        6 => (cost, 0..4usize, home.clone(), prop::option::of(0..200u64)).prop_map(
            |(cost, criticality, home, max_wait)| Step::Acquire { cost, criticality, home, max_wait }
        ),
        6 => any::<prop::sample::Index>().prop_map(Step::Claim),
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        6 => any::<prop::sample::Index>().prop_map(Step::Release),
        1 => limit.prop_map(Step::Update),
        4 => (0..80u64).prop_map(Step::Pass),
        2 => prop::option::of(home).prop_map(Step::Expire),
    ]
}

/// Both sides, and what was handed out by them.
struct Pair {
    limiter: SemaphoreLimiter<usize>,
    model: Model,
    now: u64,
    next_name: usize,
    tickets: BTreeMap<usize, Ticket>,
    permits: BTreeMap<usize, Permit>,
    /// Signals that are on their way, and not used up by a claim.
    signalled: BTreeSet<usize>,
}

impl Pair {
    fn new(limit: f64) -> Self {
        Self {
            limiter: SemaphoreLimiter::new(limit).expect("a limit in its range"),
            model: Model::new(limit),
            now: 0,
            next_name: 0,
            tickets: BTreeMap::new(),
            permits: BTreeMap::new(),
            signalled: BTreeSet::new(),
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now * 1_000_000)
    }

    fn name(&mut self) -> usize {
        self.next_name += 1;
        self.next_name
    }

    fn wake(&mut self, wakes: Wakes<usize>) {
        for wake in wakes {
            assert_eq!(self.tickets.get(&wake.waiter), Some(&wake.ticket));
            assert!(self.signalled.insert(wake.waiter), "signalled twice");
        }
    }

    #[allow(clippy::too_many_lines)] // one arm a step
    fn play(&mut self, step: &Step) {
        match *step {
            Step::TryAcquire { cost, criticality, home } => {
                let ask = ask(cost, criticality, home, None);
                let name = self.name();
                let answer = match self.limiter.try_acquire(self.time(), &ask) {
                    Ok(permit) => {
                        self.permits.insert(name, permit);
                        Answer::Admitted
                    }
                    Err(_) => Answer::Rejected,
                };
                assert_eq!(answer, self.model.try_acquire(name, cost, criticality, home));
            }
            Step::Acquire { cost, criticality, home, max_wait } => {
                let ask = ask(cost, criticality, Some(home), max_wait);
                let name = self.name();
                let mut waiter = Some(name);
                let answer = match self.limiter.acquire(self.time(), &ask, &mut waiter) {
                    Admission::Admitted(permit) => {
                        self.permits.insert(name, permit);
                        Answer::Admitted
                    }
                    Admission::Waiting(ticket) => {
                        self.tickets.insert(name, ticket);
                        Answer::Waiting
                    }
                    Admission::Rejected(_) => Answer::Rejected,
                };
                assert_eq!(waiter.is_none(), answer == Answer::Waiting);
                assert_eq!(answer, self.model.acquire(name, cost, criticality, home, max_wait));
            }
            Step::Claim(which) => {
                let Some((name, ticket)) = pick(&self.tickets, which) else {
                    return;
                };
                let (claim, wakes) = self.limiter.claim(self.time(), ticket);
                let answer = match claim {
                    Claim::Admitted(permit) => {
                        self.permits.insert(name, permit);
                        Answer::Admitted
                    }
                    Claim::Waiting => {
                        // One that was not signalled still has what it waits with.
                        if self.signalled.contains(&name) {
                            assert!(self.limiter.renew(ticket, name).is_ok());
                        }
                        Answer::Waiting
                    }
                    Claim::Rejected(_) => Answer::Rejected,
                };
                self.signalled.remove(&name);
                self.wake(wakes);
                if answer != Answer::Waiting {
                    self.tickets.remove(&name);
                    self.signalled.remove(&name);
                }
                assert_eq!(answer, self.model.claim(name));
            }
            Step::Cancel(which) => {
                let Some((name, ticket)) = pick(&self.tickets, which) else {
                    return;
                };
                self.tickets.remove(&name);
                self.signalled.remove(&name);
                let wakes = self.limiter.cancel(self.time(), ticket);
                self.wake(wakes);
                self.model.cancel(name);
                // A ticket that is over is worth nothing, for ever.
                let (claim, _) = self.limiter.claim(self.time(), ticket);
                assert!(matches!(claim, Claim::Rejected(_)));
            }
            Step::Release(which) => {
                let names: Vec<_> = self.permits.keys().copied().collect();
                if names.is_empty() {
                    return;
                }
                let name = names[which.index(names.len())];
                let permit = self.permits.remove(&name).expect("it is there");
                let wakes = self.limiter.release(self.time(), permit, Outcome::Success);
                self.wake(wakes);
                self.model.release(name);
            }
            Step::Update(limit) => {
                let wakes = self.limiter.update(self.time(), limit).expect("in its range");
                self.wake(wakes);
                self.model.update(limit);
            }
            Step::Pass(millis) => {
                self.now += millis;
                self.model.pass(millis);
            }
            Step::Expire(home) => {
                let wakes = self.limiter.expire(self.time(), home.map(Home));
                self.wake(wakes);
                self.model.expire(home);
            }
        }
        self.compare();
    }

    fn compare(&self) {
        assert_eq!(self.limiter.in_flight(), self.model.in_flight());
        assert_eq!(self.limiter.waiting(), self.model.waiting());
        let next = self.limiter.next_expiry().map(Time::as_nanos);
        assert_eq!(next, self.model.next_expiry());
        // Nobody who was answered waits for a signal that was never sent.
        for name in self.model.answered() {
            assert!(self.signalled.contains(&name), "{name} was answered and not signalled");
        }
    }

    fn finish(mut self) {
        // Whatever happened, all can be given back and nothing is left.
        let wakes = self.limiter.update(self.time(), 100.0).expect("in its range");
        self.wake(wakes);
        while let Some((&name, _)) = self.permits.iter().next() {
            let permit = self.permits.remove(&name).expect("it is there");
            let wakes = self.limiter.release(self.time(), permit, Outcome::Success);
            self.wake(wakes);
        }
        while let Some((&name, &ticket)) = self.tickets.iter().next() {
            self.tickets.remove(&name);
            self.signalled.remove(&name);
            let wakes = self.limiter.cancel(self.time(), ticket);
            self.wake(wakes);
        }
        assert_eq!(self.limiter.in_flight(), 0);
        assert_eq!(self.limiter.waiting(), 0);
        assert_eq!(self.limiter.next_expiry(), None);
        assert!(!self.limiter.has_unclaimed(None));
    }
}

fn ask(cost: u32, criticality: usize, home: Option<u64>, max_wait: Option<u64>) -> Ask {
    let mut ask = Ask::new(cost).expect("a cost in its range");
    ask.criticality = Criticality::ALL[criticality];
    ask.home = home.map(Home);
    ask.max_wait = max_wait.map(Duration::from_millis);
    ask
}

fn pick(tickets: &BTreeMap<usize, Ticket>, which: prop::sample::Index) -> Option<(usize, Ticket)> {
    let tickets: Vec<_> = tickets.iter().map(|(&name, &ticket)| (name, ticket)).collect();
    (!tickets.is_empty()).then(|| tickets[which.index(tickets.len())])
}

fn config() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig { cases: if full { 10_000 } else { 1_000 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn answers_like_the_model(
        limit in prop_oneof![Just(0.5), Just(1.0), Just(2.0), Just(3.0), 0.1..5.0f64],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(limit);
        for step in &steps {
            pair.play(step);
        }
        pair.finish();
    }
}
