use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sluicegate::primitives::{
    Admission, Ask, Claim, Home, Outcome, Permit, Reason, SemaphoreLimiter, Ticket, Time, Waitable,
    Wakes,
};

use super::format::{Action, Ending, Exception, Kind, Limiter, Step, Then};

/// Where a step runs that names no loop: a plain thread.
const THREAD: Home = Home(u64::MAX);
const LONGEST_WAIT: f64 = 3600.0;

/// A waiter is woken by its name.
#[derive(Debug)]
struct Sleeper(String);

#[derive(Debug)]
enum Holder {
    Waiting(Task),
    Holding(Permit),
    Released,
    /// Never had a permit, or has it no more to give back.
    Over,
}

/// A task that is suspended in `acquire()`.
#[derive(Debug)]
struct Task {
    ticket: Ticket,
    on: usize,
    /// Its future is done, by a signal or a cancellation: it is about to run.
    is_due: bool,
    is_cancelled: bool,
}

/// An event loop runs its callbacks in order, first come, first served, and only
/// when it is told to.
#[derive(Debug)]
struct EventLoop {
    name: String,
    home: Home,
    ready: VecDeque<Callback>,
    is_closed: bool,
}

#[derive(Debug)]
enum Callback {
    /// The first step of a task.
    Start(Wish),
    /// A signal from another thread: completes the task's future.
    Signal(String),
    /// The task goes on after its future is done.
    Resume(String),
}

#[derive(Debug)]
struct Wish {
    name: String,
    cost: i64,
    timeout: Option<Duration>,
    is_cancelled: bool,
}

pub struct Player {
    limiter: SemaphoreLimiter<Sleeper>,
    now: Time,
    holders: BTreeMap<String, Holder>,
    loops: Vec<EventLoop>,
    /// Loops before this one are of the parent process.
    first_loop: usize,
    admitted: BTreeSet<String>,
    timed_out: BTreeSet<String>,
}

type Played<T = ()> = Result<T, String>;

impl Player {
    pub fn new(limiter: &Limiter) -> Played<Self> {
        let Kind::Semaphore = limiter.kind;
        Ok(Self {
            limiter: SemaphoreLimiter::new(limiter.limit).map_err(|e| e.to_string())?,
            now: Time::ZERO,
            holders: BTreeMap::new(),
            loops: Vec::new(),
            first_loop: 0,
            admitted: BTreeSet::new(),
            timed_out: BTreeSet::new(),
        })
    }

    pub fn play(mut self, steps: &[Step]) -> Played {
        for (number, step) in steps.iter().enumerate() {
            let fail = |error| format!("step {}: {error}", number + 1);
            self.admitted.clear();
            self.timed_out.clear();
            let answer = self.act(&step.action).map_err(fail)?;
            let expected = step.expect.as_deref().unwrap_or(answer);
            if answer != expected {
                return Err(fail(format!("expected {expected:?}, got {answer:?}")));
            }
            self.look(&step.then).map_err(fail)?;
        }
        self.give_all_back()
    }

