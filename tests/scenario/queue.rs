use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate::primitives::{
    Channel, Home, ItemId, Level, News, Offer, Put, QueueConfig, Reason, Rejection, Take, Taken,
    Ticket, Time, Wait, Waitable, Wakes, Work,
};

use super::awaited::{Asking, Awaited, Claimed, Reply, timeout};
use super::checks::{Played, check, check_least, check_names, check_near, check_rejected};
use super::format::Answer;
use super::loops::{Loops, Sleeper};
use super::queue_steps::{Action, Close, Config, Then, Update};
use super::words::{Class, numbered, same_answer, span};

/// What a task asks for.
#[derive(Clone, Debug)]
pub enum Wish {
    Put { item: String, offer: OwnOffer, timeout: Option<Duration> },
    Get { timeout: Option<Duration> },
    Take,
}

#[derive(Clone, Debug)]
pub struct OwnOffer {
    class: Class,
    deadline: Option<Time>,
    operation: Option<String>,
    is_cancellable: bool,
}

/// The queue and those who wait at it.
pub struct Queue {
    channel: Channel<String, Sleeper>,
    /// What those who wait asked for.
    wishes: BTreeMap<String, Wish>,
    works: BTreeMap<String, Work>,
    /// Of the items that were put.
    ids: BTreeMap<String, ItemId>,
    /// Who got what during this step after a wait.
    got: BTreeMap<String, String>,
    /// Who was refused during this step after a wait, and why.
    refused: BTreeMap<String, String>,
}

impl OwnOffer {
    fn new(
        now: Time,
        class: Class,
        deadline: Option<f64>,
        operation: Option<&str>,
        is_cancellable: bool,
    ) -> Played<Self> {
        let deadline = deadline.map(|seconds| span("deadline", seconds)).transpose()?;
        Ok(Self {
            class,
            deadline: deadline.map(|span| now.after(span)),
            operation: operation.map(str::to_string),
            is_cancellable,
        })
    }

    fn offer(&self) -> Offer<'_> {
        Offer {
            criticality: self.class.into(),
            deadline: self.deadline,
            operation: self.operation.as_deref(),
            ..Offer::default()
        }
    }
}

impl Queue {
    /// The answer to who puts, or that it waits.
    fn answer_put(
        &mut self,
        item: &str,
        offer: &OwnOffer,
        put: &Put<String>,
    ) -> Result<&'static str, Ticket> {
        match put {
            &Put::Accepted(id) => {
                if offer.is_cancellable {
                    self.ids.insert(item.into(), id);
                }
                Ok("accepted")
            }
            Put::Rejected(_, Rejection { reason: Reason::Wait, .. }) => Ok("timed_out"),
            Put::Rejected(_, rejection) => Ok(rejection.reason.as_str()),
            &Put::Waiting(ticket, _) => Err(ticket),
            Put::NoRoom(_) => Ok("no room"),
            Put::Unknown(_) => Ok("unknown"),
        }
    }

    /// The same of who takes.
    fn answer_take(
        &mut self,
        name: &str,
        wish: &Wish,
        take: Take<String>,
    ) -> Result<String, Ticket> {
        match take {
            Take::Taken(taken) => Ok(self.begin(name, wish, taken)),
            Take::Waiting(ticket) => Err(ticket),
            Take::Empty => Ok("empty".into()),
            Take::Closed => Ok("closed".into()),
            Take::TimedOut => Ok("timed_out".into()),
            Take::Unknown => Ok("unknown".into()),
        }
    }

    fn begin(&mut self, name: &str, wish: &Wish, taken: Taken<String>) -> String {
        if matches!(wish, Wish::Take) {
            let work = self.channel.begin(&taken);
            self.works.insert(name.into(), work);
        }
        taken.item
    }

    fn update(&mut self, now: Time, update: &Update) -> Played<Option<Wakes<Sleeper>>> {
        let mut config = self.channel.queue().config().clone();
        config.capacity = update.capacity.unwrap_or(config.capacity);
        let seconds = |what, value: Option<f64>| value.map(|value| span(what, value)).transpose();
        config.target = seconds("target", update.target)?.or(config.target);
        config.interval = seconds("interval", update.interval)?.or(config.interval);
        Ok(self.channel.update(now, config).ok())
    }

    fn done(&mut self, loops: &mut Loops<Self>, now: Time, name: &str, fails: bool) -> Played {
        let Some(work) = self.works.remove(name) else {
            return Err(format!("{name} does not work"));
        };
        let wakes = self.channel.finish(now, work, !fails);
        loops.deliver(self, now, wakes, None);
        Ok(())
    }
}

impl Awaited for Queue {
    type Config = Config;
    type Action = Action;
    type Then = Then;
    type Primitive = Channel<String, Sleeper>;
    type Wish = Wish;

