use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate::primitives::{Certainty, Level, QueueConfig, Reason, ServiceEstimate, Time};

const MS: u64 = 1_000_000;
/// So many of those that were over the target already are expelled at once.
const AT_ONCE: usize = 32;
const PAUSE: u64 = MS;
const HOUR: u64 = 3_600_000 * MS;

pub type Operation = Option<&'static str>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Rejected { item: usize, reason: Reason, waiting: usize, in_flight: u64 },
    Level(Level),
}

/// What happened, and when and why: what happens at the same moment for the same
/// reason happens in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub at: u64,
    pub event: Event,
}

#[derive(Clone, Debug)]
struct Item {
    name: usize,
    criticality: usize,
    joined: u64,
    deadline: Option<u64>,
    operation: Operation,
    /// Was over the target when that began to count.
    is_late: bool,
    /// Came too late to wait: taken at that moment, or not at all.
    is_urgent: bool,
    /// Its deadline stands above target and interval.
    is_patient: bool,
    /// Until when it waits even if more comes than can be done.
    patience: u64,
}

/// One that was taken, and may be put back.
#[derive(Clone, Debug)]
pub struct Taken {
    item: Item,
    life: usize,
}

impl Taken {
    pub fn name(&self) -> usize {
        self.item.name
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Work {
    operation: Operation,
    started: u64,
    life: usize,
}

/// The rules of the queue, with a list and no cleverness: it goes from one moment at
/// which something could happen to the next, and looks at everything there.
#[derive(Clone, Debug)]
pub struct Model {
    pub config: QueueConfig,
    pub now: u64,
    target: u64,
    interval: u64,
    /// How long the workers need for one item.
    each: u64,
    /// For how long callers wait who do not say.
    unsaid: u64,
    /// When all came that were let in, and until when they are too many.
    arrivals: Vec<u64>,
    exceeded_until: u64,
    /// How much time callers give, and how many work.
    given: u64,
    most: [usize; 2],
    counted_since: u64,
    /// In the order of arrival.
    items: Vec<Item>,
    pub is_standing: bool,
    /// When it last was empty or its oldest wait below the target.
    last_good: u64,
    /// When something last had to be rejected, or it became standing.
    last_bad: u64,
    /// How many of the late may go before the next pause, and when that ends.
    may_go: usize,
    pause_ends: u64,
    is_high: bool,
    all: ServiceEstimate,
    named: BTreeMap<&'static str, ServiceEstimate>,
    pub working: usize,
    life: usize,
    pub told: Vec<Told>,
    pub accepted: u64,
    pub taken: u64,
    pub cancelled: u64,
    pub rejected: [u64; 12],
}

impl Model {
    pub fn new(config: &QueueConfig) -> Self {
        let mut model = Self {
            config: config.clone(),
            now: 0,
            target: 0,
            interval: 0,
            each: 0,
            unsaid: 1_000 * MS,
            arrivals: Vec::new(),
            exceeded_until: 0,
            given: 1_000 * MS,
            most: [0; 2],
            counted_since: 0,
            items: Vec::new(),
            is_standing: false,
            last_good: 0,
            last_bad: 0,
            may_go: 0,
            pause_ends: 0,
            is_high: false,
            all: ServiceEstimate::new(),
            named: BTreeMap::new(),
            working: 0,
            life: 0,
            told: Vec::new(),
            accepted: 0,
            taken: 0,
            cancelled: 0,
            rejected: [0; 12],
        };
        model.fit();
        model
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn names(&self) -> Vec<usize> {
        self.items.iter().map(|item| item.name).collect()
    }

    pub fn saturation(&self) -> f64 {
        match self.config.capacity {
            0 => 1.0,
            capacity => self.len() as f64 / capacity as f64,
        }
    }

    pub fn oldest_wait(&self) -> u64 {
        self.items.first().map_or(0, |oldest| self.now - oldest.joined)
    }

    pub fn spans(&self) -> (u64, u64) {
        (self.target, self.interval)
    }

    pub fn service(&self) -> &ServiceEstimate {
        &self.all
    }

    pub fn push(
        &mut self,
        now: u64,
        name: usize,
        criticality: usize,
        deadline: Option<u64>,
        operation: Operation,
    ) -> Result<(), Reason> {
        self.look(now);
        let estimate = self.estimate(operation, self.now);
        if let Some(deadline) = deadline {
            let left = deadline.saturating_sub(self.now);
            let has_to_wait = !self.items.is_empty();
            if left == 0 || (has_to_wait && left < estimate) {
                return Err(self.refuse(Reason::Deadline));
            }
        }
        if self.len() >= self.config.capacity {
            let Some(victim) = self.worth_less_than(criticality) else {
                self.last_bad = self.now;
                return Err(self.refuse(Reason::Full));
            };
            self.last_bad = self.now;
            self.reject(victim, Reason::Evicted);
        }
        let own = deadline.map_or(0, |deadline| deadline - self.now);
        self.items.push(Item {
            name,
            criticality,
            joined: self.now,
            deadline,
            operation,
            is_late: false,
            is_urgent: deadline.is_some_and(|deadline| deadline - self.now < estimate),
            is_patient: deadline.is_some() && self.is_automatic(),
            patience: self.now + self.target.max(own / 2),
        });
        let given = deadline.map_or(self.unsaid, |deadline| (deadline - self.now).min(HOUR));
        let given = given.min((4 * self.given).max(1_000 * MS));
        self.given = self.given - self.given / 16 + given / 16;
        if self.is_automatic() {
            self.arrivals.push(self.now);
            self.exceeded_until = match self.arrivals.len().checked_sub(18) {
                Some(first) => {
                    (self.arrivals[first] + 36 * self.each).min(self.now + 5 * self.each)
                }
                None => 0,
            };
        }
        self.accepted += 1;
        self.check_level();
        Ok(())
    }

    /// The one that would run last, if it is worth less.
    fn worth_less_than(&self, criticality: usize) -> Option<usize> {
        let is_less = |item: &Item| {
            item.criticality < criticality || (self.is_standing && item.criticality == criticality)
        };
        let least = self.items.iter().map(|item| item.criticality).min()?;
        let mut candidates = (0..self.len())
            .filter(|&at| self.items[at].criticality == least && is_less(&self.items[at]));
        if self.is_standing { candidates.next() } else { candidates.next_back() }
    }

    /// Which one, and how long it had waited.
    pub fn pop(&mut self, now: u64) -> Option<(Taken, u64)> {
        self.look(now);
        let most = self.items.iter().map(|item| item.criticality).max()?;
        let mut candidates = (0..self.len()).filter(|&at| self.items[at].criticality == most);
        let next = if self.is_standing { candidates.next_back() } else { candidates.next() };
        let item = self.remove(next?);
        self.taken += 1;
        let waited = self.now - item.joined;
        Some((Taken { item, life: self.life }, waited))
    }

    pub fn put_back(&mut self, taken: Taken) {
        let Taken { mut item, life } = taken;
        if life != self.life {
            self.rejected[Reason::Closed.index()] += 1;
            self.tell_of(item.name, Reason::Closed);
            return;
        }
        self.taken -= 1;
        item.is_patient = item.deadline.is_some() && self.is_automatic();
        self.note_if_good();
        let place = self.items.iter().filter(|other| other.name < item.name).count();
        // Among the late it is one of them.
        let mut bounded = self.items[place..].iter().filter(|item| !item.is_patient);
        item.is_late = !item.is_patient && bounded.next().is_some_and(|younger| younger.is_late);
        self.items.insert(place, item);
        self.note_if_good();
        if self.is_standing {
            self.mark_the_late();
        }
        self.check_level();
    }

    pub fn begin(&mut self, taken: &Taken) -> Work {
        self.working += 1;
        self.most[0] = self.most[0].max(self.working);
        Work { operation: taken.item.operation, started: self.now, life: taken.life }
    }

    pub fn finish(&mut self, now: u64, work: Work, is_success: bool) {
        if work.life != self.life {
            return;
        }
        self.look(now);
        let service = Duration::from_nanos(self.now - work.started);
        if is_success || service > self.all.mean() {
            let at = Time::from_nanos(self.now);
            let named = work.operation.map(|name| self.named.entry(name).or_default());
            for estimate in [&mut self.all].into_iter().chain(named) {
                estimate.set_useful(Duration::from_nanos(self.given));
                estimate.record(at, service, self.is_standing);
            }
            self.fit();
        }
        self.abandon(work);
    }

    pub fn abandon(&mut self, work: Work) {
        if work.life == self.life {
            self.working -= 1;
        }
    }

    pub fn cancel(&mut self, now: u64, name: usize) -> Option<usize> {
        self.look(now);
        let at = self.items.iter().position(|item| item.name == name)?;
        self.cancelled += 1;
        Some(self.remove(at).name)
    }

    pub fn update(&mut self, now: u64, config: &QueueConfig) {
        self.look(now);
        let was_automatic = self.is_automatic();
        self.config = config.clone();
        if self.is_automatic() != was_automatic {
            for item in &mut self.items {
                item.is_patient = item.deadline.is_some() && !was_automatic;
                item.is_late = false;
            }
            if self.is_standing {
                self.mark_the_late();
            }
        }
        self.fit();
        self.settle();
        self.check_level();
    }

    pub fn reject_all(&mut self, now: u64) {
        self.look(now);
        while !self.items.is_empty() {
            self.reject(0, Reason::Closed);
        }
    }

    pub fn clear(&mut self) -> Vec<usize> {
        self.life += 1;
        self.working = 0;
        self.is_high = false;
        self.items.drain(..).map(|item| item.name).collect()
    }

    /// When something is next rejected or it becomes standing, and whether it ceases
    /// to be standing before.
    pub fn next_event(&self) -> Option<(u64, bool)> {
        let mut future = self.clone();
        let mut is_healed = false;
        if future.items.is_empty() {
            return None;
        }
        loop {
            let was_standing = future.is_standing;
            future.settle();
            let rises = future.is_standing && !was_standing;
            if rises || future.len() < self.len() {
                return Some((future.now, is_healed));
            }
            is_healed |= was_standing && !future.is_standing;
            let next = future.moments().min().expect("what waits is rejected in the end");
            future.glide(next);
        }
    }

    /// Lets time pass.
    pub fn look(&mut self, now: u64) {
        self.settle();
        loop {
            let next = self.moments().filter(|&at| at <= now).min();
            match next {
                Some(at) => self.glide(at),
                None if now > self.now => self.glide(now),
                None => return,
            }
            self.settle();
        }
    }

    /// The moments to come at which something could happen.
    fn moments(&self) -> impl Iterator<Item = u64> {
        let mut moments = vec![self.pause_ends];
        if self.is_standing {
            moments.push(self.last_bad.saturating_add(self.interval));
        } else if !self.items.is_empty() {
            moments.push(self.last_good.saturating_add(self.interval));
        }
        for item in &self.items {
            moments.push(item.joined.saturating_add(self.target));
            moments.push(item.joined.saturating_add(self.interval));
            moments.push(item.patience);
            moments.push(item.joined + self.unsaid);
            moments.push(item.joined + self.target.max(self.unsaid / 2));
            moments.extend(item.deadline);
            moments.extend(self.turns_hopeless(item));
        }
        let now = self.now;
        moments.into_iter().filter(move |&at| at > now)
    }

    /// The first moment to come at which less is left than it takes.
    fn turns_hopeless(&self, item: &Item) -> Option<u64> {
        let deadline = item.deadline?;
        let is_hopeless = |at: u64| deadline.saturating_sub(at) < self.estimate(item.operation, at);
        let (mut before, mut after) = (self.now, deadline);
        if item.is_urgent || is_hopeless(before) {
            return Some(before + 1);
        }
        if before >= after {
            return None;
        }
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if is_hopeless(middle) { after = middle } else { before = middle }
        }
        Some(after)
    }

    /// Nothing happens until `at`.
    fn glide(&mut self, at: u64) {
        let is_good =
            self.items.first().is_none_or(|oldest| oldest.joined.saturating_add(self.target) >= at);
        if is_good {
            self.last_good = at;
        }
        self.now = at;
    }

    /// All that has to happen now.
    fn settle(&mut self) {
        loop {
            self.note_if_good();
            let since_good = self.now - self.last_good;
            if !self.is_standing && !self.items.is_empty() && since_good >= self.interval {
                self.is_standing = true;
                self.last_bad = self.now;
                self.may_go = AT_ONCE;
                self.mark_the_late();
            } else if let Some(at) = self.waited_too_long() {
                self.last_bad = self.now;
                self.reject(at, Reason::Wait);
            } else if let Some(at) = (0..self.len()).find(|&at| self.is_hopeless(&self.items[at])) {
                self.reject(at, Reason::Deadline);
            } else if self.is_standing && self.now - self.last_bad >= self.interval {
                self.is_standing = false;
                self.last_good = self.now;
                self.items.iter_mut().for_each(|item| item.is_late = false);
            } else {
                return;
            }
        }
    }

    fn note_if_good(&mut self) {
        if self.oldest_wait() < self.target || self.items.is_empty() {
            self.last_good = self.now;
        } else if self.is_standing {
            self.last_bad = self.now;
        }
    }

    fn is_automatic(&self) -> bool {
        self.config.target.is_none() && self.config.interval.is_none()
    }

    fn mark_the_late(&mut self) {
        if self.is_automatic() {
            return;
        }
        for item in self.items.iter_mut().filter(|item| !item.is_patient) {
            item.is_late |= self.now - item.joined > self.target;
        }
    }

    fn waited_too_long(&mut self) -> Option<usize> {
        let age = |item: &Item| self.now - item.joined;
        let outright = self.items.iter().position(|item| {
            if item.is_patient {
                return false;
            }
            let bound = match self.is_standing && !item.is_late {
                _ if self.is_automatic() => self.unsaid,
                true => self.target,
                false => self.interval,
            };
            age(item) >= bound
        });
        if outright.is_some() || !self.is_standing {
            return outright;
        }
        let late = self.items.iter().position(|item| item.is_late && age(item) >= self.target);
        let is_exceeded = self.now < self.exceeded_until;
        let half_of_unsaid = self.target.max(self.unsaid / 2);
        let half = |item: &Item| {
            if item.is_patient { item.patience } else { item.joined + half_of_unsaid }
        };
        let is_over = |at: &usize| half(&self.items[*at]) <= self.now;
        let mut over: Vec<usize> = (0..self.len()).filter(is_over).collect();
        over.retain(|_| is_exceeded && self.is_automatic());
        // Those who said so first.
        over.sort_by_key(|&at| {
            let item = &self.items[at];
            (!item.is_patient, half(item), item.name)
        });
        let goes = late.or_else(|| over.first().copied())?;
        if self.may_go == 0 {
            if self.now < self.pause_ends {
                return None;
            }
            self.may_go = AT_ONCE;
        }
        self.may_go -= 1;
        if self.may_go == 0 {
            self.pause_ends = self.now + PAUSE;
        }
        Some(goes)
    }

    fn is_hopeless(&self, item: &Item) -> bool {
        if item.is_urgent {
            return self.now > item.joined;
        }
        item.deadline.is_some_and(|deadline| {
            let left = deadline.saturating_sub(self.now);
            left == 0 || left < self.estimate(item.operation, self.now)
        })
    }

    pub fn estimate(&self, operation: Operation, at: u64) -> u64 {
        let at = Time::from_nanos(at);
        let known = match operation {
            None => Some(&self.all),
            Some(name) => self.named.get(name),
        };
        let certainty = if self.is_automatic() { Certainty::Fair } else { Certainty::High };
        known.map_or(0, |known| nanos(known.estimate(at, certainty)))
    }

    fn fit(&mut self) {
        let service = nanos(self.all.mean());
        if self.now - self.counted_since >= (20 * service).max(5_000 * MS) {
            self.most = [self.working, self.most[0]];
            self.counted_since = self.now;
        }
        let workers = self.most[0].max(self.most[1]).max(1) as u64;
        let longest = self.given * 2 / 3;
        let (target, interval) = match self.all.baseline().map(nanos) {
            Some(baseline) => {
                self.each = if self.is_automatic() { baseline / workers } else { 0 };
                self.unsaid = if self.is_automatic() { 10 * baseline } else { 0 }.max(1_000 * MS);
                let target = (18 * (baseline / workers)).max(baseline).min(longest).max(5 * MS);
                (target, (2 * target).min(self.given).max(20 * MS))
            }
            None => (250 * MS, 1_000 * MS),
        };
        let automatic = (target, interval);
        let old = self.target;
        (self.target, self.interval) =
            match (self.config.target.map(nanos), self.config.interval.map(nanos)) {
                (Some(target), Some(interval)) => (target, interval),
                (Some(target), None) => (target, 20 * target),
                (None, Some(interval)) => ((interval / 20).max(1), interval),
                (None, None) => automatic,
            };
        if self.is_standing && self.target < old {
            self.mark_the_late();
        }
    }

    fn refuse(&mut self, reason: Reason) -> Reason {
        self.rejected[reason.index()] += 1;
        reason
    }

    fn reject(&mut self, at: usize, reason: Reason) {
        let item = self.items.remove(at);
        self.note_if_good();
        self.rejected[reason.index()] += 1;
        self.tell_of(item.name, reason);
        // What evicts it takes its place: that is no change.
        if reason != Reason::Evicted {
            self.check_level();
        }
    }

    fn remove(&mut self, at: usize) -> Item {
        let item = self.items.remove(at);
        self.note_if_good();
        self.check_level();
        item
    }

    fn check_level(&mut self) {
        if self.config.capacity == 0 {
            return;
        }
        if self.is_high && self.saturation() <= self.config.low {
            self.is_high = false;
            self.tell(Event::Level(Level::Low));
        } else if !self.is_high && self.saturation() >= self.config.high {
            self.is_high = true;
            self.tell(Event::Level(Level::High));
        }
    }

    fn tell_of(&mut self, item: usize, reason: Reason) {
        let (waiting, in_flight) = (self.len(), self.working as u64);
        self.tell(Event::Rejected { item, reason, waiting, in_flight });
    }

    fn tell(&mut self, event: Event) {
        self.told.push(Told { at: self.now, event });
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span of this test")
}
