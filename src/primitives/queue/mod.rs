mod channel;
mod config;
mod deadlines;
mod item;
mod items;
mod load;
mod snapshot;
mod wait_bound;
mod watermarks;

use std::time::Duration;

pub use channel::{Channel, Put, Take, Wait};
pub use config::{MAX_CAPACITY, QueueConfig};
pub use item::{ItemId, News, Offer, Taken, Work};
use items::{Arrival, Entry, Items};
use load::Load;
pub use snapshot::QueueSnapshot;
use wait_bound::WaitBound;
pub use watermarks::Level;
use watermarks::Watermarks;

use super::operations::{OperationId, Operations};
use super::{Certainty, ConfigError, Criticality, Reason, Rejection, ServiceEstimate, Time};

/// A bounded queue that keeps the wait short: what cannot be served in time is
/// rejected early, and what is served is served fresh.
///
/// - Served is by criticality, then the oldest first; while the queue is *standing*
///   the newest first.
/// - An item may wait for an interval; while the queue is standing, for the target.
///   The bounds are applied to what waits as the state changes; of those that are
///   over the target already 32 go at once, and 32 more each millisecond. Both follow
///   service time, workers and deadlines unless they are given.
/// - Unless they are, an item waits for as long as its caller gives: until its deadline,
///   or for 1 s, or 10 services if these are longer; while the queue is standing, and
///   more comes than can be done, for half of that at most, and for the target if that
///   is longer.
/// - An item with a deadline is rejected as soon as what is left is less than the
///   service estimate, since to begin it is a waste. One for which a worker waits
///   already, or that is taken at the moment at which it comes, begins with any
///   remainder: an estimate that refuses an idle service would never learn better.
/// - A full queue rejects, unless a less critical item waits, or, while it is
///   standing, one of the same criticality: then that is evicted which would run
///   last.
///
/// Rejected items are handed out by [`take_news`](Self::take_news), so that they are
/// dropped outside the caller's lock. Every operation is O(log n) or better. `now`
/// may stand still or jump back: the latest moment seen counts.
#[derive(Debug)]
pub struct CoDelQueue<T> {
    config: QueueConfig,
    items: Items<T>,
    bound: WaitBound,
    operations: Operations,
    levels: Watermarks,
    news: Vec<News<T>>,
    now: Time,
    /// Before then nothing falls due and the state does not change, if nothing comes
    /// or goes.
    quiet_until: Time,
    /// The same for what has to be looked after then.
    next_expiry: Time,
    /// How many workers are on their way to an item.
    promised: usize,
    working: usize,
    load: Load,
    epoch: u32,
    accepted: u64,
    taken: u64,
    cancelled: u64,
    rejected: [u64; 12],
}

const INSTANT: Duration = Duration::from_nanos(1);

/// What is to be rejected, when and why.
struct Due {
    key: u32,
    at: Time,
    cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It has waited for as long as it may.
    Wait,
    /// The same, and it is one of the late.
    Late,
    /// The same, and while less came it might have waited for longer.
    Patience,
    /// It cannot be done in time any more.
    Deadline,
}

