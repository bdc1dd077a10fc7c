//! The clients' side of a simulation, and its clock.

use std::collections::VecDeque;

use super::arrivals::Source;
use super::events::{Event, Events, Reply};
use super::fleet::Fleet;
use super::job::{Job, JobId, Jobs, Place};
use super::random::{Purpose, draws};
use super::record::{Answer, Attempt, Fate, Gauge, Record, Request};
use super::report::Report;
use super::scenario::{Arrivals, Client, Error, Failure, OnTimeout, Scenario};
use super::stage::{StageRun, Task};
use crate::primitives::{Outcome, RetryPermit, Time};

/// What is kept of each attempt takes about 100 bytes.
const MOST_ATTEMPTS: usize = 20_000_000;

/// Plays a scenario with a seed, in virtual time. The same seed gives the same
/// result, whatever the machine; and with another policy the same requests.
///
/// # Errors
/// If more than 2e7 attempts are made, which would fill the memory.
pub fn simulate(scenario: &Scenario, seed: u64) -> Result<Report, Error> {
    let mut simulation = Simulation::new(scenario, seed)?;
    let horizon = simulation.end.after(super::seconds(scenario.seconds + 60.0));
    simulation.run_until(horizon)?;
    Ok(Report::new(scenario, seed, &simulation.record))
}

#[derive(Debug)]
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    pub(super) now: Time,
    pub(super) events: Events,
    pub(super) jobs: Jobs,
    pub(super) stages: Vec<StageRun>,
    /// What is to be done before time goes on.
    pub(super) tasks: VecDeque<Task>,
    record: Record,
    sources: Vec<SourceRun<'a>>,
    requests: Vec<Pending>,
    /// When arrivals end.
    end: Time,
    most_waiting: u64,
    most_in_flight: u64,
}

#[derive(Debug)]
struct SourceRun<'a> {
    arrivals: &'a Arrivals,
    client: &'a Client,
    class: u16,
    source: Source,
    fleet: Fleet,
    count: u64,
}

