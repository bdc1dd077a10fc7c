use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluicegate::primitives::{
    Ask, Criticality, Gate as Primitive, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit,
    GradientConfig, Home, LimitUpdate, Outcome, Permit, Rate, Reason, Rejection, Reserve, Ticket,
    Time, TokenAsk, TokenBucket, Waitable, Wakes,
};

use super::awaited::{Asking, Awaited, Claimed, Reply, timeout};
use super::checks::{
    Played, check, check_counts, check_least, check_most, check_names, check_near, check_rejected,
};
use super::format::Answer;
use super::gate_steps::{Action, Coming, Config, Other, Then, Update};
use super::loops::{Loops, Place, Sleeper};
use super::words::{Class, numbered, same_answer, span};

const MAX_TOKENS: f64 = 1e9;
const LATEST: f64 = 3600.0;

/// What a task asks for.
pub enum Wish {
    Seat(Wanted),
    /// That nothing is in flight.
    End(Option<Duration>),
}

/// What is asked of the gate.
#[derive(Clone)]
pub struct Wanted {
    cost: i64,
    class: Class,
    deadline: Option<f64>,
    tokens: f64,
    operation: Option<String>,
    is_retry: bool,
}

/// The bucket of a gate, if it has one.
struct Tokens(Option<TokenBucket<()>>);

impl Tokens {
    fn check(&self, tokens: f64) -> bool {
        let is_in_burst = match (&self.0, TokenAsk::new(tokens)) {
            (Some(bucket), Ok(ask)) => bucket.check(&ask).is_ok(),
            _ => true,
        };
        (0.0..=MAX_TOKENS).contains(&tokens) && is_in_burst
    }
}

impl Rate for Tokens {
    fn take(&mut self, now: Time, tokens: f64) -> Result<(), Duration> {
        let (Some(bucket), Ok(ask)) = (&mut self.0, TokenAsk::new(tokens)) else { return Ok(()) };
        match bucket.try_take(now, &ask) {
            Ok(true) => Ok(()),
            _ => Err(bucket.retry_after(now, &ask).unwrap_or(Duration::MAX)),
        }
    }

    fn give_back(&mut self, now: Time, tokens: f64) {
        if let Some(bucket) = &mut self.0 {
            // Nobody waits at it who could be woken.
            let _ = bucket.adjust(now, tokens);
        }
    }
}

/// What became of a permit.
enum Held {
    /// With the name of what it is for.
    Holding(Permit, Option<String>),
    Released,
}

/// A gate, its bucket, and the permits that it gave.
pub struct Gate {
    played: Primitive<Sleeper>,
    tokens: Tokens,
    held: BTreeMap<String, Held>,
    /// The names of what those who wait are to do.
    operations: BTreeMap<String, Option<String>>,
    /// Who waits for the end.
    at_drain: BTreeSet<String>,
    /// Who was refused during this step after a wait, and why.
    refused: BTreeMap<String, String>,
    /// The last rejection that was told during this step.
    told: Option<Rejection>,
}

impl Gate {
    /// Gives back to the bucket what it is owed.
    fn settle_tokens(&mut self, now: Time) {
        if self.played.is_owing() {
            let owed = self.played.take_owed();
            self.tokens.give_back(now, owed);
        }
    }

