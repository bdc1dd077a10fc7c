use std::collections::{BTreeMap, VecDeque};

use sluicegate::primitives::{Home, Ticket, Time, Waitable, Wakes};

use super::awaited::{Asking, Awaited, Claimed, Reply};
use super::checks::Played;
use super::format::Answer;

/// Where a step runs: on a loop, or in a plain thread.
pub type Place = Option<usize>;

/// A waiter is woken by its name.
#[derive(Debug)]
pub struct Sleeper(String);

/// A task that waits.
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
struct EventLoop<T> {
    name: String,
    home: Home,
    ready: VecDeque<Callback<T>>,
    is_closed: bool,
}

enum Callback<T> {
    /// The first step of a task.
    Start(Asking<T>),
    /// A signal from another thread: completes the task's future.
    Signal(String),
    /// The task goes on after its future is done.
    Resume(String),
}

/// The event loops and the tasks that wait on them.
pub struct Loops<S: Awaited> {
    all: Vec<EventLoop<S::Wish>>,
    /// Loops before this one are of the parent process.
    first: usize,
    tasks: BTreeMap<String, Task>,
    /// What those were answered who had waited, during this step, in order.
    answered: Vec<(String, String)>,
}

impl<S: Awaited> Loops<S> {
    pub fn new() -> Self {
        Self { all: Vec::new(), first: 0, tasks: BTreeMap::new(), answered: Vec::new() }
    }

    pub fn begin_step(&mut self) {
        self.answered.clear();
    }

    /// The loop of that name, made if need be.
    pub fn open(&mut self, name: &str) -> Played<usize> {
        if let Some(on) = self.position(name) {
            return if self.all[on].is_closed {
                Err(format!("the loop {name} is closed"))
            } else {
                Ok(on)
            };
        }
        if name == "all" {
            return Err("no loop is called all".into());
        }
        let on = self.all.len();
        self.all.push(EventLoop {
            name: name.into(),
            home: Home(on as u64),
            ready: VecDeque::new(),
            is_closed: false,
        });
        Ok(on)
    }

    /// The same for a step that may also run in a plain thread.
    pub fn place(&mut self, name: Option<&str>) -> Played<Place> {
        name.map(|name| self.open(name)).transpose()
    }

    pub fn home(&self, place: Place) -> Home {
        place.map_or(Home(u64::MAX), |on| self.all[on].home)
    }

    pub fn check_free(&self, subject: &S, name: &str) -> Played {
        if self.tasks.contains_key(name) || subject.is_taken(name) {
            return Err(format!("{name} is taken"));
        }
        Ok(())
    }

    /// Those who had waited and were answered so during this step.
    pub fn answered(&self, with: &str) -> impl Iterator<Item = &str> {
        let those = self.answered.iter().filter(move |(_, answer)| answer == with);
        those.map(|(name, _)| name.as_str())
    }

    /// A new task asks on a loop, which runs until it is idle.
    pub fn start(
        &mut self,
        subject: &mut S,
        now: Time,
        on: &str,
        task: Asking<S::Wish>,
    ) -> Played<Answer> {
        let on = self.open(on)?;
        self.check_free(subject, &task.name)?;
        self.all[on].ready.push_back(Callback::Start(task));
        self.settle(subject, now, on).map(Answer::Word)
    }

    /// Wakes, from `here` if a loop runs; whoever cannot be woken is passed over.
    pub fn deliver(&mut self, subject: &mut S, now: Time, wakes: Wakes<Sleeper>, here: Place) {
        let mut queue: VecDeque<_> = wakes.into_iter().collect();
        while let Some(wake) = queue.pop_front() {
            let Sleeper(name) = wake.waiter;
            let Some(task) = self.tasks.get_mut(&name) else {
                continue;
            };
            let event_loop = &mut self.all[task.on];
            if here == Some(task.on) {
                task.complete(event_loop, &name);
            } else if !event_loop.is_closed {
                event_loop.ready.push_back(Callback::Signal(name));
            } else if !task.is_due {
                queue.extend(subject.primitive_mut().cancel(now, wake.ticket));
            }
        }
    }

    /// Lets happen what the passing of time brings.
    pub fn advance(&mut self, subject: &mut S, from: Time, to: Time) -> Played {
        let mut now = from;
        while let Some(due) = subject.primitive().next_expiry().filter(|&due| due <= to) {
            now = now.max(due);
            let wakes = subject.primitive_mut().expire(now, None);
            self.deliver(subject, now, wakes, None);
            if subject.primitive().next_expiry() == Some(due) {
                return Err(format!("what was due at {due:?} is due still"));
            }
        }
        let wakes = subject.primitive_mut().expire(to, None);
        self.deliver(subject, to, wakes, None);
        Ok(())
    }

    pub fn cancel(&mut self, subject: &mut S, now: Time, name: &str) -> Played {
        let Some(task) = self.tasks.get_mut(name) else {
            return Err(format!("{name} does not wait"));
        };
        let on = task.on;
        if self.all[on].is_closed {
            return Err(format!("{name} waits on a closed loop"));
        }
        task.cancel(&mut self.all[on], name);
        self.settle(subject, now, on).map(drop)
    }

