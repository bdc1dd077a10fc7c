use std::time::Duration;

use proptest::sample::Index;
use sluicegate::primitives::{
    Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home, LimitUpdate,
    Outcome, Permit, Reason, Ticket, Time, Waitable, Wakes,
};

use crate::steps::SimpleStep;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Admitted,
    Waiting,
    Rejected(Reason),
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    name: usize,
    criticality: usize,
    until: Option<u64>,
    answer: Answer,
}

/// The rules for who all cost the same, with a list and no cleverness. Names grow, so
/// that they are also the order of arrival.
struct Naive {
    limit: u64,
    max_waiting: usize,
    max_wait: Option<u64>,
    now: u64,
    held: u64,
    waiters: Vec<Waiter>,
}

impl Naive {
    fn in_flight(&self) -> u64 {
        self.held + self.with(Answer::Admitted).count() as u64
    }

    fn with(&self, answer: Answer) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(move |waiter| waiter.answer == answer)
    }

    /// Of whom the first in line is the most critical, and of these the oldest.
    fn look(&mut self) {
        for waiter in &mut self.waiters {
            let is_over = waiter.until.is_some_and(|until| until <= self.now);
            if waiter.answer == Answer::Waiting && is_over {
                waiter.answer = Answer::Rejected(Reason::Wait);
            }
        }
        while self.in_flight() < self.limit {
            let first = { self.waiters.iter_mut() }
                .filter(|waiter| waiter.answer == Answer::Waiting)
                .max_by_key(|waiter| (waiter.criticality, std::cmp::Reverse(waiter.name)));
            let Some(first) = first else { break };
            first.answer = Answer::Admitted;
        }
    }

    fn try_acquire(&mut self, criticality: usize) -> Answer {
        self.look();
        let is_behind = self.with(Answer::Waiting).any(|other| other.criticality >= criticality);
        if is_behind || self.in_flight() >= self.limit {
            return Answer::Rejected(Reason::Limit);
        }
        self.held += 1;
        Answer::Admitted
    }

    fn acquire(&mut self, name: usize, criticality: usize) -> Answer {
        if self.try_acquire(criticality) == Answer::Admitted {
            return Answer::Admitted;
        }
        if self.max_waiting == 0 || self.max_wait == Some(0) {
            return Answer::Rejected(Reason::Limit);
        }
        if self.with(Answer::Waiting).count() >= self.max_waiting {
            let last = { self.waiters.iter_mut() }
                .filter(|waiter| waiter.answer == Answer::Waiting)
                .min_by_key(|waiter| (waiter.criticality, std::cmp::Reverse(waiter.name)));
            match last.filter(|last| last.criticality < criticality) {
                Some(last) => last.answer = Answer::Rejected(Reason::Evicted),
                None => return Answer::Rejected(Reason::Full),
            }
        }
        let until = self.max_wait.map(|max_wait| self.now + max_wait);
        self.waiters.push(Waiter { name, criticality, until, answer: Answer::Waiting });
        Answer::Waiting
    }

    fn claim(&mut self, name: usize) -> Answer {
        self.look();
        let place = self.waiters.iter().position(|waiter| waiter.name == name);
        let place = place.expect("it is there");
        let answer = self.waiters[place].answer;
        if answer != Answer::Waiting {
            self.waiters.remove(place);
            self.held += u64::from(answer == Answer::Admitted);
        }
        answer
    }
}

/// A gate and the naive one.
pub struct Pair {
    gate: Gate<usize>,
    naive: Naive,
    next_name: usize,
    permits: Vec<Permit>,
    tickets: Vec<(usize, Ticket)>,
}

impl Pair {
    /// `max_wait` is in units of 10 µs.
    pub fn new(limit: u64, max_waiting: usize, max_wait: Option<u64>) -> Self {
        let max_wait = max_wait.map(|max_wait| max_wait * 10_000);
        let config = GateConfig {
            limit: GateLimit::Fixed(limit as f64),
            max_waiting: Some(max_waiting),
            sheds_by_line: false,
            max_wait: max_wait.map(Duration::from_nanos),
            ..GateConfig::default()
        };
        Self {
            gate: Gate::new(config).expect("it is within its ranges"),
            naive: Naive { limit, max_waiting, max_wait, now: 0, held: 0, waiters: Vec::new() },
            next_name: 0,
            permits: Vec::new(),
            tickets: Vec::new(),
        }
    }