    fn try_acquire(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        wanted: &Wanted,
        place: Place,
    ) -> Result<Permit, &'static str> {
        self.settle_tokens(now);
        let ask = wanted.ask(now, Some(loops.home(place)), &self.tokens).ok_or("error")?;
        let (answer, wakes) = if self.played.is_dry_run() && !self.played.is_closed() {
            let (permit, wakes) = self.played.admit_in_dry_run(now, &ask, false, &mut self.tokens);
            (Ok(permit), wakes)
        } else {
            self.played.try_acquire(now, &ask, &mut self.tokens)
        };
        loops.deliver(self, now, wakes, place);
        answer.map_err(|rejection| self.tell(rejection))
    }

    fn hold(&mut self, name: &str, permit: Permit, operation: Option<String>) -> &'static str {
        self.held.insert(name.into(), Held::Holding(permit, operation));
        "admitted"
    }

    fn tell(&mut self, rejection: Rejection) -> &'static str {
        self.told = Some(rejection);
        rejection.reason.as_str()
    }

    fn release(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        name: &str,
        operation: Option<&str>,
        outcome: Outcome,
        from: Place,
    ) -> Played<&'static str> {
        match self.held.insert(name.into(), Held::Released) {
            Some(Held::Holding(permit, asked)) => {
                let operation = operation.or(asked.as_deref());
                let wakes = self.played.release(now, permit, operation, outcome);
                loops.deliver(self, now, wakes, from);
                Ok("done")
            }
            Some(Held::Released) => {
                self.played.count_stray_release();
                Ok("ignored")
            }
            None => Err(format!("{name} holds no permit")),
        }
    }

    fn work(
        &mut self,
        loops: &mut Loops<Self>,
        now: &mut Time,
        each: Duration,
        wanted: &Wanted,
        outcome: Outcome,
    ) -> Played<&'static str> {
        let permit = match self.try_acquire(loops, *now, wanted, None) {
            Ok(permit) => permit,
            Err(reason) => return Ok(reason),
        };
        let end = now.after(each);
        loops.advance(self, *now, end)?;
        *now = end;
        let wakes = self.played.release(end, permit, wanted.operation.as_deref(), outcome);
        loops.deliver(self, end, wakes, None);
        Ok("done")
    }

    fn update(&mut self, loops: &mut Loops<Self>, now: Time, update: &Update) -> Played<Answer> {
        let max_wait = update.max_wait.map(|seconds| span("max_wait", seconds)).transpose()?;
        match self.played.update(
            now,
            update.limit.map(LimitUpdate::Hold),
            update.max_waiting.map(Some),
            max_wait.map(Some),
        ) {
            Ok(wakes) => loops.deliver(self, now, wakes, None),
            Err(_) => return Ok("error".into()),
        }
        if let Some(is_dry_run) = update.dry_run {
            let wakes = self.played.set_dry_run(now, is_dry_run);
            loops.deliver(self, now, wakes, None);
        }
        Ok("done".into())
    }

    fn come(&mut self, loops: &mut Loops<Self>, now: &mut Time, coming: &Coming) -> Played<Answer> {
        match coming {
            Coming::TryAcquire {
                name,
                cost,
                criticality,
                deadline,
                tokens,
                operation,
                retry,
                times,
                on,
            } => {
                let place = loops.place(on.as_deref())?;
                let wanted = Wanted {
                    cost: *cost,
                    class: *criticality,
                    deadline: *deadline,
                    tokens: *tokens,
                    operation: operation.clone(),
                    is_retry: *retry,
                };
                let mut answers = Vec::new();
                for name in numbered(name, *times) {
                    loops.check_free(self, &name)?;
                    let answer = self.try_acquire(loops, *now, &wanted, place);
                    answers.push(match answer {
                        Ok(permit) => self.hold(&name, permit, operation.clone()),
                        Err(reason) => reason,
                    });
                }
                Ok(same_answer(answers).into())
            }
            Coming::TryWithin { name, cost, criticality, deadline, tokens, operation, retry } => {
                let wanted = Wanted {
                    cost: *cost,
                    class: *criticality,
                    deadline: *deadline,
                    tokens: *tokens,
                    operation: operation.clone(),
                    is_retry: *retry,
                };
                loops.check_free(self, name)?;
                match self.try_acquire(loops, *now, &wanted, None) {
                    Ok(permit) => {
                        let (has_paid, wakes) = self.played.annul_paid(*now, permit);
                        self.tokens.give_back(*now, if has_paid { *tokens } else { 0.0 });
                        loops.deliver(self, *now, wakes, None);
                        Ok(Reason::Closed.as_str().into())
                    }
                    Err(reason) => Ok(reason.into()),
                }
            }
            Coming::Acquire {
                name,
                cost,
                criticality,
                deadline,
                tokens,
                operation,
                retry,
                times,
                cancelled,
                on,
            } => {
                let wanted = Wanted {
                    cost: *cost,
                    class: *criticality,
                    deadline: *deadline,
                    tokens: *tokens,
                    operation: operation.clone(),
                    is_retry: *retry,
                };
                let mut answers = Vec::new();
                for name in numbered(name, *times) {
                    let wish = Wish::Seat(wanted.clone());
                    let task = Asking { name, wish, is_cancelled: *cancelled };
                    answers.push(loops.start(self, *now, on, task)?);
                }
                same(answers)
            }
            Coming::Work { work, criticality, operation, times, outcome } => {
                let each = span("work", *work)?;
                let wanted = Wanted {
                    cost: 1,
                    class: *criticality,
                    deadline: None,
                    tokens: 1.0,
                    operation: operation.clone(),
                    is_retry: false,
                };
                let mut answers = Vec::new();
                for _ in 0..times.unwrap_or(1) {
                    answers.push(self.work(loops, now, each, &wanted, (*outcome).into())?);
                }
                Ok(same_answer(answers).into())
            }
        }
    }

    fn act_otherwise(
        &mut self,
        loops: &mut Loops<Self>,
        now: Time,
        other: &Other,
    ) -> Played<Answer> {
        match other {
            Other::Release { name, outcome, operation, times, on } => {
                let place = loops.place(on.as_deref())?;
                let mut answers = Vec::new();
                for name in numbered(name, *times) {
                    let operation = operation.as_deref();
                    let outcome = (*outcome).into();
                    answers.push(self.release(loops, now, &name, operation, outcome, place)?);
                }
                Ok(same_answer(answers).into())
            }
            Other::Raise { name, raises, on } => {
                let place = loops.place(on.as_deref())?;
                Ok(self.release(loops, now, name, None, (*raises).into(), place)?.into())
            }
            Other::Forget { name } => match self.held.get(name) {
                Some(Held::Holding(..)) => {
                    let answer = self.release(loops, now, name, None, Outcome::Ignored, None);
                    self.held.remove(name);
                    Ok(answer?.into())
                }
                _ => Err(format!("{name} holds no permit")),
            },
            Other::Drain { name, timeout: seconds, cancelled, on } => {
                let wish = Wish::End(seconds.map(timeout).transpose()?);
                let task = Asking { name: name.clone(), wish, is_cancelled: *cancelled };
                loops.start(self, now, on, task)
            }
            Other::Close { close: true } => {
                let wakes = self.played.close(now);
                loops.deliver(self, now, wakes, None);
                Ok("done".into())
            }
            Other::Close { close: false } => Err("close is true or not there".into()),
            Other::Pressure { pressure } if self.played.config().has_pressure => {
                self.played.note_pressure(*pressure);
                Ok("done".into())
            }
            Other::Pressure { .. } => Err("the gate has no source of pressure".into()),
            Other::Update { update } => self.update(loops, now, update),
        }
    }

    fn ask_for_seat(
        &mut self,
        now: Time,
        home: Home,
        name: &str,
        wanted: &Wanted,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>) {
        let Some(ask) = wanted.ask(now, Some(home), &self.tokens) else {
            return (Reply::Answered("error".into()), Wakes::none());
        };
        if self.played.is_dry_run() && !self.played.is_closed() {
            let (permit, wakes) = self.played.admit_in_dry_run(now, &ask, true, &mut self.tokens);
            let answer = self.hold(name, permit, wanted.operation.clone());
            return (Reply::Answered(answer.into()), wakes);
        }
        let (admission, wakes) = self.played.acquire(now, &ask, &mut self.tokens, sleeper);
        let reply = match admission {
            GateAdmission::Admitted(permit) => {
                Reply::Answered(self.hold(name, permit, wanted.operation.clone()).into())
            }
            GateAdmission::Rejected(rejection) => Reply::Answered(self.tell(rejection).into()),
            GateAdmission::Waiting(ticket) => {
                self.operations.insert(name.into(), wanted.operation.clone());
                Reply::Waiting(ticket)
            }
        };
        (reply, wakes)
    }

    fn ask_for_end(
        &mut self,
        now: Time,
        home: Home,
        name: &str,
        timeout: Option<Duration>,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>) {
        let wakes = self.played.close(now);
        let reply = if timeout == Some(Duration::ZERO) && self.played.in_flight() > 0 {
            Reply::Answered("timed_out".into())
        } else {
            let until = timeout.map(|span| now.after(span));
            match self.played.join_drain(now, home, until, sleeper) {
                Some(ticket) => {
                    self.at_drain.insert(name.into());
                    Reply::Waiting(ticket)
                }
                None => Reply::Answered("drained".into()),
            }
        };
        (reply, wakes)
    }
}