impl<T> CoDelQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: QueueConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let load = Load::new();
        let spans = config.spans(None, &load);
        let levels = Watermarks::new(config.capacity, config.low, config.high);
        Ok(Self {
            config,
            items: Items::new(),
            bound: WaitBound::new(spans),
            operations: Operations::new(),
            levels,
            news: Vec::new(),
            now: Time::ZERO,
            quiet_until: Time::MAX,
            next_expiry: Time::MAX,
            promised: 0,
            working: 0,
            load,
            epoch: 0,
            accepted: 0,
            taken: 0,
            cancelled: 0,
            rejected: [0; 12],
        })
    }

    /// How many items are inside.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many items may wait.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.config.capacity
    }

    /// How many items wait, without those for which a worker is on its way.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.items.len().saturating_sub(self.promised)
    }

    /// Depth / capacity; 1 if the capacity is 0.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        share(self.depth(), self.config.capacity)
    }

    /// How long the oldest item has waited at `now`.
    #[must_use]
    pub fn oldest_wait(&self, now: Time) -> Duration {
        self.items.oldest().map_or(Duration::ZERO, |joined| now.max(self.now).since(joined))
    }

    /// Whether it is standing: had no moment of health within the last interval.
    #[must_use]
    pub fn is_standing(&self) -> bool {
        self.bound.is_standing()
    }

    /// What is known of all service times together.
    #[must_use]
    pub const fn service(&self) -> &ServiceEstimate {
        self.operations.all()
    }

    /// The latest moment seen.
    #[must_use]
    pub const fn latest(&self) -> Time {
        self.now
    }

    /// Puts an item, or hands it back with the reason: [`Reason::Deadline`] or
    /// [`Reason::Full`].
    ///
    /// # Errors
    /// If it is rejected.
    pub fn push(
        &mut self,
        now: Time,
        item: T,
        offer: &Offer<'_>,
    ) -> Result<ItemId, (T, Rejection)> {
        self.expire(now);
        // First, so that nobody is evicted for what is in vain.
        if self.is_in_vain(offer, false) {
            return Err((item, self.refuse_offer(Reason::Deadline, offer)));
        }
        if self.depth() >= self.config.capacity && !self.evict(offer.criticality, true) {
            return Err((item, self.refuse_offer(Reason::Full, offer)));
        }
        let id = self.push_into_room(item, offer, false);
        self.check_level();
        Ok(id)
    }

    /// Whether an item that came now could not be done in time any more, after
    /// [`expire`](Self::expire); `is_awaited` if a worker waits for it.
    pub(crate) fn is_in_vain(&self, offer: &Offer<'_>, is_awaited: bool) -> bool {
        self.is_too_late(offer, !is_awaited && self.depth() > 0)
    }

    /// The same of who has to wait, or need not.
    pub(crate) fn is_too_late(&self, offer: &Offer<'_>, has_to_wait: bool) -> bool {
        offer.deadline.is_some_and(|deadline| {
            deadline <= self.now
                || has_to_wait
                    && self.operations.too_late_at_for(offer.operation, deadline, self.certainty())
                        <= self.now
        })
    }

    /// Puts an item that is not in vain and has room.
    pub(crate) fn push_into_room(
        &mut self,
        item: T,
        offer: &Offer<'_>,
        is_awaited: bool,
    ) -> ItemId {
        let (operation, given) = self.meet(offer);
        // There is no time to wait: it is taken at once, or not at all.
        let too_late_at =
            |deadline| self.operations.too_late_at(operation, deadline, self.certainty());
        let too_late_at = offer.deadline.filter(|_| !is_awaited).map(too_late_at);
        let is_urgent = too_late_at.is_some_and(|at| at <= self.now);
        let last = offer.until.filter(|&until| {
            !is_urgent && until < too_late_at.or(offer.deadline).unwrap_or(Time::MAX)
        });
        let end = last.or(offer.deadline);
        let arrival = Arrival {
            now: self.now,
            deadline: if is_urgent { Some(self.now.after(INSTANT)) } else { end },
            patience: given.map_or(Time::MAX, |given| self.now.after(self.bound.patience(given))),
            criticality: offer.criticality,
            operation,
            is_judged: !is_awaited && !is_urgent && last.is_none(),
            is_end_of_wait: last.is_some(),
            is_bounded: self.is_bounded(end.unwrap_or(Time::MAX)),
        };
        if self.is_empty() {
            self.observe(self.now);
        }
        let is_first_timely = self.items.oldest_timely().is_none();
        let falls_due = end.is_some() || self.is_pressed();
        let id = self.items.insert(item, &arrival);
        if is_first_timely || falls_due {
            self.plan();
        }
        self.accepted += 1;
        id
    }

    /// Takes note of somebody who comes: of what operation he is, and how much time he
    /// gives, if he says so.
    #[inline]
    fn meet(&mut self, offer: &Offer<'_>) -> (OperationId, Option<Duration>) {
        let end = match (offer.deadline, offer.until) {
            (Some(deadline), Some(until)) => Some(deadline.min(until)),
            (deadline, until) => deadline.or(until),
        };
        let given = end.map(|end| end.since(self.now));
        self.load.note_caller(given.unwrap_or(self.bound.unsaid()));
        if self.config.is_automatic() {
            self.bound.note_demand(self.load.note_arrival(self.now, self.bound.each()));
        }
        (self.operations.enter(offer.operation), given)
    }

    /// Whether more demand may expel those inside.
    #[inline]
    fn is_pressed(&self) -> bool {
        self.is_standing() && self.config.is_automatic()
    }

    /// Takes note of somebody who came and was rejected before.
    pub(crate) fn note_comer(&mut self, offer: &Offer<'_>) {
        let (operation, _) = self.meet(offer);
        self.operations.leave(operation);
        self.plan();
    }

    /// The item that is next, left where it is.
    pub(crate) fn peek(&mut self, now: Time) -> Option<&T> {
        self.expire(now);
        let key = self.items.next(self.is_standing())?;
        Some(self.items.item(key))
    }

    /// Whether an item at or above `criticality` is inside.
    #[inline]
    pub(crate) fn has_from(&self, criticality: Criticality) -> bool {
        self.items.has_from(criticality)
    }

    /// Takes the item that is next.
    pub fn pop(&mut self, now: Time) -> Option<Taken<T>> {
        let taken = self.pop_unseen(now);
        self.check_level();
        taken
    }

    /// The same without a look at the watermarks, for who is not done yet.
    #[inline]
    pub(crate) fn pop_unseen(&mut self, now: Time) -> Option<Taken<T>> {
        // What is left afterwards can be begun.
        self.expire(now);
        let key = self.items.next(self.is_standing())?;
        let Entry { item, place, operation, .. } = self.remove(key);
        self.operations.leave(operation);
        self.taken += 1;
        let waited = self.now.since(place.joined);
        Some(Taken { item, waited, place, operation, epoch: self.epoch })
    }

    /// Puts an item back that could not be handed over, into its place.
    pub fn put_back(&mut self, taken: Taken<T>) {
        let Taken { item, mut place, operation, epoch, .. } = taken;
        if epoch == self.epoch {
            // The bounds may have been changed meanwhile.
            place.is_bounded = self.is_bounded(place.deadline);
            self.taken = self.taken.saturating_sub(1);
            self.operations.enter_again(operation);
            self.observe(self.now);
            self.items.put_back(item, place, operation);
            self.observe(self.now);
            self.mark_late();
            self.plan();
            self.check_level();
        } else {
            // There is no place any more; it is told of outside the lock.
            let rejection = self.refuse(Reason::Closed, place.criticality);
            self.news.push(News::Rejected(item, rejection));
        }
    }

    /// Begins to time the work on an item that was just taken.
    pub fn begin(&mut self, taken: &Taken<T>) -> Work {
        self.working += 1;
        self.load.note_workers(self.working);
        self.operations.enter_again(taken.operation);
        Work { operation: taken.operation, started: self.now, epoch: taken.epoch }
    }

    /// Begins to time work that came and had not to wait, after
    /// [`expire`](Self::expire); taken note of as an arrival if it `is_noted`.
    #[inline]
    pub(crate) fn begin_at_once(&mut self, offer: &Offer<'_>, is_noted: bool) -> Work {
        let operation = if is_noted {
            let (operation, _) = self.meet(offer);
            if self.is_pressed() {
                self.plan();
            }
            operation
        } else {
            self.operations.enter(offer.operation)
        };
        self.working += 1;
        self.load.note_workers(self.working);
        Work { operation, started: self.now, epoch: self.epoch }
    }

    /// The work of that kind which began at `started`, for those who keep no more of it;
    /// by another name if it has one by now.
    pub(crate) fn work_since(
        &mut self,
        started: Time,
        operation: OperationId,
        name: Option<&str>,
    ) -> Work {
        let operation = match name {
            Some(name) if operation == OperationId::UNNAMED => self.operations.enter(Some(name)),
            _ => operation,
        };
        Work { operation, started, epoch: self.epoch }
    }

    /// Whether somebody who comes now finds room, or makes it.
    pub(crate) fn has_room_for(&self, offer: &Offer<'_>) -> bool {
        let is_standing = self.is_standing();
        self.depth() < self.config.capacity
            || self.depth() > 0
                && self.items.coldest_below(offer.criticality, is_standing, is_standing).is_some()
    }

    /// Lets so many wait; nothing else changes.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        if capacity != self.config.capacity {
            self.config.capacity = capacity;
            self.levels.set(capacity, self.config.low, self.config.high);
        }
    }

    /// For how long somebody may wait who comes now and gives as much time as others.
    pub(crate) fn wait_bound(&self) -> Duration {
        self.wait_bound_of(self.load.given())
    }

    /// The same of somebody who gives so much time.
    pub(crate) fn wait_bound_of(&self, given: Duration) -> Duration {
        if self.config.is_automatic() {
            if self.is_standing() { self.bound.patience(given) } else { given }
        } else if self.is_standing() {
            self.bound.target()
        } else {
            self.bound.interval()
        }
    }

    /// How much time callers give.
    pub(crate) const fn given(&self) -> Duration {
        self.load.given()
    }

    /// Ends work, and learns how long it took. Work that failed is a sample only as
    /// far as it took longer than the mean: it would have taken longer still.
    #[allow(clippy::needless_pass_by_value)] // over is over
    pub fn finish(&mut self, now: Time, work: Work, is_success: bool) {
        if work.epoch != self.epoch {
            return;
        }
        self.expire(now);
        let service = self.now.since(work.started);
        if is_success || service > self.operations.all().mean() {
            let is_loaded = self.is_standing();
            self.operations.record(work.operation, self.now, service, is_loaded, self.load.given());
            self.items.judge_anew(work.operation);
            self.fit();
        }
        self.abandon(work);
    }

    /// Ends work that is not to teach anything.
    #[allow(clippy::needless_pass_by_value)] // over is over
    pub fn abandon(&mut self, work: Work) {
        if work.epoch == self.epoch {
            self.working = self.working.saturating_sub(1);
            self.operations.leave(work.operation);
        }
    }

    /// Takes an item out that is not wanted any more; `None` if it is not inside.
    pub fn cancel(&mut self, now: Time, id: ItemId) -> Option<T> {
        self.expire(now);
        let key = self.items.find(id)?;
        let Entry { item, operation, .. } = self.remove(key);
        self.operations.leave(operation);
        self.cancelled += 1;
        self.check_level();
        Some(item)
    }

    /// Rejects what has waited for as long as it may, and what cannot be done in
    /// time any more.
    ///
    /// What fell due earlier is treated as if it had been looked at then, so that
    /// the result does not depend on how often this is called.
    #[inline]
    pub fn expire(&mut self, now: Time) {
        let now = now.max(self.now);
        if now < self.quiet_until {
            self.now = now;
        } else {
            self.catch_up(now);
        }
    }

    #[cold]
    fn catch_up(&mut self, now: Time) {
        loop {
            let due = self.next_due();
            // At one moment: it becomes standing, what is due goes, it becomes healthy.
            let is_first = |change: Time| match due {
                Some(Due { at, .. }) => change < at || change == at && !self.is_standing(),
                None => true,
            };
            let change = self.next_change().filter(|&change| change <= now && is_first(change));
            if let Some(change) = change {
                self.observe(change);
            } else if let Some(due) = due.filter(|due| due.at <= now) {
                self.reject_due(&due);
            } else {
                break;
            }
        }
        self.observe(now);
        self.plan();
    }

    /// Notes when something falls due next.
    #[inline]
    fn plan(&mut self) {
        if self.is_empty() && !self.is_standing() {
            self.quiet_until = Time::MAX;
            self.next_expiry = Time::MAX;
        } else {
            self.plan_of_items();
        }
    }

    fn plan_of_items(&mut self) {
        let (bound, items) = (&self.bound, &self.items);
        let change = bound.next_change(items.oldest()).unwrap_or(Time::MAX);
        let timely = items.oldest_timely();
        let mut due = timely.map_or(Time::MAX, |key| {
            let joined = items.joined(key);
            bound.due_unsaid(self.now, joined).unwrap_or(Time::MAX).min(bound.due(joined))
        });
        if items.has_late() || items.has_deadlines() {
            due = self.next_due().map_or(Time::MAX, |due| due.at);
        }
        self.quiet_until = due.min(change);
        // That a standing queue becomes healthy rejects nobody, and if spans are given
        // nobody stays for long enough to see it stand again.
        let is_last = self.items.is_empty() || !self.config.is_automatic();
        let is_quiet = self.is_standing() && is_last;
        self.next_expiry = if is_quiet { due } else { due.min(change) };
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        Some(self.next_expiry).filter(|&at| at < Time::MAX)
    }

    /// Changes capacity, target, interval or watermarks. What is inside stays, and
    /// the new bounds apply to it.
    ///
    /// # Errors
    /// If a parameter is out of its range; then nothing is changed.
    pub fn update(&mut self, now: Time, config: QueueConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.expire(now);
        self.levels.set(config.capacity, config.low, config.high);
        let was_automatic = self.config.is_automatic();
        self.config = config;
        if self.config.is_automatic() != was_automatic {
            self.items.bound_anew(!was_automatic);
            self.mark_late();
        }
        self.fit();
        self.expire(now);
        self.check_level();
        Ok(())
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Whether there is something to tell.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes out what there is to tell.
    #[must_use = "rejected items are in it"]
    pub fn take_news(&mut self) -> Vec<News<T>> {
        std::mem::take(&mut self.news)
    }

    /// What is inside, in no order.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter().chain(self.news.iter().filter_map(|news| match news {
            News::Rejected(item, _) => Some(item),
            News::Level(_) => None,
        }))
    }

    /// Takes everything out, without any trace.
    #[must_use = "the items are to be dropped outside the lock"]
    pub fn clear(&mut self) -> Vec<T> {
        self.observe(self.now);
        let rejected = self.take_news().into_iter().filter_map(|news| match news {
            News::Rejected(item, _) => Some(item),
            News::Level(_) => None,
        });
        let items = self.items.take_all().chain(rejected).collect();
        self.promised = 0;
        self.working = 0;
        self.epoch = self.epoch.wrapping_add(1);
        self.operations.leave_all();
        self.levels.clear();
        self.observe(self.now);
        self.plan();
        items
    }

    /// Rejects everything inside.
    pub fn reject_all(&mut self, now: Time, reason: Reason) {
        self.expire(now);
        while let Some(key) = self.items.oldest_key() {
            self.reject(key, reason);
            self.check_level();
        }
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> QueueSnapshot {
        let service = self.operations.all();
        QueueSnapshot {
            capacity: self.config.capacity,
            depth: self.depth(),
            saturation: self.saturation(),
            oldest_wait: self.oldest_wait(now),
            is_standing: self.is_standing(),
            target: self.bound.target(),
            interval: self.bound.interval(),
            working: self.working,
            service_mean: service.mean(),
            service_p95: service.quantile(),
            service_estimate: service.estimate(now.max(self.now), self.certainty()),
            baseline: service.baseline(),
            accepted: self.accepted,
            taken: self.taken,
            cancelled: self.cancelled,
            rejected: self.rejected,
        }
    }

    pub(crate) const fn working(&self) -> usize {
        self.working
    }

    pub(crate) const fn promised(&self) -> usize {
        self.promised
    }

    /// Notes how many workers are on their way; [`check_level`](Self::check_level) is to
    /// follow when all is in its place.
    pub(crate) const fn promise(&mut self, promised: usize) {
        self.promised = promised;
    }

    /// Counts a rejection of what never was inside.
    pub(crate) fn refuse_offer(&mut self, reason: Reason, offer: &Offer<'_>) -> Rejection {
        let deadline = offer.deadline.filter(|_| reason == Reason::Deadline);
        let time_left = deadline.map(|deadline| deadline.since(self.now));
        Rejection { time_left, ..self.refuse(reason, offer.criticality) }
    }

    fn refuse(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        if reason == Reason::Full {
            self.bound.note_rejection(self.now);
        }
        self.rejected[reason.index()] += 1;
        self.rejection(reason, criticality)
    }

    /// Makes room for something more critical or, if `for_equals`, while standing
    /// for something equally critical; whether that was possible.
    pub(crate) fn evict(&mut self, criticality: Criticality, for_equals: bool) -> bool {
        if self.depth() == 0 {
            return false;
        }
        let is_standing = self.is_standing();
        let or_equal = for_equals && is_standing;
        let Some(key) = self.items.coldest_below(criticality, or_equal, is_standing) else {
            return false;
        };
        self.bound.note_rejection(self.now);
        self.reject(key, Reason::Evicted);
        true
    }

    /// Whether target and interval bound the wait of what has that deadline.
    fn is_bounded(&self, deadline: Time) -> bool {
        !self.config.is_automatic() || deadline == Time::MAX
    }

    /// How certain it has to be that an item is done in time. Where the wait is bounded
    /// by time, those who are served have waited for as long as they may: each has as
    /// little time left as another. Where it is not, the newest go first, and who has
    /// little left is served when nobody else is there.
    const fn certainty(&self) -> Certainty {
        if self.config.is_automatic() { Certainty::Fair } else { Certainty::High }
    }

    /// What is to be rejected next if the state stays as it is, why and when.
    fn next_due(&mut self) -> Option<Due> {
        let certainty = self.certainty();
        let Self { bound, items, operations, now, .. } = self;
        let due = |key, at: Time, cause| Due { key, at: at.max(*now), cause };
        let late = { items.oldest_late() }
            .map(|key| due(key, bound.due_late(items.joined(key)), Cause::Late));
        let wait = { items.oldest_timely() }
            .map(|key| due(key, bound.due(items.joined(key)), Cause::Wait));
        let patient = items
            .first_impatient()
            .and_then(|(key, at)| Some(due(key, bound.due_patient(*now, at)?, Cause::Patience)));
        let deadline = items.first_deadline(|operation, deadline| {
            operations.too_late_at(operation, deadline, certainty)
        });
        let deadline = deadline.map(|(key, at)| due(key, at, Cause::Deadline));
        let unsaid = items.oldest_timely().and_then(|key| {
            Some(due(key, bound.due_unsaid(*now, items.joined(key))?, Cause::Patience))
        });
        let all = late.into_iter().chain(wait).chain(patient).chain(unsaid).chain(deadline);
        all.min_by_key(|due| due.at)
    }

    fn next_change(&self) -> Option<Time> {
        self.bound.next_change(self.items.oldest()).map(|at| at.max(self.now))
    }

    #[inline]
    fn observe(&mut self, at: Time) {
        self.now = at;
        if self.bound.observe(at, self.items.oldest()) {
            self.mark_late();
        }
    }

    /// Marks those that are over the target as it begins to count.
    fn mark_late(&mut self) {
        if self.is_standing() && !self.config.is_automatic() {
            self.items.mark_late(self.now.before(self.bound.target()));
        } else {
            self.items.mark_none_late();
        }
    }

    fn reject_due(&mut self, due: &Due) {
        let &Due { key, at, cause } = due;
        let reason = match cause {
            Cause::Deadline if self.items.is_end_of_wait(key) => {
                self.bound.note_rejection(at);
                Reason::Wait
            }
            Cause::Deadline => Reason::Deadline,
            Cause::Wait => {
                self.bound.note_rejection(at);
                Reason::Wait
            }
            Cause::Patience => {
                self.bound.note_patient(at);
                Reason::Wait
            }
            Cause::Late => {
                self.bound.note_expelled(at, self.items.joined(key));
                Reason::Wait
            }
        };
        self.observe(at);
        self.reject(key, reason);
        self.check_level();
    }

    fn reject(&mut self, key: u32, reason: Reason) {
        let Entry { item, place, operation, .. } = self.remove(key);
        self.operations.leave(operation);
        self.rejected[reason.index()] += 1;
        let rejection = self.rejection(reason, place.criticality);
        self.news.push(News::Rejected(item, rejection));
    }

    #[inline]
    fn remove(&mut self, key: u32) -> Entry<T> {
        let is_oldest = self.items.oldest_key() == Some(key);
        let is_next_due = is_oldest || self.items.oldest_timely() == Some(key);
        // A healthy queue that becomes empty is good now, whatever it was before.
        if is_oldest && (self.items.len() > 1 || self.is_standing()) {
            self.observe(self.now);
        }
        let entry = self.items.remove(key);
        if is_oldest {
            self.observe(self.now);
        }
        if is_next_due || entry.place.deadline < Time::MAX {
            self.plan();
        }
        entry
    }

    /// Lets target and interval follow the baseline.
    fn fit(&mut self) {
        self.load.forget(self.now, self.working, self.service().mean());
        let spans = self.config.spans(Some(self.service()), &self.load);
        let is_shorter = spans.target < self.bound.target();
        // What was until now was by the old ones.
        self.observe(self.now);
        self.bound.set(spans, self.now, self.items.oldest());
        if is_shorter && self.is_standing() {
            self.mark_late();
        }
        self.plan();
    }

    /// Tells when a watermark is passed: at the end of what is done, and not on the way.
    #[inline]
    pub(crate) fn check_level(&mut self) {
        if let Some(level) = self.levels.check(self.depth()) {
            self.news.push(News::Level(level));
        }
    }

    fn rejection(&self, reason: Reason, criticality: Criticality) -> Rejection {
        Rejection {
            limit: self.config.capacity as f64,
            in_flight: self.working as u64,
            waiting: self.depth(),
            max_waiting: Some(self.config.capacity),
            ..Rejection::new(reason, criticality)
        }
    }
}

pub(super) fn share(depth: usize, capacity: usize) -> f64 {
    if capacity == 0 { 1.0 } else { depth as f64 / capacity as f64 }
}
