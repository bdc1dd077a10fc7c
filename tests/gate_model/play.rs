use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::sample::Index;
use sluicegate::primitives::{
    Ask, Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home,
    LimitUpdate, Outcome, Permit, Rate, Reason, Rejection, Reserve, Ticket, Time, Waitable, Wakes,
};

use crate::steps::{Asked, HOMES, OPERATIONS, Step};

mod checks;

const MS: u64 = 1_000_000;
const OUTCOMES: [Outcome; 3] = [Outcome::Success, Outcome::Ignored, Outcome::Overload];

/// What is wrong with a gate on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Who never waits is let in although there is no room.
    AdmitsOneTooMany,
    /// With every permit another one goes back that is still held.
    ReleasesTwice,
    /// A release wakes nobody.
    LosesAWake,
    /// What is owed to the rate is forgotten.
    LosesTokens,
}

/// A rate that says no when it is empty.
struct Purse {
    left: u64,
    taken: u64,
    given_back: u64,
}

impl Rate for Purse {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // they are whole
    fn take(&mut self, _now: Time, tokens: f64) -> Result<(), Duration> {
        let tokens = tokens as u64;
        self.left = self.left.checked_sub(tokens).ok_or(Duration::from_secs(1))?;
        self.taken += tokens;
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // they are whole
    fn give_back(&mut self, _now: Time, tokens: f64) {
        self.left += tokens as u64;
        self.given_back += tokens as u64;
    }
}

/// Somebody who has a ticket and has not heard what became of it.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    asked: Asked,
    /// When he is refused if nothing comes before, as far as that is known.
    bound: Time,
    /// A signal is on its way to him.
    is_woken: bool,
    /// The signal did not reach him, and is to be sent again.
    is_unreached: bool,
    /// At most one step ago.
    is_new: bool,
}

#[derive(Debug)]
struct Held {
    /// `None` if a faulty gate has taken it back.
    permit: Option<Permit>,
    cost: u64,
    criticality: usize,
    life: u32,
}

struct Drain {
    ticket: Ticket,
    until: Option<Time>,
    is_woken: bool,
    is_unreached: bool,
}

/// What was so before a step.
struct Before {
    in_flight: u64,
    waiting: usize,
    granted: i128,
    /// Who waited, with nothing on its way to anybody there.
    waiters: Vec<usize>,
}

/// A gate, and all who have to do with it: what holds whatever they do.
#[allow(clippy::struct_excessive_bools)] // what was done, and how it is played
pub struct Play {
    gate: Gate<usize>,
    is_fixed: bool,
    reserve: Reserve,
    /// Everybody claims at once when he is woken.
    is_prompt: bool,
    fault: Fault,
    purse: Purse,
    now: u64,
    next_name: usize,
    waiters: BTreeMap<usize, Waiter>,
    held: BTreeMap<usize, Held>,
    drains: BTreeMap<usize, Drain>,
    gone: Vec<Ticket>,
    /// Nobody there moves.
    blocked: BTreeSet<u64>,
    /// Nobody there was reached, and nobody has moved since.
    unreached: BTreeSet<u64>,
    life: u32,
    is_closed: bool,
    /// Whether there may be shadows, and whether there ever were.
    has_shadows: bool,
    had_shadows: bool,
    admitted: u64,
    rejected: [u64; 12],
    /// Whose rejection may have been counted and was not heard.
    unheard: u64,
    outcomes: [u64; 3],
    owed: u64,
    /// Of those who were admitted.
    spent: u64,
    /// What was claimed and admitted at once in this step, by cost.
    claimed: i128,
    began: Vec<usize>,
    /// Whether whoever began would have waited else.
    is_in_line_first: bool,
}

impl Play {
    pub fn new(config: GateConfig, is_prompt: bool, fault: Fault) -> Self {
        Self {
            is_fixed: matches!(config.limit, GateLimit::Fixed(_)),
            reserve: config.reserve,
            gate: Gate::new(config).expect("it is within its ranges"),
            is_prompt,
            fault,
            purse: Purse { left: 20, taken: 0, given_back: 0 },
            now: 0,
            next_name: 0,
            waiters: BTreeMap::new(),
            held: BTreeMap::new(),
            drains: BTreeMap::new(),
            gone: Vec::new(),
            blocked: BTreeSet::new(),
            unreached: BTreeSet::new(),
            life: 0,
            is_closed: false,
            has_shadows: false,
            had_shadows: false,
            admitted: 0,
            rejected: [0; 12],
            unheard: 0,
            outcomes: [0; 3],
            owed: 0,
            spent: 0,
            claimed: 0,
            began: Vec::new(),
            is_in_line_first: false,
        }
    }

