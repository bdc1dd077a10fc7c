use std::collections::{BTreeMap, BTreeSet};

const PATIENCE: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Admitted,
    Waiting,
    Rejected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Granted { at: u64, order: usize },
    Refused,
}

#[derive(Clone, Debug)]
struct Waiter {
    name: usize,
    cost: u32,
    criticality: usize,
    home: u64,
    bound: Option<u64>,
    state: State,
    granted_before: bool,
}

/// The rules of the limiter, with a list and no cleverness. Names grow, so that
/// they are also the order of arrival.
pub struct Model {
    limit: f64,
    now: u64,
    /// The latest moment that an operation saw.
    seen: u64,
    waiters: Vec<Waiter>,
    permits: BTreeMap<usize, (u32, u64)>,
    stalled: BTreeSet<u64>,
    grants: usize,
    revoked: usize,
    last_end: u64,
    last_service: u64,
    timed_since: u64,
}

impl Model {
    pub fn new(limit: f64) -> Self {
        Self {
            limit,
            now: 0,
            seen: 0,
            waiters: Vec::new(),
            permits: BTreeMap::new(),
            stalled: BTreeSet::new(),
            grants: 0,
            revoked: 0,
            last_end: 0,
            last_service: 0,
            timed_since: 0,
        }
    }

    pub fn pass(&mut self, millis: u64) {
        self.now += millis * 1_000_000;
    }

    pub fn in_flight(&self) -> u64 {
        let held: u32 = self.permits.values().map(|&(cost, _)| cost).sum();
        let granted: u32 = { self.waiters.iter() }
            .filter(|waiter| matches!(waiter.state, State::Granted { .. }))
            .map(|waiter| waiter.cost)
            .sum();
        u64::from(held + granted)
    }

    pub fn waiting(&self) -> usize {
        self.waiters.iter().filter(|waiter| waiter.state == State::Waiting).count()
    }

    pub fn answered(&self) -> Vec<usize> {
        let answered = self.waiters.iter().filter(|waiter| waiter.state != State::Waiting);
        answered.map(|waiter| waiter.name).collect()
    }

    pub fn try_acquire(
        &mut self,
        name: usize,
        cost: u32,
        criticality: usize,
        home: Option<u64>,
    ) -> Answer {
        self.seen = self.now;
        if let Some(home) = home {
            self.stalled.remove(&home);
        }
        loop {
            let ahead: Vec<u64> = { self.waiters.iter() }
                .filter(|waiter| self.is_ready(waiter) && waiter.criticality >= criticality)
                .map(|waiter| waiter.home)
                .collect();
            if ahead.is_empty() && self.has_room(cost) {
                break;
            }
            let (Some(home), Some(at)) = (home, self.stale()) else {
                return Answer::Rejected;
            };
            let owner = self.waiters[at].home;
            // All ahead are as blocked as the grant is.
            if owner == home || ahead.iter().any(|&other| other != owner) {
                return Answer::Rejected;
            }
            self.revoke(at, true);
        }
        self.permits.insert(name, (cost, self.now));
        Answer::Admitted
    }

    pub fn acquire(
        &mut self,
        name: usize,
        cost: u32,
        criticality: usize,
        home: u64,
        max_wait: Option<u64>,
    ) -> Answer {
        if self.try_acquire(name, cost, criticality, Some(home)) == Answer::Admitted {
            return Answer::Admitted;
        }
        if max_wait == Some(0) {
            return Answer::Rejected;
        }
        self.stalled.remove(&home);
        self.waiters.push(Waiter {
            name,
            cost,
            criticality,
            home,
            bound: max_wait.map(|millis| self.now + millis * 1_000_000),
            state: State::Waiting,
            granted_before: false,
        });
        Answer::Waiting
    }

    pub fn claim(&mut self, name: usize) -> Answer {
        self.seen = self.now;
        // Whoever claims is not blocked, whatever becomes of its neighbours.
        let at = self.find(name);
        let home = self.waiters[at].home;
        let is_revived = self.stalled.remove(&home);
        let answer = self.settle(name);
        if answer != Answer::Waiting {
            if is_revived {
                self.serve();
            }
            return answer;
        }
        self.serve();
        self.stalled.remove(&home);
        let at = self.find(name);
        if self.waiters[at].granted_before && self.head() == Some(at) {
            self.take_over(at);
        }
        self.settle(name)
    }

    fn settle(&mut self, name: usize) -> Answer {
        let at = self.find(name);
        match self.waiters[at].state {
            State::Waiting => Answer::Waiting,
            State::Refused => {
                self.waiters.remove(at);
                Answer::Rejected
            }
            State::Granted { .. } => {
                let waiter = self.waiters.remove(at);
                self.permits.insert(name, (waiter.cost, self.now));
                Answer::Admitted
            }
        }
    }

    pub fn cancel(&mut self, name: usize) {
        self.seen = self.now;
        let at = self.find(name);
        let waiter = self.waiters.remove(at);
        self.stalled.remove(&waiter.home);
        self.serve();
    }

    pub fn release(&mut self, name: usize) {
        self.seen = self.now;
        let (_, started) = self.permits.remove(&name).expect("it is there");
        self.last_end = self.now;
        self.last_service = self.now - started.max(self.timed_since).min(self.now);
        self.serve();
    }