    fn act(&mut self, action: &Action) -> Played<&'static str> {
        match action {
            Action::TryAcquire { name, cost, on } => {
                let on = on.as_deref().map(|on| self.open(on)).transpose()?;
                self.try_acquire(name, *cost, on)
            }
            Action::Acquire { name, cost, on, timeout, cancelled } => {
                let on = self.open(on)?;
                let wish = Wish {
                    name: name.clone(),
                    cost: *cost,
                    timeout: timeout.map(seconds).transpose()?,
                    is_cancelled: *cancelled,
                };
                self.check_free(name)?;
                self.loops[on].ready.push_back(Callback::Start(wish));
                self.settle(on)
            }
            Action::Release { name, outcome, on } => {
                let outcome = match outcome {
                    Ending::Success => Outcome::Success,
                    Ending::Ignored => Outcome::Ignored,
                    Ending::Overload => Outcome::Overload,
                };
                let on = on.as_deref().map(|on| self.open(on)).transpose()?;
                self.release(name, outcome, on)
            }
            Action::Raise { name, raises, on } => {
                let on = on.as_deref().map(|on| self.open(on)).transpose()?;
                self.release(name, outcome_of(*raises), on)
            }
            Action::Forget { name } => match self.holders.get(name) {
                Some(Holder::Holding(_)) => {
                    let answer = self.release(name, Outcome::Ignored, None);
                    self.holders.insert(name.clone(), Holder::Over);
                    answer
                }
                other => Err(format!("{name} holds no permit: {other:?}")),
            },
            Action::Cancel { name } => self.cancel(name),
            Action::Update { limit } => match self.limiter.update(self.now, *limit) {
                Ok(wakes) => {
                    self.deliver(wakes, None);
                    Ok("done")
                }
                Err(_) => Ok("error"),
            },
            Action::At { at } if (0.0..f64::INFINITY).contains(at) => {
                self.advance(Time::from_secs_f64(*at))
            }
            Action::At { at } => Err(format!("no such time: {at}")),
            Action::Tick { on } => {
                let on = self.known(on)?;
                for _ in 0..self.loops[on].ready.len() {
                    self.run_one(on)?;
                }
                Ok("done")
            }
            Action::Settle { on } if on == "all" => self.settle_all(),
            Action::Settle { on } => {
                let on = self.known(on)?;
                self.settle(on).map(|_| "done")
            }
            Action::CloseLoop { on } => {
                let on = self.known(on)?;
                self.loops[on].is_closed = true;
                self.loops[on].ready.clear();
                Ok("done")
            }
            Action::Fork { fork: true } => {
                drop(self.limiter.reset());
                self.first_loop = self.loops.len();
                for event_loop in &mut self.loops {
                    event_loop.ready.clear();
                }
                for holder in self.holders.values_mut() {
                    if matches!(holder, Holder::Waiting(_)) {
                        *holder = Holder::Over;
                    }
                }
                Ok("done")
            }
            Action::Fork { fork: false } => Err("fork is true or not there".into()),
            Action::Look {} => Ok("done"),
        }
    }

    fn try_acquire(&mut self, name: &str, cost: i64, on: Option<usize>) -> Played<&'static str> {
        self.check_free(name)?;
        let Some(mut ask) = ask(cost) else {
            return Ok("error");
        };
        ask.home = Some(on.map_or(THREAD, |on| self.loops[on].home));
        match self.limiter.try_acquire(self.now, &ask) {
            Ok(permit) => {
                self.holders.insert(name.into(), Holder::Holding(permit));
                Ok("admitted")
            }
            Err(rejection) => Ok(rejection.reason.as_str()),
        }
    }

    fn release(&mut self, name: &str, outcome: Outcome, on: Option<usize>) -> Played<&'static str> {
        match self.holders.insert(name.into(), Holder::Released) {
            Some(Holder::Holding(permit)) => {
                let wakes = self.limiter.release(self.now, permit, outcome);
                self.deliver(wakes, on);
                Ok("done")
            }
            Some(Holder::Released) => {
                self.limiter.count_stray_release();
                Ok("ignored")
            }
            other => Err(format!("{name} holds no permit: {other:?}")),
        }
    }

    fn cancel(&mut self, name: &str) -> Played<&'static str> {
        let Some(Holder::Waiting(task)) = self.holders.get_mut(name) else {
            return Err(format!("{name} does not wait"));
        };
        let on = task.on;
        if self.loops[on].is_closed {
            return Err(format!("{name} waits on a closed loop"));
        }
        cancel(task, &mut self.loops[on], name);
        self.settle(on).map(|_| "done")
    }

    fn advance(&mut self, to: Time) -> Played<&'static str> {
        if to < self.now {
            return Err("the clock does not go back".into());
        }
        while let Some(due) = self.limiter.next_expiry().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            let wakes = self.limiter.expire(self.now, None);
            self.deliver(wakes, None);
            if self.limiter.next_expiry() == Some(due) {
                return Err(format!("what was due at {due:?} is due still"));
            }
        }
        self.now = to;
        let wakes = self.limiter.expire(to, None);
        self.deliver(wakes, None);
        Ok("done")
    }

    fn settle_all(&mut self) -> Played<&'static str> {
        while self.loops.iter().any(|one| !one.ready.is_empty()) {
            for on in self.first_loop..self.loops.len() {
                self.settle(on)?;
            }
        }
        Ok("done")
    }

    /// Runs a loop until it is idle; how a task that started there fared.
    fn settle(&mut self, on: usize) -> Played<&'static str> {
        let mut answer = "done";
        while !self.loops[on].ready.is_empty() {
            answer = self.run_one(on)?.unwrap_or(answer);
        }
        Ok(answer)
    }

    fn run_one(&mut self, on: usize) -> Played<Option<&'static str>> {
        match self.loops[on].ready.pop_front() {
            None => Ok(None),
            Some(Callback::Start(wish)) => Ok(Some(self.start(wish, on))),
            Some(Callback::Signal(name)) => {
                if let Some(Holder::Waiting(task)) = self.holders.get_mut(&name) {
                    complete(task, &mut self.loops[on], &name);
                }
                Ok(None)
            }
            Some(Callback::Resume(name)) => self.resume(name, on).map(|()| None),
        }
    }

    fn start(&mut self, wish: Wish, on: usize) -> &'static str {
        let Some(mut ask) = ask(wish.cost) else {
            return "error";
        };
        ask.home = Some(self.loops[on].home);
        ask.max_wait = wish.timeout;
        let name = wish.name;
        let mut sleeper = Some(Sleeper(name.clone()));
        match self.limiter.acquire(self.now, &ask, &mut sleeper) {
            Admission::Admitted(permit) => {
                self.holders.insert(name, Holder::Holding(permit));
                "admitted"
            }
            Admission::Rejected(_) => "timed_out",
            Admission::Waiting(ticket) => {
                let mut task = Task { ticket, on, is_due: false, is_cancelled: false };
                if wish.is_cancelled {
                    cancel(&mut task, &mut self.loops[on], &name);
                }
                self.holders.insert(name, Holder::Waiting(task));
                if wish.is_cancelled { "cancelled" } else { "waiting" }
            }
        }
    }

    fn resume(&mut self, name: String, on: usize) -> Played {
        let Some(Holder::Waiting(task)) = self.holders.get_mut(&name) else {
            return Err(format!("{name} runs, but does not wait"));
        };
        let ticket = task.ticket;
        if task.is_cancelled {
            self.holders.insert(name, Holder::Over);
            let wakes = self.limiter.cancel(self.now, ticket);
            self.deliver(wakes, Some(on));
            return Ok(());
        }
        task.is_due = false;
        let (claim, wakes) = self.limiter.claim(self.now, ticket);
        match claim {
            Claim::Admitted(permit) => {
                self.holders.insert(name.clone(), Holder::Holding(permit));
                self.admitted.insert(name);
            }
            Claim::Waiting => {
                if self.limiter.renew(ticket, Sleeper(name)).is_err() {
                    return Err("a waiting ticket could not be renewed".into());
                }
            }
            Claim::Rejected(_) => {
                self.holders.insert(name.clone(), Holder::Over);
                self.timed_out.insert(name);
            }
        }
        self.deliver(wakes, Some(on));
        Ok(())
    }

    /// Wakes, from `here` if a loop runs; whoever cannot be woken is passed over.
    fn deliver(&mut self, wakes: Wakes<Sleeper>, here: Option<usize>) {
        let mut queue: VecDeque<_> = wakes.into_iter().collect();
        while let Some(wake) = queue.pop_front() {
            let Sleeper(name) = wake.waiter;
            let Some(Holder::Waiting(task)) = self.holders.get_mut(&name) else {
                continue;
            };
            let event_loop = &mut self.loops[task.on];
            if here == Some(task.on) {
                complete(task, event_loop, &name);
            } else if !event_loop.is_closed {
                event_loop.ready.push_back(Callback::Signal(name));
            } else if !task.is_due {
                queue.extend(self.limiter.cancel(self.now, wake.ticket));
            }
        }
    }

    fn look(&self, then: &Then) -> Played {
        let snapshot = self.limiter.snapshot(self.now);
        let next_expiry = self.limiter.next_expiry();
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        check("in_flight", then.in_flight, snapshot.in_flight)?;
        check("waiting", then.waiting, snapshot.waiting)?;
        check_near("limit", then.limit, snapshot.limit)?;
        check_near("saturation", then.saturation, snapshot.saturation)?;
        let oldest_wait = snapshot.oldest_wait.as_secs_f64();
        check_near("oldest_wait", then.oldest_wait, oldest_wait)?;
        let next_expiry = next_expiry.map_or(f64::INFINITY, Time::as_secs_f64);
        check_near("next_expiry", then.next_expiry, next_expiry)?;
        check("admitted", then.admitted.as_deref().map(sorted), names(&self.admitted))?;
        check("timed_out", then.timed_out.as_deref().map(sorted), names(&self.timed_out))?;
        for (name, &expected) in then.waited.iter().flatten() {
            let Some(Holder::Holding(permit)) = self.holders.get(name) else {
                return Err(format!("waited: {name} holds no permit"));
            };
            let waited = permit.waited().as_secs_f64();
            check_near(&format!("waited of {name}"), Some(expected), waited)?;
        }
        let outcomes = counts(&Outcome::ALL.map(Outcome::as_str), &snapshot.outcomes);
        check("outcomes", then.outcomes.clone(), outcomes)?;
        let rejected = counts(&Reason::ALL.map(Reason::as_str), &snapshot.rejected);
        check("rejected", then.rejected.clone(), rejected)?;
        check("revoked", then.revoked, snapshot.revoked)?;
        let stray_releases = snapshot.stray_releases;
        check("stray_releases", then.stray_releases, stray_releases)
    }

    /// After the last step nothing may be left when all is cancelled and given
    /// back.
    fn give_all_back(mut self) -> Played {
        let names: Vec<_> = self.holders.keys().cloned().collect();
        let mut closed = Vec::new();
        for name in &names {
            match self.holders.get(name) {
                Some(Holder::Waiting(task)) if self.loops[task.on].is_closed => {
                    closed.push(task.ticket);
                }
                Some(Holder::Waiting(_)) => drop(self.cancel(name)?),
                _ => {}
            }
        }
        for ticket in closed {
            let wakes = self.limiter.cancel(self.now, ticket);
            self.deliver(wakes, None);
        }
        for name in &names {
            if let Some(Holder::Holding(_)) = self.holders.get(name) {
                self.release(name, Outcome::Success, None)?;
            }
        }
        let left = (self.limiter.in_flight(), self.limiter.waiting());
        let is_clean = left == (0, 0) && !self.limiter.has_unclaimed();
        let text = || format!("after the last step: in flight and waiting are {left:?}");
        if is_clean { Ok(()) } else { Err(text()) }
    }

    fn check_free(&self, name: &str) -> Played {
        match self.holders.get(name) {
            None | Some(Holder::Released | Holder::Over) => Ok(()),
            Some(_) => Err(format!("{name} is taken")),
        }
    }

    /// The loop of that name, made if need be.
    fn open(&mut self, name: &str) -> Played<usize> {
        if let Some(on) = self.position(name) {
            return if self.loops[on].is_closed {
                Err(format!("the loop {name} is closed"))
            } else {
                Ok(on)
            };
        }
        if name == "all" {
            return Err("no loop is called all".into());
        }
        let on = self.loops.len();
        self.loops.push(EventLoop {
            name: name.into(),
            home: Home(on as u64),
            ready: VecDeque::new(),
            is_closed: false,
        });
        Ok(on)
    }

    /// The open loop of that name.
    fn known(&self, name: &str) -> Played<usize> {
        self.position(name)
            .filter(|&on| !self.loops[on].is_closed)
            .ok_or_else(|| format!("no open loop is called {name}"))
    }

    fn position(&self, name: &str) -> Option<usize> {
        (self.first_loop..self.loops.len()).find(|&on| self.loops[on].name == name)
    }
}