impl Wanted {
    fn ask<'a>(&'a self, now: Time, home: Option<Home>, tokens: &Tokens) -> Option<GateAsk<'a>> {
        let mut ask = Ask::new(u32::try_from(self.cost).ok()?).ok()?;
        ask.criticality = self.class.into();
        ask.home = home;
        let is_sound = tokens.check(self.tokens);
        let deadline = match self.deadline {
            Some(seconds) if seconds > LATEST || !seconds.is_finite() => return None,
            deadline => deadline.map(|left| now.after(Duration::from_secs_f64(left.max(0.0)))),
        };
        is_sound.then_some(GateAsk {
            ask,
            deadline,
            tokens: self.tokens,
            position: None,
            operation: self.operation.as_deref(),
            is_retry: self.is_retry,
        })
    }
}

fn config_of(config: &Config) -> Played<GateConfig> {
    let usual = GradientConfig::default();
    let limit = match config.limit {
        Some(limit) => GateLimit::Fixed(limit),
        None => GateLimit::Gradient(GradientConfig {
            initial: config.initial.unwrap_or(usual.initial),
            min_limit: config.min_limit.unwrap_or(usual.min_limit),
            max_limit: config.max_limit.unwrap_or(usual.max_limit),
            latency_target: config.latency_target.map(Duration::from_secs_f64),
        }),
    };
    let ranges = [config.initial, config.min_limit, config.max_limit, config.latency_target];
    if config.limit.is_some() && ranges.iter().any(Option::is_some) {
        return Err("the limit is fixed, or it follows latency".into());
    }
    let shares = config.reserve.iter().map(|(&class, &share)| (Criticality::from(class), share));
    Ok(GateConfig {
        limit,
        max_waiting: config.max_waiting,
        max_wait: config.max_wait.map(|seconds| span("max_wait", seconds)).transpose()?,
        reserve: shares.fold(Reserve::none(), |reserve, (class, share)| reserve.with(class, share)),
        has_pressure: config.pressure,
        sheds_by_line: config.queue_wait,
        ..GateConfig::default()
    })
}

