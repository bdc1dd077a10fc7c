//! The servers' side of a simulation: how a request passes the links of a policy, is
//! served, and gives back what it was given.

use std::time::Duration;

use super::engine::Simulation;
use super::events::{Event, Reply};
use super::job::{Held, JobId, Place, What};
use super::policy::{Admitted, Limiter, Link, Order, Plain};
use super::random::{Purpose, draws};
use super::scenario::{Error, Stage};
use super::server::{Server, Turn};
use crate::primitives::gradient::Because;
use crate::primitives::{
    CoDelQueue, GateAsk, News, Offer, Outcome, Ticket, Time, TokenAsk, TokenBucket, Wakes,
};

#[derive(Debug)]
pub(super) struct StageRun {
    links: Vec<Stand>,
    pub(super) server: Server,
    /// For when it is planned to look at the time.
    planned: Time,
}

/// A link of the policy at work.
#[derive(Debug)]
enum Stand {
    Limiter(Box<Limiter>),
    Bucket(Box<TokenBucket<JobId>>),
    Plain(Plain),
    Queue(Box<CoDelQueue<JobId>>),
}

/// What is to be done before time goes on.
#[derive(Debug)]
pub(super) enum Task {
    /// Give free workers something to do.
    Serve { stage: usize },
    /// Somebody's turn has come at a limiter.
    Wake { stage: usize, link: usize, ticket: Ticket, job: JobId },
}

impl StageRun {
    pub(super) fn new(
        stage: &Stage,
        seed: u64,
        number: usize,
        horizon: Time,
    ) -> Result<Self, Error> {
        let link = |(position, link): (usize, &Link)| {
            let seed = draws(seed, Purpose::Policy, number as u64, position as u64).bits();
            Ok(match link {
                Link::Fifo(link) => Stand::Plain(Plain::new(Order::OldestFirst, link)),
                Link::Lifo(link) => Stand::Plain(Plain::new(Order::NewestFirst, link)),
                Link::Bucket(link) => Stand::Bucket(Box::new(link.build()?)),
                Link::Codel(link) => Stand::Queue(Box::new(CoDelQueue::new(link.config())?)),
                link => Stand::Limiter(Box::new(Limiter::new(link, seed)?)),
            })
        };
        Ok(Self {
            links: stage.policy.0.iter().enumerate().map(link).collect::<Result<_, Error>>()?,
            server: Server::new(stage, horizon),
            planned: Time::MAX,
        })
    }

    pub(super) fn waiting(&self) -> usize {
        let in_links = self.links.iter().map(|link| match link {
            Stand::Limiter(limiter) => limiter.waiting(),
            Stand::Bucket(_) => 0,
            Stand::Plain(queue) => queue.len(),
            Stand::Queue(queue) => queue.depth(),
        });
        in_links.sum::<usize>() + self.server.waiting()
    }

    fn limiter(&self) -> Option<&Limiter> {
        self.links.iter().find_map(|link| match link {
            Stand::Limiter(limiter) => Some(&**limiter),
            _ => None,
        })
    }

    pub(super) fn limit(&self) -> Option<f64> {
        self.limiter().map(Limiter::limit)
    }

    pub(super) fn because(&self) -> Option<Because> {
        self.limiter().and_then(Limiter::because)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.limiter().map_or(self.server.in_flight, Limiter::in_flight)
    }

    fn next_expiry(&self) -> Option<Time> {
        let expiries = self.links.iter().filter_map(|link| match link {
            Stand::Limiter(limiter) => limiter.next_expiry(),
            Stand::Bucket(_) | Stand::Plain(_) => None,
            Stand::Queue(queue) => queue.next_expiry(),
        });
        expiries.min()
    }
}

#[cfg(test)]
impl StageRun {
    pub(super) fn assert_at_rest(&self) {
        self.server.assert_at_rest();
        for link in &self.links {
            match link {
                Stand::Limiter(limiter) => {
                    assert_eq!((limiter.in_flight(), limiter.waiting()), (0, 0));
                }
                Stand::Bucket(_) => {}
                Stand::Plain(queue) => assert_eq!(queue.len(), 0),
                Stand::Queue(queue) => {
                    assert_eq!((queue.len(), queue.working(), queue.has_news()), (0, 0, false));
                }
            }
        }
    }
}