    fn new(config: Config) -> Played<Self> {
        let default = QueueConfig::new(config.capacity);
        let channel = Channel::new(QueueConfig {
            capacity: config.capacity,
            target: config.target.map(|target| span("target", target)).transpose()?,
            interval: config.interval.map(|interval| span("interval", interval)).transpose()?,
            low: config.low.unwrap_or(default.low),
            high: config.high.unwrap_or(default.high),
        });
        Ok(Self {
            channel: channel.map_err(|error| error.to_string())?,
            wishes: BTreeMap::new(),
            works: BTreeMap::new(),
            ids: BTreeMap::new(),
            got: BTreeMap::new(),
            refused: BTreeMap::new(),
        })
    }

    fn primitive(&self) -> &Self::Primitive {
        &self.channel
    }

    fn primitive_mut(&mut self) -> &mut Self::Primitive {
        &mut self.channel
    }

    fn begin_step(&mut self) {
        self.got.clear();
        self.refused.clear();
    }

    fn act(&mut self, loops: &mut Loops<Self>, now: &mut Time, action: &Action) -> Played<Answer> {
        let now = *now;
        match action {
            Action::PutNow { item, criticality, deadline, operation, cancellable, times, on } => {
                let place = loops.place(on.as_deref())?;
                let operation = operation.as_deref();
                let offer = OwnOffer::new(now, *criticality, *deadline, operation, *cancellable)?;
                let home = Some(loops.home(place));
                let mut answers = Vec::new();
                for item in numbered(item, *times) {
                    let name = item.clone();
                    let (put, wakes) = self.channel.put_now(now, item, &offer.offer(), home);
                    loops.deliver(self, now, wakes, place);
                    answers.push(
                        self.answer_put(&name, &offer, &put).map_err(|_| "put_nowait waits")?,
                    );
                }
                Ok(same_answer(answers).into())
            }
            Action::Put {
                item,
                criticality,
                deadline,
                operation,
                cancellable,
                timeout: wait,
                cancelled,
                on,
            } => {
                let operation = operation.as_deref();
                let offer = OwnOffer::new(now, *criticality, *deadline, operation, *cancellable)?;
                let timeout = wait.map(timeout).transpose()?;
                let wish = Wish::Put { item: item.clone(), offer, timeout };
                let task = Asking { name: item.clone(), wish, is_cancelled: *cancelled };
                loops.start(self, now, on, task)
            }
            Action::GetNow { get_nowait: true, on } => {
                let place = loops.place(on.as_deref())?;
                let (take, wakes) = self.channel.take_now(now, Some(loops.home(place)));
                loops.deliver(self, now, wakes, place);
                let wish = Wish::Get { timeout: None };
                let answer = self.answer_take("", &wish, take);
                answer.map(Answer::Word).map_err(|_| "get_nowait waits".into())
            }
            Action::GetNow { .. } => Err("get_nowait is true or not there".into()),
            Action::Get { worker, timeout: wait, cancelled, on } => {
                let wish = Wish::Get { timeout: wait.map(timeout).transpose()? };
                let task = Asking { name: worker.clone(), wish, is_cancelled: *cancelled };
                loops.start(self, now, on, task)
            }
            Action::Take { worker, times, cancelled, on } => {
                let mut answer = Err("nobody takes".into());
                for name in numbered(worker, *times) {
                    let task = Asking { name, wish: Wish::Take, is_cancelled: *cancelled };
                    answer = loops.start(self, now, on, task);
                }
                answer
            }
            Action::Done { worker, raises, times } => {
                for name in numbered(worker, *times) {
                    self.done(loops, now, &name, raises.is_some())?;
                }
                Ok("done".into())
            }
            Action::CancelItem { cancel_item } => {
                let Some(&id) = self.ids.get(cancel_item) else {
                    return Err(format!("{cancel_item} has no ticket"));
                };
                let (item, wakes) = self.channel.cancel_item(now, id);
                loops.deliver(self, now, wakes, None);
                Ok(if item.is_some() { "done" } else { "gone" }.into())
            }
            Action::Update { update } => Ok(match self.update(now, update)? {
                Some(wakes) => {
                    loops.deliver(self, now, wakes, None);
                    "done".into()
                }
                None => "error".into(),
            }),
            Action::Close { close } => {
                let wakes = self.channel.close(now, matches!(close, Close::Immediate));
                loops.deliver(self, now, wakes, None);
                Ok("done".into())
            }
        }
    }