impl Awaited for Gate {
    type Config = Config;
    type Action = Action;
    type Then = Then;
    type Primitive = Primitive<Sleeper>;
    type Wish = Wish;

    fn new(config: Config) -> Played<Self> {
        let text = |error: sluicegate::primitives::ConfigError| error.to_string();
        let mut played = Primitive::new(config_of(&config)?).map_err(text)?;
        let _ = played.set_dry_run(Time::ZERO, config.dry_run);
        let bucket = match (config.rate, config.burst) {
            (Some(rate), burst) => Some(TokenBucket::new(rate, 1.0, burst).map_err(text)?),
            (None, Some(_)) => return Err("a burst is of a rate".into()),
            (None, None) => None,
        };
        Ok(Self {
            played,
            tokens: Tokens(bucket),
            held: BTreeMap::new(),
            operations: BTreeMap::new(),
            at_drain: BTreeSet::new(),
            refused: BTreeMap::new(),
            told: None,
        })
    }

    fn primitive(&self) -> &Self::Primitive {
        &self.played
    }

    fn primitive_mut(&mut self) -> &mut Self::Primitive {
        &mut self.played
    }

    fn begin_step(&mut self) {
        self.refused.clear();
        self.told = None;
    }

    fn act(&mut self, loops: &mut Loops<Self>, now: &mut Time, action: &Action) -> Played<Answer> {
        match action {
            Action::Coming(coming) => self.come(loops, now, coming),
            Action::Other(other) => self.act_otherwise(loops, *now, other),
        }
    }

    fn ask(
        &mut self,
        now: Time,
        home: Home,
        task: &Asking<Wish>,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>) {
        self.settle_tokens(now);
        match &task.wish {
            Wish::Seat(wanted) => self.ask_for_seat(now, home, &task.name, wanted, sleeper),
            Wish::End(timeout) => self.ask_for_end(now, home, &task.name, *timeout, sleeper),
        }
    }

    fn claim(&mut self, now: Time, name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>) {
        if self.at_drain.contains(name) {
            let (answer, wakes) = self.played.claim_drain(now, ticket);
            let answer = answer.map(|is_drained| if is_drained { "drained" } else { "timed_out" });
            if answer.is_some() {
                self.at_drain.remove(name);
            }
            let answered = answer.map(|answer| Claimed::Answered(answer.into()));
            return (answered.unwrap_or(Claimed::Waiting), wakes);
        }
        let (claim, wakes) = self.played.claim(now, ticket);
        let claimed = match claim {
            GateClaim::Admitted(permit) => {
                let operation = self.operations.remove(name).flatten();
                Claimed::Answered(self.hold(name, permit, operation).into())
            }
            GateClaim::Waiting => Claimed::Waiting,
            GateClaim::Rejected(rejection) => {
                let reason = self.tell(rejection);
                self.refused.insert(name.into(), reason.into());
                Claimed::Answered("refused".into())
            }
            GateClaim::Unknown => Claimed::Answered("unknown".into()),
        };
        (claimed, wakes)
    }