    pub fn update(&mut self, limit: f64) {
        self.seen = self.now;
        if self.limit >= 1.0 && limit < 1.0 {
            self.timed_since = self.now;
            self.last_service = 0;
        }
        self.limit = limit;
        self.serve();
    }

    pub fn expire(&mut self, home: Option<u64>) {
        self.seen = self.now;
        if let Some(home) = home {
            self.stalled.remove(&home);
        }
        // Who had room in time has it, however late one looks.
        while let Some(head) = self.head()
            && let Some(bound) = self.waiters[head].bound.filter(|&bound| bound <= self.now)
            && self.has_room_at(bound.saturating_sub(1), self.waiters[head].cost)
        {
            self.grant(head);
        }
        loop {
            for waiter in &mut self.waiters {
                if waiter.state == State::Waiting && waiter.bound.is_some_and(|b| b <= self.now) {
                    waiter.state = State::Refused;
                }
            }
            let revoked = self.revoked;
            self.serve();
            if self.revoked == revoked {
                return;
            }
        }
    }

    pub fn next_expiry(&self) -> Option<u64> {
        if let Some(head) = self.head()
            && self.has_room_at(self.seen, self.waiters[head].cost)
        {
            return Some(self.seen);
        }
        let bounds = { self.waiters.iter() }
            .filter(|waiter| waiter.state == State::Waiting)
            .filter_map(|waiter| waiter.bound);
        let stale = self.oldest_grant().and_then(|at| match self.waiters[at].state {
            State::Granted { at: since, .. } if self.is_ready_elsewhere(at) => {
                Some(since + PATIENCE)
            }
            _ => None,
        });
        let rest = self.head().and_then(|_| self.rests_until());
        bounds.chain(stale).chain(rest).min()
    }

    fn find(&self, name: usize) -> usize {
        self.waiters.iter().position(|waiter| waiter.name == name).expect("it is there")
    }

    fn is_ready(&self, waiter: &Waiter) -> bool {
        waiter.state == State::Waiting && !self.stalled.contains(&waiter.home)
    }

    /// The most critical that is ready, and of these the oldest.
    fn head(&self) -> Option<usize> {
        (0..self.waiters.len()).filter(|&at| self.is_ready(&self.waiters[at])).max_by_key(|&at| {
            (self.waiters[at].criticality, std::cmp::Reverse(self.waiters[at].name))
        })
    }

    fn rests_until(&self) -> Option<u64> {
        if self.in_flight() > 0 || self.limit >= 1.0 || self.limit <= 0.0 {
            return None;
        }
        let service = self.last_service as f64 / 1e9;
        let rest = (service * (1.0 / self.limit - 1.0) * 1e9).round();
        Some(self.last_end + rest as u64)
    }

    fn has_room(&self, cost: u32) -> bool {
        self.has_room_at(self.now, cost)
    }

    fn has_room_at(&self, now: u64, cost: u32) -> bool {
        if self.in_flight() > 0 {
            return (self.in_flight() + u64::from(cost)) as f64 <= self.limit;
        }
        self.limit > 0.0 && self.rests_until().is_none_or(|until| until <= now)
    }

    fn oldest_grant(&self) -> Option<usize> {
        let order = |at: &usize| match self.waiters[*at].state {
            State::Granted { order, .. } => Some(order),
            _ => None,
        };
        (0..self.waiters.len()).filter(|at| order(at).is_some()).min_by_key(order)
    }

    fn stale(&self) -> Option<usize> {
        self.oldest_grant().filter(|&at| match self.waiters[at].state {
            State::Granted { at, .. } => at + PATIENCE <= self.now,
            _ => false,
        })
    }

    fn is_ready_elsewhere(&self, at: usize) -> bool {
        let home = self.waiters[at].home;
        self.waiters.iter().any(|waiter| self.is_ready(waiter) && waiter.home != home)
    }

    fn grant(&mut self, at: usize) {
        self.grants += 1;
        self.waiters[at].state = State::Granted { at: self.now, order: self.grants };
    }

    fn revoke(&mut self, at: usize, stall: bool) {
        self.revoked += 1;
        self.waiters[at].state = State::Waiting;
        self.waiters[at].granted_before = true;
        if stall {
            self.stalled.insert(self.waiters[at].home);
        }
    }

    fn serve(&mut self) {
        while let Some(head) = self.head() {
            if self.has_room(self.waiters[head].cost) {
                self.grant(head);
            } else {
                match self.stale() {
                    Some(at) if self.is_ready_elsewhere(at) => self.revoke(at, true),
                    _ => break,
                }
            }
        }
    }

    fn take_over(&mut self, at: usize) {
        let Waiter { name, home, criticality, cost, .. } = self.waiters[at].clone();
        while !self.has_room(cost) {
            let order = |at: &usize| match self.waiters[*at].state {
                State::Granted { order, .. } => Some(order),
                _ => None,
            };
            let newest = (0..self.waiters.len())
                .filter(|at| order(at).is_some())
                .filter(|&at| {
                    let other = &self.waiters[at];
                    other.name > name && other.home != home && other.criticality <= criticality
                })
                .max_by_key(order);
            let Some(newest) = newest else { return };
            self.revoke(newest, false);
        }
        self.grant(at);
    }
}