/// What is known of a request.
#[derive(Debug)]
struct Pending {
    source: usize,
    /// Which row of the trace it is.
    row: usize,
    attempts: u32,
    retry: Option<RetryPermit>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, Error> {
        let end = Time::from_secs_f64(scenario.seconds);
        let classes = scenario.classes();
        let mut sources = Vec::new();
        for (number, arrivals) in scenario.arrivals.iter().enumerate() {
            let client = arrivals.client.as_ref().unwrap_or(&scenario.client);
            let class = classes.iter().position(|class| *class == arrivals.class);
            sources.push(SourceRun {
                arrivals,
                client,
                class: class.and_then(|class| u16::try_from(class).ok()).unwrap_or(0),
                source: Source::new(arrivals, seed, number)?,
                fleet: Fleet::new(client, seed, number)?,
                count: 0,
            });
        }
        let expected: f64 = { sources.iter() }
            .map(|run: &SourceRun<'_>| run.source.expected(scenario.seconds))
            .sum();
        if expected > MOST_ATTEMPTS as f64 {
            return Err(Error(format!(
                "{}: at most {MOST_ATTEMPTS} requests can be played, and these arrivals are about \
                 {expected:.2e}",
                scenario.name
            )));
        }
        let horizon = end.after(super::seconds(scenario.seconds + 60.0));
        let stages = scenario.stages.iter().enumerate();
        let stages = stages
            .map(|(number, stage)| StageRun::new(stage, seed, number, horizon))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            scenario,
            seed,
            now: Time::ZERO,
            events: Events::default(),
            jobs: Jobs::default(),
            stages,
            tasks: VecDeque::new(),
            record: Record::default(),
            sources,
            requests: Vec::new(),
            end,
            most_waiting: 0,
            most_in_flight: 0,
        })
    }

    /// Plays all that happens until then.
    pub(super) fn run_until(&mut self, horizon: Time) -> Result<(), Error> {
        self.begin();
        while let Some((at, event)) = self.events.next() {
            if at > horizon {
                break;
            }
            self.now = at;
            self.happen(event);
            self.settle();
            self.most_waiting = self.most_waiting.max(self.waiting());
            self.most_in_flight = self.most_in_flight.max(self.in_flight());
            if self.record.attempts.len() > MOST_ATTEMPTS {
                let (at, seconds) = (at.as_secs_f64(), self.scenario.seconds);
                return Err(Error(format!(
                    "{}: more than {MOST_ATTEMPTS} attempts within {at} of {seconds} s; lower the \
                     rates, attempts or seconds",
                    self.scenario.name
                )));
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        for (number, stage) in self.stages.iter().enumerate() {
            for at in stage.server.changes() {
                self.events.plan(at, Event::Change { stage: number });
            }
        }
        for source in 0..self.sources.len() {
            let users = self.sources[source].arrivals.users.unwrap_or(0);
            for _ in 0..users {
                self.events.plan(Time::ZERO, Event::Ask { source });
            }
            self.plan_arrival(source);
        }
        self.plan_look();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { source } => {
                self.request(source);
                self.plan_arrival(source);
            }
            Event::Ask { source } => {
                if self.now < self.end {
                    self.request(source);
                }
            }
            Event::Retry { request } => self.send(request),
            Event::Reach { job } => self.admit(job, 0),
            Event::Timeout { job } => self.time_out(job),
            Event::Change { stage } => self.tasks.push_back(Task::Serve { stage }),
            Event::Worked { job } => self.worked(job),
            Event::Paid { stage } => self.paid(stage),
            Event::Served { job } => self.served(job),
            Event::Expire { stage } => self.expire(stage),
            Event::Answer { job, reply } => self.answered(job, reply),
            Event::Look => self.look(),
        }
    }

    fn plan_arrival(&mut self, source: usize) {
        let run = &mut self.sources[source];
        let next = run.source.next(self.now, run.count);
        if let Some(at) = next.filter(|at| *at < self.end) {
            self.events.plan(at, Event::Arrive { source });
        }
    }

    fn request(&mut self, source: usize) {
        let run = &mut self.sources[source];
        let row = usize::try_from(run.count).unwrap_or(usize::MAX);
        run.count += 1;
        let request = self.requests.len();
        run.fleet.record_request(self.now, request);
        let class = run.class;
        self.record.requests.push(Request { arrived: self.now, class, is_good: false });
        self.requests.push(Pending { source, row, attempts: 0, retry: None });
        self.send(request);
    }

    /// Sends an attempt, unless the throttle forbids it.
    fn send(&mut self, request: usize) {
        let pending = &mut self.requests[request];
        let (source, attempt) = (pending.source, pending.attempts);
        pending.attempts += 1;
        let run = &mut self.sources[source];
        let (client, class) = (run.client, run.class);
        let criticality = run.arrivals.criticality.into();
        let is_allowed = run.fleet.allows(self.now, request, criticality);
        let fate = if is_allowed { Fate::Open } else { Fate::Throttled };
        let record = self.record.attempts.len();
        self.record.attempts.push(Attempt { sent: self.now, class, fate });
        if !is_allowed {
            self.give_retry_back(request);
            return self.failed(request, Failure::Rejected, None);
        }
        let deadline = client.deadline.map(|span| self.now.after(super::seconds(span)));
        let job = self.jobs.insert(Job {
            request,
            attempt,
            source,
            record,
            criticality,
            sent: self.now,
            begun: self.now,
            deadline,
            stage: 0,
            place: Place::OnTheWay,
            held: Vec::new(),
            is_given_up: false,
        });
        if let Some(timeout) = client.timeout {
            self.events.plan(self.now.after(super::seconds(timeout)), Event::Timeout { job });
        }
        match self.network(source, request, attempt, Purpose::There) {
            Some(at) => self.events.plan(at, Event::Reach { job }),
            None => self.admit(job, 0),
        }
    }

    /// When a message has arrived that is sent now, if that takes time.
    fn network(&self, source: usize, request: usize, attempt: u32, way: Purpose) -> Option<Time> {
        let network = self.sources[source].client.network.as_ref()?;
        let mut random = draws(self.seed, way, request as u64, u64::from(attempt));
        Some(self.now.after(super::seconds(network.draw(&mut random, None))))
    }

    /// Sends the answer to the client.
    pub(super) fn reply(&mut self, id: JobId, reply: Reply) {
        let Some(job) = self.jobs.get(id) else { return };
        job.place = Place::Answered;
        let (source, request, attempt) = (job.source, job.request, job.attempt);
        match self.network(source, request, attempt, Purpose::Back) {
            Some(at) => self.events.plan(at, Event::Answer { job: id, reply }),
            None => self.answered(id, reply),
        }
    }

    fn answered(&mut self, id: JobId, reply: Reply) {
        let Some(job) = self.jobs.remove(id) else { return };
        let is_good = reply == Reply::Success && !job.is_given_up;
        let run = &mut self.sources[job.source];
        if reply == Reply::Success {
            let latency = u64::try_from(self.now.since(job.sent).as_nanos()).unwrap_or(u64::MAX);
            let class = run.class;
            self.record.answers.push(Answer { at: self.now, latency, class, is_good });
        }
        if job.is_given_up {
            return;
        }
        let (fate, outcome) = match reply {
            Reply::Success => (Fate::Good, Outcome::Success),
            Reply::Failed(outcome) => (Fate::Failed, outcome),
            Reply::Rejected(_) => (Fate::Rejected, Outcome::Overload),
        };
        self.record.attempts[job.record].fate = fate;
        run.fleet.record(self.now, job.request, outcome);
        self.give_retry_back(job.request);
        match reply {
            Reply::Success => {
                self.record.requests[job.request].is_good = true;
                self.over(job.request);
            }
            Reply::Failed(_) => self.failed(job.request, Failure::Failed, None),
            Reply::Rejected(told) => self.failed(job.request, Failure::Rejected, told),
        }
    }

    fn time_out(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        job.is_given_up = true;
        let (source, request) = (job.source, job.request);
        self.record.attempts[job.record].fate = Fate::Late;
        match self.sources[source].client.on_timeout {
            OnTimeout::GoOn => {}
            OnTimeout::Release => self.give_up(id, false),
            OnTimeout::Cancel => self.give_up(id, true),
        }
        self.sources[source].fleet.record(self.now, request, Outcome::Overload);
        self.give_retry_back(request);
        self.failed(request, Failure::Timeout, None);
    }

    fn give_retry_back(&mut self, request: usize) {
        let pending = &mut self.requests[request];
        if let Some(permit) = pending.retry.take() {
            self.sources[pending.source].fleet.release(request, permit);
        }
    }

    /// Plans the next attempt, if there is to be one.
    fn failed(&mut self, request: usize, failure: Failure, told: Option<std::time::Duration>) {
        let pending = &self.requests[request];
        let (source, attempts) = (pending.source, pending.attempts);
        let run = &mut self.sources[source];
        let client = run.client;
        if attempts >= client.attempts || !client.retry.on.contains(&failure) {
            return self.over(request);
        }
        let Ok(permit) = run.fleet.try_retry(self.now, request) else {
            return self.over(request);
        };
        self.requests[request].retry = permit;
        let told = told.filter(|_| client.retry.as_told);
        let wait =
            told.unwrap_or_else(|| super::seconds(client.backoff(self.seed, request, attempts)));
        self.events.plan(self.now.after(wait), Event::Retry { request });
    }

    /// A request is over: if a user sent it, there will be another one.
    fn over(&mut self, request: usize) {
        let source = self.requests[request].source;
        let run = &self.sources[source];
        if run.arrivals.users.is_none() {
            return;
        }
        let mut random = draws(self.seed, Purpose::Think, request as u64, 0);
        let think = { run.arrivals.think.as_ref() }.map_or(0.0, |it| it.draw(&mut random, None));
        // Who is answered at once and does not think would hold the time up.
        let pause = super::seconds(think).max(std::time::Duration::from_micros(1));
        self.events.plan(self.now.after(pause), Event::Ask { source });
    }

    /// What the trace says of a request.
    pub(super) fn row(&self, request: usize) -> Option<(&[String], &[f64])> {
        let pending = self.requests.get(request)?;
        let arrivals = self.sources.get(pending.source)?.arrivals;
        arrivals.trace.as_ref()?;
        Some((&arrivals.table.columns, arrivals.table.rows.get(pending.row)?))
    }

    pub(super) fn operation(&self, source: usize) -> Option<&'a str> {
        self.sources.get(source)?.arrivals.operation.as_deref()
    }

    fn waiting(&self) -> u64 {
        self.stages.iter().map(|stage| stage.waiting() as u64).sum()
    }

    fn in_flight(&self) -> u64 {
        self.stages.first().map_or(0, StageRun::in_flight)
    }

    fn look(&mut self) {
        self.record.gauges.push(Gauge {
            at: self.now,
            limit: self.stages.iter().find_map(StageRun::limit).unwrap_or(f64::NAN),
            because: self.stages.iter().find_map(StageRun::because),
            in_flight: self.in_flight(),
            waiting: self.most_waiting,
            in_flight_max: self.most_in_flight,
        });
        self.most_waiting = self.waiting();
        self.most_in_flight = self.in_flight();
        self.plan_look();
    }

    /// The last step may be shorter than the others.
    fn plan_look(&mut self) {
        if self.now < self.end {
            let next = self.now.after(super::seconds(self.scenario.step)).min(self.end);
            self.events.plan(next, Event::Look);
        }
    }
}

