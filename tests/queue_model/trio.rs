use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::sample::Index;
use sluicegate::primitives::{
    CoDelQueue, Criticality, ItemId, News, Offer, QueueConfig, Reason, Taken, Time, Work,
};

use crate::model::{self, Event, Model, Told};
use crate::steps::{Ask, Step};
use crate::{MS, OPERATIONS};

/// A queue, and what came out of it.
struct Side {
    queue: CoDelQueue<usize>,
    ids: Vec<ItemId>,
    works: BTreeMap<usize, Work>,
    held: BTreeMap<usize, Taken<usize>>,
    told: Vec<Event>,
}

impl Side {
    pub fn new(config: &QueueConfig) -> Self {
        Self {
            queue: CoDelQueue::new(config.clone()).expect("a sound configuration"),
            ids: Vec::new(),
            works: BTreeMap::new(),
            held: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    fn hear(&mut self) {
        for news in self.queue.take_news() {
            self.told.push(match news {
                News::Rejected(item, rejection) => Event::Rejected {
                    item,
                    reason: rejection.reason,
                    waiting: rejection.waiting,
                    in_flight: rejection.in_flight,
                },
                News::Level(level) => Event::Level(level),
            });
        }
    }
}

/// The model, a queue that is looked at only when it is used, and one that is
/// looked at whenever it asks for it and in between.
pub struct Trio {
    model: Model,
    lazy: Side,
    eager: Side,
    clock: u64,
    names: BTreeMap<usize, usize>,
    next_name: usize,
    works: BTreeMap<usize, model::Work>,
    held: BTreeMap<usize, model::Taken>,
    /// Accepted, and not seen again.
    inside: BTreeSet<usize>,
    heard: usize,
}

impl Trio {
    pub fn new(config: &QueueConfig) -> Self {
        Self {
            model: Model::new(config),
            lazy: Side::new(config),
            eager: Side::new(config),
            clock: 0,
            names: BTreeMap::new(),
            next_name: 0,
            works: BTreeMap::new(),
            held: BTreeMap::new(),
            inside: BTreeSet::new(),
            heard: 0,
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock)
    }

    #[allow(clippy::too_many_lines)] // one arm a step
    pub fn play(&mut self, step: &Step) {
        match *step {
            Step::Push(ask) => self.push(ask),
            Step::Burst(ask, many, gap) => {
                for _ in 0..many {
                    self.push(ask);
                    self.pass(gap);
                }
            }
            Step::Flow(ask, many, gap, every) => {
                for at in 0..many {
                    self.push(ask);
                    self.pass(gap);
                    if at % every == 0
                        && let Some(name) = self.pop()
                    {
                        self.finish(name, true);
                    }
                }
            }
            Step::Wave(ask, many, gap, plus) => {
                let (target, interval) = self.model.spans();
                let end = self.clock + target + interval;
                self.push(ask);
                self.pass(target + plus);
                for _ in 0..many {
                    self.push(ask);
                    self.pass(gap);
                }
                self.pass(end.saturating_sub(self.clock));
            }
            Step::Tighten(ask, many, times) => {
                let (target, interval) = self.model.spans();
                for _ in 0..many {
                    self.push(ask);
                }
                self.pass(target / 2);
                let shorter = |span: u64| Some(Duration::from_nanos(span) / times);
                let (target, interval) = (shorter(target), shorter(interval));
                let config = QueueConfig { target, interval, ..self.model.config.clone() };
                if interval > target && target > Some(Duration::ZERO) {
                    self.play(&Step::Update(config));
                }
            }
            Step::Learn(operation, many, service) => {
                for _ in 0..many {
                    self.push(Ask { criticality: 3, deadline: None, operation });
                    let name = self.pop();
                    self.pass(service);
                    if let Some(name) = name {
                        self.finish(name, true);
                    }
                }
            }
            Step::Pop => {
                self.pop();
            }
            Step::Finish(which, is_success) => {
                if let Some(name) = self.some_work(which) {
                    self.finish(name, is_success);
                }
            }
            Step::Abandon(which) => {
                self.play(&Step::Expire);
                if let Some(name) = self.some_work(which) {
                    for side in [&mut self.lazy, &mut self.eager] {
                        side.queue.abandon(side.works.remove(&name).expect("it is under way"));
                    }
                    let work = self.works.remove(&name).expect("it is under way");
                    self.model.abandon(work);
                }
            }
            Step::Hold => {
                self.hold();
            }
            Step::PutBack(which) => {
                self.play(&Step::Expire);
                self.put_back(which);
            }
            Step::Return(many, ref order) => {
                self.play(&Step::Expire);
                for _ in 0..many {
                    self.hold();
                }
                for &which in order {
                    self.put_back(which);
                }
            }
            Step::Cancel(which) => self.cancel(which),
            Step::Expire => {
                let now = self.now();
                self.lazy.queue.expire(now);
                self.eager.queue.expire(now);
                self.model.look(self.clock);
            }
            Step::Pass(span) => self.pass(span),
            Step::GoBack(span) => {
                // All have seen the same until then.
                self.play(&Step::Expire);
                self.clock = self.clock.saturating_sub(span);
            }
            Step::Update(ref config) => {
                let now = self.now();
                for side in [&mut self.lazy, &mut self.eager] {
                    side.queue.update(now, config.clone()).expect("a sound configuration");
                }
                self.model.update(self.clock, config);
            }
            Step::RejectAll => {
                let now = self.now();
                self.lazy.queue.reject_all(now, Reason::Closed);
                self.eager.queue.reject_all(now, Reason::Closed);
                self.model.reject_all(self.clock);
            }
            Step::Clear => {
                self.play(&Step::Expire);
                let cleared: BTreeSet<usize> = self.model.clear().into_iter().collect();
                for side in [&mut self.lazy, &mut self.eager] {
                    let items: BTreeSet<usize> = side.queue.clear().into_iter().collect();
                    assert_eq!(items, cleared);
                }
                self.inside.clear();
            }
        }
        self.compare();
    }

    fn push(&mut self, ask: Ask) {
        let Ask { criticality, deadline, operation } = ask;
        let deadline = deadline.map(|span| self.clock + span);
        let operation = OPERATIONS[operation];
        let offer = Offer {
            criticality: Criticality::ALL[criticality],
            deadline: deadline.map(Time::from_nanos),
            operation,
            ..Offer::default()
        };
        let name = self.next_name;
        self.next_name += 1;
        let expected = self.model.push(self.clock, name, criticality, deadline, operation);
        let now = self.now();
        for side in [&mut self.lazy, &mut self.eager] {
            let answer = match side.queue.push(now, name, &offer) {
                Ok(id) => {
                    assert_eq!(ItemId::from_bits(id.to_bits()), id);
                    side.ids.push(id);
                    Ok(())
                }
                Err((item, rejection)) => {
                    assert_eq!(item, name);
                    assert_eq!(rejection.criticality, offer.criticality);
                    Err(rejection.reason)
                }
            };
            assert_eq!(answer, expected, "pushing {name}");
        }
        if expected.is_ok() {
            self.names.insert(self.lazy.ids.len() - 1, name);
            self.inside.insert(name);
        }
    }

    /// Takes one, and begins to work on it.
    fn pop(&mut self) -> Option<usize> {
        let name = self.hold()?;
        for side in [&mut self.lazy, &mut self.eager] {
            let taken = side.held.remove(&name).expect("it was just taken");
            side.works.insert(name, side.queue.begin(&taken));
        }
        let taken = self.held.remove(&name).expect("it was just taken");
        self.works.insert(name, self.model.begin(&taken));
        Some(name)
    }

    fn hold(&mut self) -> Option<usize> {
        let now = self.now();
        let expected = self.model.pop(self.clock);
        let name_and_wait = expected.as_ref().map(|(taken, waited)| (taken.name(), *waited));
        for side in [&mut self.lazy, &mut self.eager] {
            let answer = side.queue.pop(now).map(|taken| {
                let answer = (taken.item, nanos(taken.waited));
                side.held.insert(taken.item, taken);
                answer
            });
            assert_eq!(answer, name_and_wait);
        }
        let (taken, _) = expected?;
        let name = taken.name();
        self.hear();
        assert!(self.inside.remove(&name));
        self.held.insert(name, taken);
        Some(name)
    }

    fn put_back(&mut self, which: Index) {
        let names: Vec<usize> = self.held.keys().copied().collect();
        if names.is_empty() {
            return;
        }
        let name = names[which.index(names.len())];
        for side in [&mut self.lazy, &mut self.eager] {
            side.queue.put_back(side.held.remove(&name).expect("it was taken"));
        }
        self.model.put_back(self.held.remove(&name).expect("it was taken"));
        self.inside.insert(name);
    }

    fn finish(&mut self, name: usize, is_success: bool) {
        let now = self.now();
        for side in [&mut self.lazy, &mut self.eager] {
            let work = side.works.remove(&name).expect("it is under way");
            side.queue.finish(now, work, is_success);
        }
        let work = self.works.remove(&name).expect("it is under way");
        self.model.finish(self.clock, work, is_success);
    }

    fn cancel(&mut self, which: Index) {
        if self.names.is_empty() {
            return;
        }
        let at = which.index(self.names.len());
        let name = self.names[&at];
        let now = self.now();
        let expected = self.model.cancel(self.clock, name);
        for side in [&mut self.lazy, &mut self.eager] {
            assert_eq!(side.queue.cancel(now, side.ids[at]), expected);
        }
        if let Some(name) = expected {
            self.hear();
            assert!(self.inside.remove(&name));
        }
    }

    fn pass(&mut self, span: u64) {
        let end = self.clock + span;
        let queue = &mut self.eager.queue;
        // Those that it asks for, and others.
        for look in [span / 3, span / 2, span - span / 7].map(|part| self.clock + part) {
            while let Some(at) = queue.next_expiry().filter(|&at| at <= Time::from_nanos(look)) {
                queue.expire(at);
                assert!(queue.next_expiry() != Some(at), "it asks for the same again");
            }
            queue.expire(Time::from_nanos(look));
        }
        self.clock = end;
    }

    fn some_work(&self, which: Index) -> Option<usize> {
        let names: Vec<usize> = self.works.keys().copied().collect();
        (!names.is_empty()).then(|| names[which.index(names.len())])
    }

    /// Takes the news in, and checks that they are those of the model.
    fn hear(&mut self) {
        self.lazy.hear();
        self.eager.hear();
        let told = &self.model.told[self.heard..];
        compare(&std::mem::take(&mut self.lazy.told), told, "seldom looked at");
        // It may be ahead.
        let shared = told.len().min(self.eager.told.len());
        let eager: Vec<Event> = self.eager.told.drain(..shared).collect();
        compare(&eager, told, "often looked at");
        for told in told {
            if let Event::Rejected { item, .. } = told.event {
                assert!(self.inside.remove(&item), "rejected, and not inside");
            }
        }
        self.heard = self.model.told.len();
    }

    fn compare(&mut self) {
        self.hear();
        let Self { model, lazy: Side { queue, .. }, .. } = self;
        assert_eq!(model.names().into_iter().collect::<BTreeSet<_>>(), self.inside);
        assert_eq!(queue.items().copied().collect::<BTreeSet<_>>(), self.inside);
        assert_eq!((queue.len(), queue.depth()), (model.len(), model.len()));
        assert_eq!(queue.is_empty(), model.len() == 0);
        assert_eq!(queue.latest(), Time::from_nanos(model.now));
        assert_eq!(queue.is_standing(), model.is_standing);
        assert_eq!(nanos(queue.oldest_wait(queue.latest())), model.oldest_wait());
        let next = queue.next_expiry().map(|at| at.as_nanos().max(model.now));
        match model.next_event() {
            // What was standing may be allowed more than it looked.
            Some((at, true)) => assert!(next.is_some_and(|next| next <= at), "{next:?} > {at}"),
            event => assert_eq!(next, event.map(|(at, _)| at)),
        }
        let snapshot = queue.snapshot(queue.latest());
        assert!((snapshot.saturation - model.saturation()).abs() < 1e-9);
        assert_eq!((nanos(snapshot.target), nanos(snapshot.interval)), model.spans());
        assert_eq!((snapshot.capacity, snapshot.working), (model.config.capacity, model.working));
        assert_eq!(snapshot.service_mean, model.service().mean());
        assert_eq!(snapshot.service_p95, model.service().quantile());
        let expected = model.estimate(None, queue.latest().as_nanos());
        assert_eq!(nanos(snapshot.service_estimate), expected);
        assert_eq!(snapshot.baseline, model.service().baseline());
        let counters = (snapshot.accepted, snapshot.taken, snapshot.cancelled);
        assert_eq!(counters, (model.accepted, model.taken, model.cancelled));
        assert_eq!(snapshot.rejected, model.rejected);
    }

    /// Whatever happened, in the end nothing is left.
    pub fn end(mut self) {
        self.pass(4_000_000 * MS);
        self.play(&Step::Expire);
        assert!(self.lazy.queue.is_empty());
        assert!(self.inside.is_empty());
        self.pass(80_000_000 * MS);
        self.play(&Step::Expire);
        assert!(!self.lazy.queue.is_standing());
        assert_eq!(self.lazy.queue.next_expiry(), None);
    }
}

/// Checks that both tell the same, in whatever order where several are rejected at
/// the same moment for the same reason.
fn compare(told: &[Event], model: &[Told], side: &str) {
    let mut open = BTreeSet::new();
    let mut group = None;
    for (place, model) in model.iter().enumerate() {
        match (told.get(place), model.event) {
            (
                Some(&Event::Rejected { item: ours, reason, waiting, in_flight }),
                Event::Rejected { item, .. },
            ) => {
                let expected = Event::Rejected { item, reason, waiting, in_flight };
                assert_eq!(expected, model.event, "{side}, at {}", model.at);
                if group.replace((model.at, reason.index())) != Some((model.at, reason.index())) {
                    assert_eq!(open, BTreeSet::new(), "{side}, before {}", model.at);
                }
                for item in [ours, item] {
                    // Once from either side.
                    if !open.remove(&item) {
                        open.insert(item);
                    }
                }
            }
            (ours, theirs) => assert_eq!(ours, Some(&theirs), "{side}, at {}", model.at),
        }
    }
    assert_eq!(open, BTreeSet::new(), "{side}, at last");
    assert_eq!(told.len(), model.len(), "{side}");
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span of this test")
}