    pub fn through(mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        self.end();
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now * MS)
    }

    fn name(&mut self) -> usize {
        self.next_name += 1;
        self.next_name
    }

    fn step(&mut self, step: &Step) {
        let before = self.before();
        self.claimed = 0;
        self.began.clear();
        for waiter in self.waiters.values_mut() {
            waiter.is_new = false;
        }
        self.is_in_line_first = matches!(step, Step::Acquire(_));
        self.play(step);
        self.check_admissions(&before);
        if self.is_prompt {
            self.all_come();
            self.check_order(&before);
        }
        self.settle_debts();
        self.check();
    }

    #[allow(clippy::too_many_lines)] // one arm a step
    fn play(&mut self, step: &Step) {
        match *step {
            Step::TryAcquire(asked, is_named) => self.try_acquire(&asked, is_named),
            Step::Admit(asked) => {
                self.moves(asked.home);
                if self.gate.is_dry_run() || self.blocked.contains(&asked.home) {
                    return;
                }
                let now = self.time();
                if let Some(permit) = self.gate.admit(now, &self.ask(&asked), &mut self.purse) {
                    let name = self.name();
                    self.begins(name, permit, &asked);
                }
            }
            Step::Acquire(asked) => self.acquire(&asked),
            Step::Claim(which) => {
                let blocked = self.blocked.clone();
                let can = |waiter: &Waiter| !blocked.contains(&waiter.asked.home);
                let Some(name) = self.pick(which, can) else { return };
                self.claim(name);
            }
            Step::ClaimStale(which) => {
                let Some(ticket) = pick(which, &self.gone) else { return };
                let (claim, wakes) = self.gate.claim(self.time(), ticket);
                assert!(matches!(claim, GateClaim::Unknown), "{claim:?}");
                self.wake(wakes);
                let wakes = self.gate.cancel(self.time(), ticket);
                self.wake(wakes);
                assert_eq!(self.gate.renew(ticket, 0), Err(0));
                let wakes = self.gate.unreached(self.time(), ticket, 0);
                self.wake(wakes);
            }
            Step::Renew(which) => {
                let Some(name) = self.pick(which, |waiter| waiter.is_woken) else { return };
                if self.is_prompt {
                    return;
                }
                // Early: his signal comes nevertheless, and then he has come.
                let ticket = self.waiters[&name].ticket;
                match self.gate.renew(ticket, name) {
                    Ok(waiter) => {
                        assert_eq!(waiter, None);
                        self.change(name, |waiter| waiter.is_woken = false);
                        self.claim(name);
                    }
                    Err(waiter) => assert_eq!(waiter, name),
                }
            }
            Step::Cancel(which) => {
                let Some(name) = self.pick(which, |_| true) else { return };
                let waiter = self.waiters.remove(&name).expect("it is there");
                self.gone.push(waiter.ticket);
                self.unheard += 1;
                let wakes = self.gate.cancel(self.time(), waiter.ticket);
                self.moves(waiter.asked.home);
                self.wake(wakes);
            }
            Step::Unreached(which) => {
                if self.is_prompt {
                    return;
                }
                let Some(name) = self.pick(which, |waiter| waiter.is_woken) else { return };
                let Waiter { ticket, asked, .. } = self.waiters[&name];
                self.change(name, |waiter| {
                    (waiter.is_woken, waiter.is_unreached) = (false, true);
                });
                self.unreached.insert(asked.home);
                let wakes = self.gate.unreached(self.time(), ticket, name);
                self.wake(wakes);
                self.check_retry();
            }
            Step::Release { which, outcome, operation } => self.release(which, outcome, operation),
            Step::ReleaseStale(which) => {
                let life = self.life;
                let Some(name) = self.pick_held(which, |held| held.life != life) else { return };
                let permit = self.held.remove(&name).and_then(|held| held.permit);
                let permit = permit.expect("nobody took it");
                let wakes = self.gate.release(self.time(), permit, None, Outcome::Success);
                assert!(wakes.is_empty());
            }
            Step::Annul(which) => {
                let life = self.life;
                let Some(name) = self.pick_held(which, |held| held.life == life) else { return };
                let permit = self.held.remove(&name).and_then(|held| held.permit);
                let Some(permit) = permit else { return };
                self.admitted -= 1;
                let wakes = self.gate.annul(self.time(), permit);
                self.wake(wakes);
            }
            Step::Expire(home) => self.expire(home),
            Step::ExpireWhenDue(home) => {
                if let Some(due) = self.gate.next_expiry() {
                    let due = due.as_nanos().div_ceil(MS);
                    if due < self.now + 1_000_000 {
                        self.now = self.now.max(due);
                        self.expire(home);
                    }
                }
            }
            Step::Update { limit, max_waiting, max_wait } => {
                let max_wait = max_wait.map(Duration::from_millis);
                let before = (self.gate.limit(), self.gate.config().clone());
                let now = self.time();
                if let Ok(wakes) = self.gate.update(
                    now,
                    limit.map(LimitUpdate::Hold),
                    max_waiting.map(Some),
                    max_wait.map(Some),
                ) {
                    self.wake(wakes);
                } else {
                    assert!(!self.is_fixed, "it is in its range");
                    assert_eq!(before, (self.gate.limit(), self.gate.config().clone()));
                }
            }
            Step::Pass(millis) => self.now += millis,
            Step::JumpBack(millis) => self.now = self.now.saturating_sub(millis),
            Step::Block(home) => {
                if !self.is_prompt {
                    self.blocked.insert(home);
                }
            }
            Step::Unblock(home) => {
                self.blocked.remove(&home);
            }
            Step::Refill(tokens) => self.purse.left += u64::from(tokens),
            Step::DryRun(is_dry_run) => {
                let wakes = self.gate.set_dry_run(self.time(), is_dry_run);
                self.has_shadows = is_dry_run;
                self.wake(wakes);
            }
            Step::Close => {
                let wakes = self.gate.close(self.time());
                self.is_closed = true;
                self.wake(wakes);
                if !self.has_unreached() {
                    assert_eq!(self.gate.waiting(), 0, "somebody waits for a closed gate");
                }
            }
            Step::Reset => self.reset(),
            Step::JoinDrain { home, until } => {
                let name = self.name();
                let until = until.map(|until| Time::from_nanos((self.now + until) * MS));
                let now = self.time();
                let ticket = self.gate.join_drain(now, Home(home), until, &mut Some(name));
                assert_eq!(ticket.is_some(), !self.gate.is_idle());
                if let Some(ticket) = ticket {
                    let drain = Drain { ticket, until, is_woken: false, is_unreached: false };
                    self.drains.insert(name, drain);
                }
            }
            Step::ClaimDrain(which) => {
                let names: Vec<usize> = self.drains.keys().copied().collect();
                let Some(name) = pick(which, &names) else { return };
                self.claim_drain(name);
            }
            Step::CancelDrain(which) => {
                let names: Vec<usize> = self.drains.keys().copied().collect();
                let Some(name) = pick(which, &names) else { return };
                let drain = self.drains.remove(&name).expect("it is there");
                let wakes = self.gate.cancel(self.time(), drain.ticket);
                self.wake(wakes);
            }
            Step::UnreachedDrain(which) => {
                let woken = self.drains.iter().filter(|(_, drain)| drain.is_woken);
                let names: Vec<usize> = woken.map(|(&name, _)| name).collect();
                let Some(name) = pick(which, &names) else { return };
                let now = self.time();
                let drain = self.drains.get_mut(&name).expect("it is there");
                (drain.is_woken, drain.is_unreached) = (false, true);
                let wakes = self.gate.unreached(now, drain.ticket, name);
                assert!(wakes.is_empty(), "he is told at once again");
                self.check_retry();
            }
        }
    }

    fn ask<'a>(&self, asked: &Asked) -> GateAsk<'a> {
        let mut ask = Ask::new(asked.cost).expect("it is in its range");
        ask.criticality = Criticality::ALL[asked.criticality];
        ask.home = Some(Home(asked.home));
        let deadline = asked.deadline.map(|later| self.now.saturating_add_signed(later));
        GateAsk {
            ask,
            deadline: deadline.map(|deadline| Time::from_nanos(deadline * MS)),
            tokens: f64::from(asked.tokens),
            operation: OPERATIONS[asked.operation],
            is_retry: asked.is_retry,
            ..GateAsk::one()
        }
    }

    fn try_acquire(&mut self, asked: &Asked, is_named: bool) {
        if self.blocked.contains(&asked.home) {
            return;
        }
        let mut ask = self.ask(asked);
        if !is_named {
            ask.ask.home = None;
        }
        if self.gate.is_dry_run() {
            return self.pass(&ask, asked, false);
        }
        if is_named && !self.is_closed {
            self.moves(asked.home);
        }
        let (mut answer, wakes) = self.gate.try_acquire(self.time(), &ask, &mut self.purse);
        self.wake(wakes);
        let limit = self.gate.limit();
        if self.fault == Fault::AdmitsOneTooMany && self.is_fixed && answer.is_err() {
            let _ = self.gate.update(self.time(), Some(LimitUpdate::Hold(1e6)), None, None);
            (answer, _) = self.gate.try_acquire(self.time(), &ask, &mut self.purse);
            let _ = self.gate.update(self.time(), Some(LimitUpdate::Hold(limit)), None, None);
        }
        match answer {
            Ok(permit) => {
                let name = self.name();
                self.begins(name, permit, asked);
            }
            Err(rejection) => self.is_refused(&ask, &rejection, false),
        }
    }

    fn acquire(&mut self, asked: &Asked) {
        if self.blocked.contains(&asked.home) {
            return;
        }
        let ask = self.ask(asked);
        if self.gate.is_dry_run() {
            return self.pass(&ask, asked, true);
        }
        let name = self.name();
        let mut waiter = Some(name);
        let before = self.gate.waiting();
        let (admission, wakes) = self.gate.acquire(self.time(), &ask, &mut self.purse, &mut waiter);
        let is_waiting = matches!(admission, GateAdmission::Waiting(_));
        assert_eq!(waiter.is_none(), is_waiting, "the waiter is taken only to wait");
        match admission {
            GateAdmission::Admitted(permit) => {
                self.moves(asked.home);
                self.begins(name, permit, asked);
            }
            GateAdmission::Waiting(ticket) => {
                self.moves(asked.home);
                let end = self.gate.config().max_wait.filter(|_| self.reserve == Reserve::none());
                let end = end.map_or(Time::MAX, |wait| self.gate.latest().after(wait));
                let waiter = Waiter {
                    ticket,
                    asked: *asked,
                    bound: end.min(ask.deadline.unwrap_or(Time::MAX)),
                    is_woken: false,
                    is_unreached: false,
                    is_new: true,
                };
                self.waiters.insert(name, waiter);
            }
            GateAdmission::Rejected(rejection) => {
                if !matches!(rejection.reason, Reason::Closed | Reason::Deadline | Reason::Rate) {
                    self.moves(asked.home);
                }
                self.is_refused(&ask, &rejection, true);
            }
        }
        self.wake(wakes);
        if is_waiting {
            self.check_depth(before);
        }
    }

    /// At a gate that lets everybody in.
    fn pass(&mut self, ask: &GateAsk<'_>, asked: &Asked, may_wait: bool) {
        let now = self.time();
        let (permit, wakes) = self.gate.admit_in_dry_run(now, ask, may_wait, &mut self.purse);
        self.had_shadows = true;
        self.wake(wakes);
        let name = self.name();
        self.begins(name, permit, asked);
    }

    /// With a permit from a dry run that occupies nothing, too.
    fn begins(&mut self, name: usize, permit: Permit, asked: &Asked) {
        let cost = u64::from(permit.cost());
        self.admitted += 1;
        if cost > 0 {
            assert_eq!(permit.cost(), asked.cost);
            self.spent += u64::from(asked.tokens);
            self.began.push(name);
        }
        assert!(permit.started() == self.gate.latest());
        let criticality = asked.criticality;
        self.held.insert(name, Held { permit: Some(permit), cost, criticality, life: self.life });
    }

    fn is_refused(&mut self, ask: &GateAsk<'_>, rejection: &Rejection, may_wait: bool) {
        self.rejected[rejection.reason.index()] += 1;
        assert_eq!(rejection.criticality, ask.ask.criticality);
        let is_due = ask.deadline.is_some_and(|deadline| deadline <= self.gate.latest());
        match rejection.reason {
            Reason::Closed => assert!(self.is_closed),
            _ if self.is_closed => panic!("it is closed: {rejection:?}"),
            Reason::Deadline => assert!(is_due || may_wait && ask.deadline.is_some()),
            _ if is_due => panic!("it is too late: {rejection:?}"),
            Reason::Rate => assert!(rejection.retry_after.is_some()),
            Reason::Limit | Reason::Full | Reason::Priority => {}
            _ => panic!("not to who comes: {rejection:?}"),
        }
    }

    fn claim(&mut self, name: usize) {
        let Waiter { ticket, asked, .. } = self.waiters[&name];
        let (claim, wakes) = self.gate.claim(self.time(), ticket);
        self.moves(asked.home);
        // He himself may be called by his own claim.
        self.wake(wakes);
        let is_woken = self.waiters[&name].is_woken;
        match claim {
            GateClaim::Admitted(permit) => {
                self.waiters.remove(&name);
                self.gone.push(ticket);
                self.claimed += i128::from(permit.cost());
                self.begins(name, permit, &asked);
            }
            GateClaim::Waiting => {
                self.change(name, |waiter| (waiter.is_woken, waiter.is_unreached) = (false, false));
                let before = self.gate.renew(ticket, name).expect("he waits");
                assert_eq!(before.is_none(), is_woken, "a waiter is lost");
            }
            GateClaim::Rejected(rejection) => {
                self.waiters.remove(&name);
                self.gone.push(ticket);
                self.rejected[rejection.reason.index()] += 1;
            }
            GateClaim::Unknown => panic!("{name} is known"),
        }
    }

    fn release(&mut self, which: Index, outcome: usize, operation: usize) {
        let life = self.life;
        let Some(name) = self.pick_held(which, |held| held.life == life) else { return };
        let outcome = OUTCOMES[outcome];
        let Some(permit) = self.held.remove(&name).and_then(|held| held.permit) else { return };
        self.outcomes[outcome.index()] += 1;
        let wakes = self.gate.release(self.time(), permit, OPERATIONS[operation], outcome);
        if self.fault == Fault::LosesAWake {
            return drop(wakes);
        }
        self.wake(wakes);
        if self.fault == Fault::ReleasesTwice {
            let other = self.held.values_mut().find(|held| held.life == life && held.cost > 0);
            if let Some(permit) = other.and_then(|held| held.permit.take()) {
                let wakes = self.gate.release(self.time(), permit, None, outcome);
                self.wake(wakes);
                self.outcomes[outcome.index()] += 1;
            }
        }
    }

    fn expire(&mut self, home: Option<u64>) {
        let home = home.filter(|home| !self.blocked.contains(home));
        let wakes = self.gate.expire(self.time(), home.map(Home));
        if let Some(home) = home {
            self.moves(home);
        }
        self.wake(wakes);
        self.check_bounds();
        let next = self.gate.next_expiry();
        assert!(next.is_none_or(|next| next > self.gate.latest()), "it is due at once again");
    }

    fn reset(&mut self) {
        let waiters: BTreeSet<usize> = self.gate.reset().into_iter().collect();
        let unwoken = { self.waiters.iter() }
            .filter(|(_, waiter)| !waiter.is_woken)
            .map(|(&name, _)| name)
            .chain(self.drains.iter().filter(|(_, drain)| !drain.is_woken).map(|(&name, _)| name));
        assert_eq!(waiters, unwoken.collect());
        self.unheard += self.waiters.len() as u64;
        self.gone.extend(std::mem::take(&mut self.waiters).into_values().map(|it| it.ticket));
        self.drains.clear();
        self.unreached.clear();
        self.life += 1;
        // What they had taken is gone with them.
        self.spent = self.purse.taken - self.purse.given_back - self.owed;
    }

    fn claim_drain(&mut self, name: usize) {
        let Drain { ticket, until, is_woken, .. } = self.drains[&name];
        let (answer, wakes) = self.gate.claim_drain(self.time(), ticket);
        let is_over = until.is_some_and(|until| until <= self.gate.latest());
        if let Some(is_idle) = answer {
            assert_eq!(is_idle, self.gate.is_idle());
            assert!(is_idle || is_over, "the wait is not over");
            self.drains.remove(&name);
        } else {
            assert!(!self.gate.is_idle() && !is_over, "the wait is over");
            let before = self.gate.renew(ticket, name).expect("he waits");
            assert_eq!(before.is_none(), is_woken);
            let drain = self.drains.get_mut(&name).expect("it is there");
            (drain.is_woken, drain.is_unreached) = (false, false);
        }
        self.wake(wakes);
    }

    fn wake(&mut self, wakes: Wakes<usize>) {
        for wake in wakes {
            if let Some(waiter) = self.waiters.get_mut(&wake.waiter) {
                assert_eq!(waiter.ticket, wake.ticket);
                assert!(!waiter.is_woken, "{} was woken twice", wake.waiter);
                (waiter.is_woken, waiter.is_unreached) = (true, false);
            } else if let Some(drain) = self.drains.get_mut(&wake.waiter) {
                assert_eq!(drain.ticket, wake.ticket);
                assert!(!drain.is_woken, "{} was woken twice", wake.waiter);
                (drain.is_woken, drain.is_unreached) = (true, false);
            }
            // Or it is of somebody who has come, or has left, in this very step.
        }
    }

    /// Whoever was woken claims, and whoever is woken by that.
    fn all_come(&mut self) {
        while let Some(name) = self.pick_first(|waiter| waiter.is_woken) {
            self.claim(name);
        }
    }

    /// Somebody there has shown himself.
    fn moves(&mut self, home: u64) {
        self.unreached.remove(&home);
    }

    fn settle_debts(&mut self) {
        assert_eq!(self.gate.is_owing(), {
            let owed = self.gate.take_owed();
            assert!(owed >= 0.0 && owed.fract() == 0.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is whole
            let tokens = owed as u64;
            if self.fault != Fault::LosesTokens {
                self.owed += tokens;
                self.purse.left += tokens;
            }
            owed > 0.0
        });
    }

    fn change(&mut self, name: usize, change: impl FnOnce(&mut Waiter)) {
        change(self.waiters.get_mut(&name).expect("it is there"));
    }

    fn pick_first(&self, can: impl Fn(&Waiter) -> bool) -> Option<usize> {
        self.waiters.iter().find(|(_, waiter)| can(waiter)).map(|(&name, _)| name)
    }

    fn pick(&self, which: Index, can: impl Fn(&Waiter) -> bool) -> Option<usize> {
        let able = self.waiters.iter().filter(|(_, waiter)| can(waiter));
        pick(which, &able.map(|(&name, _)| name).collect::<Vec<_>>())
    }

    fn pick_held(&self, which: Index, is: impl Fn(&Held) -> bool) -> Option<usize> {
        let names = self.held.iter().filter(|(_, held)| is(held));
        pick(which, &names.map(|(&name, _)| name).collect::<Vec<_>>())
    }

    /// Everything is given back, everybody moves, and time passes: nobody is left.
    fn end(mut self) {
        self.blocked.clear();
        let life = self.life;
        while let Some((&name, _)) = self.held.iter().find(|(_, held)| held.life == life) {
            let Some(permit) = self.held.remove(&name).and_then(|held| held.permit) else {
                continue;
            };
            let wakes = self.gate.release(self.time(), permit, None, Outcome::Success);
            self.outcomes[Outcome::Success.index()] += 1;
            self.wake(wakes);
        }
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 20_000, "it never comes to an end");
            if let Some(name) = self.pick_first(|waiter| waiter.is_woken) {
                self.claim(name);
                if let Some(held) = self.held.remove(&name)
                    && let Some(permit) = held.permit
                {
                    let wakes = self.gate.release(self.time(), permit, None, Outcome::Ignored);
                    self.outcomes[Outcome::Ignored.index()] += 1;
                    self.wake(wakes);
                }
                continue;
            }
            let woken = self.drains.iter().find(|(_, drain)| drain.is_woken);
            if let Some((&name, _)) = woken {
                self.claim_drain(name);
                continue;
            }
            let Some(due) = self.gate.next_expiry() else { break };
            self.now = self.now.max(due.as_nanos().div_ceil(MS));
            let wakes = self.gate.expire(self.time(), Some(Home(rounds % HOMES)));
            self.wake(wakes);
        }
        self.settle_debts();
        assert!(self.waiters.is_empty(), "forgotten: {:?}", self.waiters);
        assert!(self.drains.is_empty(), "somebody waits for the end for ever");
        assert_eq!(self.gate.waiting(), 0);
        assert_eq!(self.gate.in_flight(), 0);
        assert!(!self.gate.has_unclaimed(None));
        assert!((0..HOMES).all(|home| !self.gate.waits(Home(home))));
        self.unreached.clear();
        self.check();
    }
}

fn pick<T: Copy>(which: Index, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| from[which.index(from.len())])
}