    pub fn tick(&mut self, subject: &mut S, now: Time, on: usize) -> Played {
        for _ in 0..self.all[on].ready.len() {
            self.run_one(subject, now, on)?;
        }
        Ok(())
    }

    /// Runs a loop until it is idle; how a task that started there fared.
    pub fn settle(&mut self, subject: &mut S, now: Time, on: usize) -> Played<String> {
        let mut answer = String::from("done");
        while !self.all[on].ready.is_empty() {
            answer = self.run_one(subject, now, on)?.unwrap_or(answer);
        }
        Ok(answer)
    }

    pub fn settle_all(&mut self, subject: &mut S, now: Time) -> Played {
        while self.all.iter().any(|one| !one.ready.is_empty()) {
            for on in self.first..self.all.len() {
                self.settle(subject, now, on)?;
            }
        }
        Ok(())
    }

    fn run_one(&mut self, subject: &mut S, now: Time, on: usize) -> Played<Option<String>> {
        match self.all[on].ready.pop_front() {
            None => Ok(None),
            Some(Callback::Start(task)) => Ok(Some(self.begin(subject, now, &task, on))),
            Some(Callback::Signal(name)) => {
                if let Some(task) = self.tasks.get_mut(&name) {
                    task.complete(&mut self.all[on], &name);
                }
                Ok(None)
            }
            Some(Callback::Resume(name)) => self.resume(subject, now, name, on).map(|()| None),
        }
    }

    fn begin(&mut self, subject: &mut S, now: Time, task: &Asking<S::Wish>, on: usize) -> String {
        let mut sleeper = Some(Sleeper(task.name.clone()));
        let (reply, wakes) = subject.ask(now, self.all[on].home, task, &mut sleeper);
        let (answer, ticket) = match reply {
            Reply::Answered(answer) => (answer, None),
            Reply::Waiting(ticket) if task.is_cancelled => ("cancelled".into(), Some(ticket)),
            Reply::Waiting(ticket) => ("waiting".into(), Some(ticket)),
        };
        if let Some(ticket) = ticket {
            let mut waiting = Task { ticket, on, is_due: false, is_cancelled: false };
            if task.is_cancelled {
                waiting.cancel(&mut self.all[on], &task.name);
            }
            self.tasks.insert(task.name.clone(), waiting);
        }
        self.deliver(subject, now, wakes, Some(on));
        answer
    }

    fn resume(&mut self, subject: &mut S, now: Time, name: String, on: usize) -> Played {
        let Some(task) = self.tasks.get_mut(&name) else {
            return Err(format!("{name} runs, but does not wait"));
        };
        let ticket = task.ticket;
        if task.is_cancelled {
            self.tasks.remove(&name);
            let wakes = subject.primitive_mut().cancel(now, ticket);
            self.deliver(subject, now, wakes, Some(on));
            return Ok(());
        }
        task.is_due = false;
        let (claimed, wakes) = subject.claim(now, &name, ticket);
        match claimed {
            Claimed::Answered(answer) => {
                self.tasks.remove(&name);
                self.answered.push((name, answer));
            }
            Claimed::Waiting => {
                if subject.primitive_mut().renew(ticket, Sleeper(name)).is_err() {
                    return Err("a waiting ticket could not be renewed".into());
                }
            }
        }
        self.deliver(subject, now, wakes, Some(on));
        Ok(())
    }

    /// Cancels all that wait.
    pub fn cancel_all(&mut self, subject: &mut S, now: Time) -> Played {
        let names: Vec<_> = self.tasks.keys().cloned().collect();
        for name in names {
            let is_open = |task: &Task| !self.all[task.on].is_closed;
            if self.tasks.get(&name).is_some_and(is_open) {
                self.cancel(subject, now, &name)?;
            }
        }
        for task in std::mem::take(&mut self.tasks).into_values() {
            let wakes = subject.primitive_mut().cancel(now, task.ticket);
            self.deliver(subject, now, wakes, None);
        }
        Ok(())
    }

    /// Closes a loop under its tasks.
    pub fn close(&mut self, on: usize) {
        self.all[on].is_closed = true;
        self.all[on].ready.clear();
    }

    pub fn fork(&mut self) {
        self.first = self.all.len();
        for event_loop in &mut self.all {
            event_loop.ready.clear();
        }
        self.tasks.clear();
    }

    /// The open loop of that name.
    pub fn known(&self, name: &str) -> Played<usize> {
        self.position(name)
            .filter(|&on| !self.all[on].is_closed)
            .ok_or_else(|| format!("no open loop is called {name}"))
    }

    fn position(&self, name: &str) -> Option<usize> {
        (self.first..self.all.len()).find(|&on| self.all[on].name == name)
    }
}

impl Task {
    fn complete<T>(&mut self, event_loop: &mut EventLoop<T>, name: &str) {
        if !self.is_due {
            self.is_due = true;
            event_loop.ready.push_back(Callback::Resume(name.into()));
        }
    }

    fn cancel<T>(&mut self, event_loop: &mut EventLoop<T>, name: &str) {
        self.is_cancelled = true;
        self.complete(event_loop, name);
    }
}