    fn is_taken(&self, name: &str) -> bool {
        matches!(self.held.get(name), Some(Held::Holding(..)))
    }

    fn look(&mut self, loops: &Loops<Self>, now: Time, then: &Then) -> Played {
        self.settle_tokens(now);
        let snapshot = self.played.snapshot(now);
        check("in_flight", then.in_flight, snapshot.in_flight)?;
        check("waiting", then.waiting, snapshot.waiting)?;
        check_near("limit", then.limit, snapshot.limit)?;
        check_near("saturation", then.saturation, snapshot.saturation)?;
        check_near("oldest_wait", then.oldest_wait, snapshot.oldest_wait.as_secs_f64())?;
        let next_expiry = self.played.next_expiry().map_or(f64::INFINITY, Time::as_secs_f64);
        check_near("next_expiry", then.next_expiry, next_expiry)?;
        check("max_waiting", then.max_waiting, snapshot.max_waiting)?;
        check_near("wait_bound", then.wait_bound, snapshot.wait_bound.as_secs_f64())?;
        check_near("service_mean", then.service_mean, snapshot.service_mean.as_secs_f64())?;
        let threshold = class_name(snapshot.threshold);
        check("threshold", then.threshold.as_deref(), threshold)?;
        check("permits", then.permits, snapshot.admitted)?;
        let tokens = self.tokens.0.as_ref().map_or(f64::INFINITY, |bucket| bucket.tokens(now));
        check_near("tokens", then.tokens, tokens)?;
        check_names("admitted", then.admitted.as_ref(), loops.answered("admitted"))?;
        check("refused", then.refused.as_ref(), &self.refused)?;
        check_names("drained", then.drained.as_ref(), loops.answered("drained"))?;
        check_names("timed_out", then.timed_out.as_ref(), loops.answered("timed_out"))?;
        for (name, &expected) in then.waited.iter().flatten() {
            let Some(Held::Holding(permit, _)) = self.held.get(name) else {
                return Err(format!("waited: {name} holds no permit"));
            };
            let waited = permit.waited().as_secs_f64();
            check_near(&format!("waited of {name}"), Some(expected), waited)?;
        }
        let outcomes = Outcome::ALL.map(Outcome::as_str);
        check_counts("outcomes", then.outcomes.as_ref(), &outcomes, &snapshot.outcomes)?;
        check_rejected(then.rejected.as_ref(), &snapshot.rejected)?;
        check("revoked", then.revoked, snapshot.revoked)?;
        check("stray_releases", then.stray_releases, snapshot.stray_releases)?;
        let told = self
            .told
            .as_ref()
            .map(|told| told.retry_after.map_or(f64::INFINITY, |span| span.as_secs_f64()));
        check_near("retry_after", then.retry_after, told.unwrap_or(f64::NAN))?;
        check_least("retry_after_at_least", then.retry_after_at_least, told)?;
        check_most("retry_after_at_most", then.retry_after_at_most, told)
    }

    fn end(&mut self, loops: &mut Loops<Self>, now: Time) -> Played {
        for held in std::mem::take(&mut self.held).into_values() {
            if let Held::Holding(permit, operation) = held {
                let operation = operation.as_deref();
                let wakes = self.played.release(now, permit, operation, Outcome::Success);
                loops.deliver(self, now, wakes, None);
            }
        }
        let wakes = self.played.set_dry_run(now, false);
        loops.deliver(self, now, wakes, None);
        let left = (self.played.in_flight(), self.played.waiting());
        let text = || format!("after the last step: in flight and waiting are {left:?}");
        if left == (0, 0) { Ok(()) } else { Err(text()) }
    }
}

fn class_name(criticality: Criticality) -> &'static str {
    match criticality {
        Criticality::Sheddable => "sheddable",
        Criticality::SheddablePlus => "sheddable_plus",
        Criticality::Critical => "critical",
        Criticality::CriticalPlus => "critical_plus",
    }
}

fn same(answers: Vec<Answer>) -> Played<Answer> {
    let mut answers = answers.into_iter().map(|answer| match answer {
        Answer::Word(word) => Ok(word),
        Answer::Number(number) => Err(format!("no word: {number}")),
    });
    let first = answers.next().unwrap_or_else(|| Ok("done".into()))?;
    let is_same = answers.try_fold(true, |so_far, word| Ok::<_, String>(so_far & (word? == first)));
    Ok(if is_same? { Answer::Word(first) } else { "mixed".into() })
}