fn complete(task: &mut Task, event_loop: &mut EventLoop, name: &str) {
    if !task.is_due {
        task.is_due = true;
        event_loop.ready.push_back(Callback::Resume(name.into()));
    }
}

fn cancel(task: &mut Task, event_loop: &mut EventLoop, name: &str) {
    task.is_cancelled = true;
    complete(task, event_loop, name);
}

fn ask(cost: i64) -> Option<Ask> {
    Ask::new(u32::try_from(cost).ok()?).ok()
}

fn seconds(seconds: f64) -> Played<Duration> {
    if (0.0..=LONGEST_WAIT).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("no such timeout: {seconds}"))
    }
}

/// How a permit classifies an exception that ends its block.
fn outcome_of(raises: Exception) -> Outcome {
    match raises {
        Exception::TimeoutError => Outcome::Overload,
        Exception::CancelledError
        | Exception::GeneratorExit
        | Exception::KeyboardInterrupt
        | Exception::Rejected
        | Exception::ValueError => Outcome::Ignored,
    }
}

fn counts(names: &[&str], counts: &[u64]) -> BTreeMap<String, u64> {
    let pairs = names.iter().zip(counts).filter(|&(_, &count)| count > 0);
    pairs.map(|(name, &count)| ((*name).to_string(), count)).collect()
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

#[allow(clippy::needless_pass_by_value)] // the snapshot is taken to be compared
fn check<T: PartialEq + std::fmt::Debug>(what: &str, expected: Option<T>, got: T) -> Played {
    match expected {
        Some(expected) if expected != got => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}

/// Decimal fractions of a file are not those of a sum.
#[allow(clippy::float_cmp)] // infinity is exact
fn check_near(what: &str, expected: Option<f64>, got: f64) -> Played {
    let is_near = |expected: f64| {
        expected == got || (expected - got).abs() <= 1e-12 * expected.abs().max(1.0)
    };
    check(what, expected.map(is_near), true)
        .map_err(|_| format!("{what}: expected {expected:?}, got {got:?}"))
}