#[cfg(test)]
impl Simulation<'_> {
    /// Nobody is on the way or waits, nobody holds anything, and all attempts have
    /// come to what they came to.
    pub(super) fn assert_at_rest(&mut self) {
        assert_eq!(self.jobs.len(), 0, "on their way");
        assert!(self.tasks.is_empty());
        for stage in &self.stages {
            stage.assert_at_rest();
        }
        assert!(self.requests.iter().all(|request| request.retry.is_none()), "retries are held");
        let record = &self.record;
        assert_eq!(record.requests.len(), self.requests.len());
        let count = |fate: Fate| record.attempts.iter().filter(|it| it.fate == fate).count();
        assert_eq!(count(Fate::Open), 0, "nobody knows what came of them");
        let good = record.requests.iter().filter(|request| request.is_good).count();
        assert_eq!(good, count(Fate::Good));
        assert_eq!(good, record.answers.iter().filter(|answer| answer.is_good).count());
        let attempts: u32 = self.requests.iter().map(|request| request.attempts).sum();
        assert_eq!(attempts as usize, record.attempts.len());
        for (request, known) in self.requests.iter().zip(&record.requests) {
            let most = self.sources[request.source].client.attempts;
            assert!((1..=most).contains(&request.attempts));
            assert!(known.arrived < self.end);
        }
        assert!(record.answers.len() <= record.attempts.len());
    }
}