    fn ask(
        &mut self,
        now: Time,
        home: Home,
        task: &Asking<Wish>,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>) {
        let until = |timeout: Option<Duration>| timeout.map(|span| now.after(span));
        let (answer, wakes) = match &task.wish {
            Wish::Put { item, offer, timeout } => {
                let wait = Wait { home: Some(home), until: until(*timeout) };
                let (own, terms) = (item.clone(), offer.offer());
                let (put, wakes) = self.channel.put_or_wait(now, own, &terms, wait, sleeper);
                (self.answer_put(item, offer, &put).map(String::from), wakes)
            }
            wish => {
                let timeout = if let Wish::Get { timeout } = wish { *timeout } else { None };
                let wait = Wait { home: Some(home), until: until(timeout) };
                let (take, wakes) = self.channel.take_or_wait(now, wait, sleeper);
                (self.answer_take(&task.name, wish, take), wakes)
            }
        };
        let reply = match answer {
            Ok(answer) => Reply::Answered(answer),
            Err(ticket) => {
                self.wishes.insert(task.name.clone(), task.wish.clone());
                Reply::Waiting(ticket)
            }
        };
        (reply, wakes)
    }

    fn claim(&mut self, now: Time, name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>) {
        let Some(wish) = self.wishes.get(name).cloned() else {
            return (Claimed::Answered("unknown".into()), Wakes::none());
        };
        match &wish {
            Wish::Put { item, offer, .. } => {
                let own = item.clone();
                let (put, wakes) = self.channel.claim_room(now, ticket, own, &offer.offer());
                let claimed = match self.answer_put(item, offer, &put) {
                    Ok("accepted") => Claimed::Answered("put".into()),
                    Ok("timed_out") => Claimed::Answered("timed_out".into()),
                    Ok(reason) => {
                        self.refused.insert(name.into(), reason.into());
                        Claimed::Answered("refused".into())
                    }
                    Err(_) => Claimed::Waiting,
                };
                (claimed, wakes)
            }
            wish => {
                let (take, wakes) = self.channel.claim_item(now, ticket);
                let is_item = matches!(take, Take::Taken(_));
                let claimed = match self.answer_take(name, wish, take) {
                    Ok(item) if is_item => {
                        self.got.insert(name.into(), item);
                        Claimed::Answered("got".into())
                    }
                    Ok(answer) => Claimed::Answered(answer),
                    Err(_) => Claimed::Waiting,
                };
                (claimed, wakes)
            }
        }
    }

    fn is_taken(&self, name: &str) -> bool {
        self.works.contains_key(name)
    }

    fn fork(&mut self) {
        drop(self.channel.take_items());
    }

    fn look(&mut self, loops: &Loops<Self>, now: Time, then: &Then) -> Played {
        let snapshot = self.channel.snapshot(now);
        check("depth", then.depth, snapshot.depth)?;
        check_least("depth_at_least", then.depth_at_least, Some(snapshot.depth))?;
        check_near("saturation", then.saturation, snapshot.saturation)?;
        check_near("oldest_wait", then.oldest_wait, snapshot.oldest_wait.as_secs_f64())?;
        check("standing", then.standing, snapshot.is_standing)?;
        check_near("target", then.target, snapshot.target.as_secs_f64())?;
        check_near("interval", then.interval, snapshot.interval.as_secs_f64())?;
        let next_expiry = self.channel.next_expiry().map_or(f64::INFINITY, Time::as_secs_f64);
        check_near("next_expiry", then.next_expiry, next_expiry)?;
        check("getting", then.getting, self.channel.takers())?;
        check("putting", then.putting, self.channel.putters())?;
        check("working", then.working, snapshot.working)?;
        check("accepted", then.accepted, snapshot.accepted)?;
        check("taken", then.taken, snapshot.taken)?;
        check_rejected(then.rejected.as_ref(), &snapshot.rejected)?;
        check("got", then.got.as_ref(), &self.got)?;
        check_names("put", then.put.as_ref(), loops.answered("put"))?;
        check("refused", then.refused.as_ref(), &self.refused)?;
        check_names("timed_out", then.timed_out.as_ref(), loops.answered("timed_out"))?;
        check_names("closed", then.closed.as_ref(), loops.answered("closed"))?;
        let (mut on_reject, mut watermarks) = (Vec::new(), Vec::new());
        for news in self.channel.take_news() {
            match news {
                News::Rejected(item, rejection) => {
                    on_reject.push(format!("{item}: {}", rejection.reason.as_str()));
                }
                News::Level(Level::High) => watermarks.push("high".into()),
                News::Level(Level::Low) => watermarks.push("low".into()),
            }
        }
        check("on_reject", then.on_reject.as_ref(), &on_reject)?;
        check("watermarks", then.watermarks.as_ref(), &watermarks)
    }

    fn end(&mut self, loops: &mut Loops<Self>, now: Time) -> Played {
        for work in std::mem::take(&mut self.works).into_values() {
            let wakes = self.channel.finish(now, work, true);
            loops.deliver(self, now, wakes, None);
        }
        let left = (self.channel.takers(), self.channel.putters());
        let text = || format!("after the last step: getting and putting are {left:?}");
        if left == (0, 0) { Ok(()) } else { Err(text()) }
    }
}