impl Simulation<'_> {
    /// Lets a request pass the links of its stage from `link` on, as far as it goes.
    pub(super) fn admit(&mut self, id: JobId, mut link: usize) {
        let Some(job) = self.jobs.get(id) else { return };
        let (source, number, deadline) = (job.source, job.stage, job.deadline);
        let is_named = self.scenario.stages[number].named;
        let operation = self.operation(source).filter(|_| is_named);
        loop {
            let (now, stage) = (self.now, &mut self.stages[number]);
            let Some(job) = self.jobs.get(id) else { return };
            let Some(stand) = stage.links.get_mut(link) else { break };
            match stand {
                Stand::Limiter(limiter) => {
                    let mut ask = GateAsk { deadline, operation, ..GateAsk::one() };
                    ask.ask.criticality = job.criticality;
                    let (admitted, wakes) = limiter.acquire(now, id, &ask);
                    self.wake(number, link, wakes);
                    let Some(job) = self.jobs.get(id) else { return };
                    match admitted {
                        Admitted::Now(permit) => {
                            job.held.push(Held { stage: number, link, what: What::Permit(permit) });
                            link += 1;
                        }
                        Admitted::Waits(ticket) => {
                            job.place = Place::Line { link, ticket };
                            return;
                        }
                        Admitted::Not(rejection) => return self.reject(id, rejection.retry_after),
                    }
                }
                Stand::Bucket(bucket) => {
                    if bucket.try_take(now, &TokenAsk::one()) != Ok(true) {
                        let told = bucket.retry_after(now, &TokenAsk::one()).ok();
                        return self.reject(id, told);
                    }
                    link += 1;
                }
                Stand::Plain(queue) => {
                    if !queue.push(id, deadline) {
                        return self.reject(id, None);
                    }
                    job.place = Place::Queued { link };
                    return self.tasks.push_back(Task::Serve { stage: number });
                }
                Stand::Queue(queue) => {
                    let offer = Offer {
                        criticality: job.criticality,
                        deadline,
                        operation,
                        ..Offer::default()
                    };
                    let answer = queue.push(now, id, &offer);
                    self.hear(number, link);
                    match answer {
                        Ok(item) => {
                            if let Some(job) = self.jobs.get(id) {
                                job.place = Place::Item { link, item };
                            }
                            self.tasks.push_back(Task::Serve { stage: number });
                        }
                        Err((_, rejection)) => self.reject(id, rejection.retry_after),
                    }
                    return;
                }
            }
        }
        if let Some(job) = self.jobs.get(id) {
            job.place = Place::Backlog;
            self.stages[number].server.enter(id);
            self.tasks.push_back(Task::Serve { stage: number });
        }
    }

    /// Does what is to be done before time goes on.
    pub(super) fn settle(&mut self) {
        while let Some(task) = self.tasks.pop_front() {
            match task {
                Task::Serve { stage } => self.serve(stage),
                Task::Wake { stage, link, ticket, job } => self.claim(stage, link, ticket, job),
            }
        }
        for stage in 0..self.stages.len() {
            self.plan_expiry(stage);
        }
    }

    fn plan_expiry(&mut self, number: usize) {
        let stage = &mut self.stages[number];
        let next = stage.next_expiry().map(|at| at.max(self.now));
        if let Some(at) = next.filter(|at| *at < stage.planned) {
            stage.planned = at;
            self.events.plan(at, Event::Expire { stage: number });
        }
    }

    pub(super) fn expire(&mut self, number: usize) {
        if self.stages[number].planned != self.now {
            return; // An earlier look was planned since, and has planned the next one.
        }
        self.stages[number].planned = Time::MAX;
        for link in 0..self.stages[number].links.len() {
            match &mut self.stages[number].links[link] {
                Stand::Limiter(limiter) => {
                    let wakes = limiter.expire(self.now);
                    self.wake(number, link, wakes);
                }
                Stand::Bucket(_) | Stand::Plain(_) => {}
                Stand::Queue(queue) => {
                    queue.expire(self.now);
                    self.hear(number, link);
                }
            }
        }
    }

    fn wake(&mut self, stage: usize, link: usize, wakes: Wakes<JobId>) {
        let tasks = wakes.into_iter().map(|wake| Task::Wake {
            stage,
            link,
            ticket: wake.ticket,
            job: wake.waiter,
        });
        self.tasks.extend(tasks);
    }

    fn claim(&mut self, number: usize, link: usize, ticket: Ticket, id: JobId) {
        let Stand::Limiter(limiter) = &mut self.stages[number].links[link] else { return };
        let (answer, wakes) = limiter.claim(self.now, ticket, id);
        self.wake(number, link, wakes);
        let Some(job) = self.jobs.get(id) else { return };
        match answer {
            Some(Admitted::Now(permit)) => {
                job.place = Place::OnTheWay;
                job.held.push(Held { stage: number, link, what: What::Permit(permit) });
                self.admit(id, link + 1);
            }
            Some(Admitted::Not(rejection)) => self.reject(id, rejection.retry_after),
            Some(Admitted::Waits(_)) | None => {}
        }
    }

    /// Takes from the queues what there is room for, and gives it to free workers.
    fn serve(&mut self, number: usize) {
        for link in (0..self.stages[number].links.len()).rev() {
            while self.hand_out(number, link) {
                self.work(number);
            }
        }
        self.work(number);
    }

    /// Takes the next one out of a queue, if what comes behind has room.
    fn hand_out(&mut self, number: usize, link: usize) -> bool {
        self.reject_late(number, link);
        let (now, stage) = (self.now, &mut self.stages[number]);
        let is_empty = match &stage.links[link] {
            Stand::Limiter(_) | Stand::Bucket(_) => true,
            Stand::Plain(queue) => queue.len() == 0,
            Stand::Queue(queue) => queue.depth() == 0,
        };
        if is_empty {
            return false;
        }
        let permit = match stage.links.get_mut(link + 1) {
            Some(Stand::Limiter(limiter)) if !limiter.is_gate() => match limiter.try_acquire(now) {
                Some(permit) => Some(permit),
                None => return false,
            },
            Some(_) => None,
            None if stage.server.has_idle(now) => None,
            None => return false,
        };
        let (id, work) = match &mut stage.links[link] {
            Stand::Limiter(_) | Stand::Bucket(_) => return false,
            Stand::Plain(queue) => match queue.pop() {
                Some(id) => (id, None),
                None => return false,
            },
            Stand::Queue(queue) => match queue.pop(now) {
                Some(taken) => (taken.item, Some(queue.begin(&taken))),
                None => return false,
            },
        };
        self.hear(number, link);
        let Some(job) = self.jobs.get(id) else { return true };
        job.place = Place::OnTheWay;
        if let Some(work) = work {
            job.held.push(Held { stage: number, link, what: What::Work(work) });
        }
        let mut next = link + 1;
        if let Some(permit) = permit {
            job.held.push(Held { stage: number, link: next, what: What::Permit(permit) });
            next += 1;
        }
        self.admit(id, next);
        true
    }

    /// Rejects what is not worth to be served any more.
    fn reject_late(&mut self, number: usize, link: usize) {
        loop {
            match &mut self.stages[number].links[link] {
                Stand::Limiter(_) | Stand::Bucket(_) => return,
                Stand::Plain(queue) => match queue.pop_late(self.now) {
                    Some(id) => self.reject(id, None),
                    None => return,
                },
                Stand::Queue(queue) => {
                    queue.expire(self.now);
                    return self.hear(number, link);
                }
            }
        }
    }

    /// Gives free workers something to do.
    fn work(&mut self, number: usize) {
        while let Some(turn) = self.stages[number].server.next(self.now) {
            match turn {
                Turn::Rejection => {
                    let cost = self.scenario.stages[number].rejection_cost;
                    if let Some(at) = self.stages[number].server.done_at(self.now, cost) {
                        self.events.plan(at, Event::Paid { stage: number });
                    }
                }
                Turn::Job(id) => {
                    let Some(job) = self.jobs.get(id) else {
                        self.stages[number].server.free();
                        continue;
                    };
                    (job.place, job.begun) = (Place::Worked, self.now);
                    let span = self.span(id, Purpose::Service);
                    if let Some(at) = self.stages[number].server.done_at(self.now, span) {
                        self.events.plan(at, Event::Worked { job: id });
                    }
                }
            }
        }
    }

    /// How long service or delay takes, in seconds.
    fn span(&mut self, id: JobId, purpose: Purpose) -> f64 {
        let Some(job) = self.jobs.get(id) else { return 0.0 };
        let (request, attempt, number, source) = (job.request, job.attempt, job.stage, job.source);
        let stage = &self.scenario.stages[number];
        let of_operation = || stage.operations.get(self.operation(source)?);
        let distribution = match purpose {
            Purpose::Service => Some(of_operation().unwrap_or(&stage.service)),
            _ => stage.delay.as_ref(),
        };
        let Some(distribution) = distribution else { return 0.0 };
        let part = u64::from(attempt) << 8 | number as u64;
        let mut random = draws(self.seed, purpose, request as u64, part);
        distribution.at(self.now).draw(&mut random, self.row(request))
    }

    pub(super) fn worked(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let number = job.stage;
        job.place = Place::Delayed;
        let stage = &mut self.stages[number];
        stage.server.free();
        let by_load = self.scenario.stages[number].delay_per_in_flight;
        let delay = by_load * stage.server.in_flight as f64;
        let delay = delay + self.span(id, Purpose::Delay);
        self.tasks.push_back(Task::Serve { stage: number });
        if delay > 0.0 {
            let at = self.now.after(super::seconds(delay));
            self.events.plan(at, Event::Served { job: id });
        } else {
            self.served(id);
        }
    }

    pub(super) fn paid(&mut self, stage: usize) {
        self.stages[stage].server.free();
        self.tasks.push_back(Task::Serve { stage });
    }

    /// The work at one stage is done.
    pub(super) fn served(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let number = job.stage;
        self.stages[number].server.in_flight -= 1;
        let outcome = Outcome::from(*self.scenario.stages[number].outcome.at(job.begun));
        job.place = Place::OnTheWay;
        if outcome == Outcome::Success && number + 1 < self.stages.len() {
            job.stage += 1;
            return self.admit(id, 0);
        }
        self.give_back(id, outcome);
        let is_success = outcome == Outcome::Success;
        self.reply(id, if is_success { Reply::Success } else { Reply::Failed(outcome) });
    }

    /// Gives back what a request was given: with this outcome at the stage where it
    /// is; to those before, what went wrong there is none of theirs.
    fn give_back(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.jobs.get(id) else { return };
        let (source, last) = (job.source, job.stage);
        let held = std::mem::take(&mut job.held);
        for Held { stage: number, link, what } in held.into_iter().rev() {
            let is_success = outcome == Outcome::Success;
            let outcome = if number == last || is_success { outcome } else { Outcome::Ignored };
            let is_named = self.scenario.stages[number].named;
            let operation = self.operation(source).filter(|_| is_named);
            match (what, &mut self.stages[number].links[link]) {
                (What::Permit(permit), Stand::Limiter(limiter)) => {
                    let wakes = limiter.release(self.now, permit, outcome, operation);
                    self.wake(number, link, wakes);
                }
                (What::Work(work), Stand::Queue(queue)) => {
                    queue.finish(self.now, work, is_success);
                    self.hear(number, link);
                }
                _ => {}
            }
            self.tasks.push_back(Task::Serve { stage: number });
        }
    }

    fn reject(&mut self, id: JobId, told: Option<Duration>) {
        let Some(job) = self.jobs.get(id) else { return };
        let number = job.stage;
        job.place = Place::OnTheWay;
        if self.scenario.stages[number].rejection_cost > 0.0 {
            self.stages[number].server.charge();
            self.tasks.push_back(Task::Serve { stage: number });
        }
        self.give_back(id, Outcome::Ignored);
        self.reply(id, Reply::Rejected(told));
    }

    /// Rejects what a queue has rejected.
    fn hear(&mut self, number: usize, link: usize) {
        let Stand::Queue(queue) = &mut self.stages[number].links[link] else { return };
        if !queue.has_news() {
            return;
        }
        for news in queue.take_news() {
            if let News::Rejected(id, rejection) = news {
                self.reject(id, rejection.retry_after);
            }
        }
    }

    /// The client has left: whoever waits leaves the line; work goes on, without what
    /// it was given, or ends.
    pub(super) fn give_up(&mut self, id: JobId, ends: bool) {
        let Some(job) = self.jobs.get(id) else { return };
        let (number, place) = (job.stage, job.place);
        let stage = &mut self.stages[number];
        match place {
            Place::Queued { link } => {
                if let Stand::Plain(queue) = &mut stage.links[link] {
                    queue.remove(id);
                }
            }
            Place::Item { link, item } => {
                if let Stand::Queue(queue) = &mut stage.links[link] {
                    let _ = queue.cancel(self.now, item);
                    self.hear(number, link);
                }
            }
            Place::Line { link, ticket } => {
                if let Stand::Limiter(limiter) = &mut stage.links[link] {
                    let wakes = limiter.cancel(self.now, ticket);
                    self.wake(number, link, wakes);
                }
            }
            Place::Backlog | Place::Worked | Place::Delayed if ends => {
                stage.server.in_flight -= 1;
                match place {
                    Place::Backlog => stage.server.remove(id),
                    Place::Worked => stage.server.free(),
                    _ => {}
                }
            }
            Place::Backlog | Place::Worked | Place::Delayed | Place::Answered => {
                return self.give_back(id, Outcome::Ignored);
            }
            Place::OnTheWay => {}
        }
        self.give_back(id, Outcome::Ignored);
        self.tasks.push_back(Task::Serve { stage: number });
        self.jobs.remove(id);
    }
}