    pub fn play(&mut self, step: &SimpleStep) {
        let now = Time::from_nanos(self.naive.now);
        match *step {
            SimpleStep::TryAcquire(criticality) => {
                let (answer, wakes) = self.gate.try_acquire(now, &ask(criticality), &mut ());
                let answer = match answer {
                    Ok(permit) => self.keep(permit),
                    Err(rejection) => Answer::Rejected(rejection.reason),
                };
                assert_eq!(answer, self.naive.try_acquire(criticality));
                self.wake(wakes);
            }
            SimpleStep::Acquire(criticality) => {
                self.next_name += 1;
                let name = self.next_name;
                let (answer, wakes) =
                    self.gate.acquire(now, &ask(criticality), &mut (), &mut Some(name));
                let answer = match answer {
                    GateAdmission::Admitted(permit) => self.keep(permit),
                    GateAdmission::Waiting(ticket) => {
                        self.tickets.push((name, ticket));
                        Answer::Waiting
                    }
                    GateAdmission::Rejected(rejection) => Answer::Rejected(rejection.reason),
                };
                assert_eq!(answer, self.naive.acquire(name, criticality));
                self.wake(wakes);
            }
            SimpleStep::Claim(which) => {
                let Some(place) = pick(which, self.tickets.len()) else { return };
                let (name, ticket) = self.tickets[place];
                let (answer, wakes) = self.gate.claim(now, ticket);
                let answer = match answer {
                    GateClaim::Admitted(permit) => self.keep(permit),
                    GateClaim::Waiting => Answer::Waiting,
                    GateClaim::Rejected(rejection) => Answer::Rejected(rejection.reason),
                    GateClaim::Unknown => panic!("it is known"),
                };
                if answer != Answer::Waiting {
                    self.tickets.remove(place);
                }
                assert_eq!(answer, self.naive.claim(name));
                self.wake(wakes);
            }
            SimpleStep::Cancel(which) => {
                let Some(place) = pick(which, self.tickets.len()) else { return };
                let (name, ticket) = self.tickets.remove(place);
                let wakes = self.gate.cancel(now, ticket);
                self.naive.look();
                self.naive.waiters.retain(|waiter| waiter.name != name);
                self.naive.look();
                self.wake(wakes);
            }
            SimpleStep::Release(which) => {
                let Some(place) = pick(which, self.permits.len()) else { return };
                let permit = self.permits.remove(place);
                let wakes = self.gate.release(now, permit, None, Outcome::Ignored);
                self.naive.held -= 1;
                self.naive.look();
                self.wake(wakes);
            }
            SimpleStep::Limit(limit) => {
                let wakes =
                    self.gate.update(now, Some(LimitUpdate::Hold(limit as f64)), None, None);
                self.naive.limit = limit;
                self.naive.look();
                self.wake(wakes.expect("it is in its range"));
            }
            SimpleStep::Pass(micros) => self.naive.now += micros * 1_000,
        }
        assert_eq!(self.gate.in_flight(), self.naive.in_flight());
        assert_eq!(self.gate.waiting(), self.naive.with(Answer::Waiting).count());
        let ends = self.naive.with(Answer::Waiting).filter_map(|waiter| waiter.until).min();
        if let Some(end) = ends {
            assert_eq!(self.gate.next_expiry(), Some(Time::from_nanos(end)));
        }
        let waiting = self.naive.with(Answer::Waiting).map(|waiter| waiter.name);
        let mut unwoken: Vec<_> = self.gate.waiters().copied().collect();
        unwoken.sort_unstable();
        assert_eq!(unwoken, waiting.collect::<Vec<_>>(), "who waits is who was not woken");
    }

    fn keep(&mut self, permit: Permit) -> Answer {
        self.permits.push(permit);
        Answer::Admitted
    }

    /// Whoever was woken has an answer, or has heard it.
    fn wake(&self, wakes: Wakes<usize>) {
        for wake in wakes {
            let waiter = self.naive.waiters.iter().find(|waiter| waiter.name == wake.waiter);
            assert!(waiter.is_none_or(|waiter| waiter.answer != Answer::Waiting), "for nothing");
        }
    }
}

fn pick(which: Index, of: usize) -> Option<usize> {
    (of > 0).then(|| which.index(of))
}

fn ask(criticality: usize) -> GateAsk<'static> {
    let mut ask = GateAsk::one();
    ask.ask.criticality = Criticality::ALL[criticality];
    ask.ask.home = Some(Home(1));
    ask
}
