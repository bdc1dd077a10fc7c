use super::{CoDelQueue, ItemId, News, Offer, QueueConfig, QueueSnapshot, Taken, Work};
use crate::primitives::line::Arrival;
use crate::primitives::turns::{Room, Turn, Turns};
use crate::primitives::{
    ConfigError, Criticality, Home, Reason, Rejection, Ticket, Time, Waitable, Wakes,
};

/// A [`CoDelQueue`] at which one can wait: for an item, and for room.
///
/// - A worker that waits is *promised* an item by a wake, and comes to claim it: then
///   it takes what is next at that moment. Items for which a worker is on its way do
///   not count against the capacity, unless it gives up.
/// - Who puts may wait for room in line, by criticality, then by age, and puts its item
///   when it claims. An idle worker is room for one item more; if it goes before that
///   is put, or the capacity becomes smaller, who puts waits on.
/// - Once closed, nothing is put any more; what is inside can still be taken, and then
///   everybody is told that it is closed.
#[derive(Debug)]
pub struct Channel<T, W> {
    takers: Turns<Items<T>, W>,
    putters: Turns<Space, W>,
    is_closed: bool,
    /// Closed so that nothing is to be taken any more either.
    is_ended: bool,
}

const TAKERS: u64 = 0;
const PUTTERS: u64 = 1;

/// The items that are there and not promised.
#[derive(Debug)]
struct Items<T> {
    queue: CoDelQueue<T>,
}

impl<T> Room for Items<T> {
    fn has_room(&self, _now: Time, cost: u64) -> bool {
        self.queue.depth() as u64 >= cost
    }

    #[inline]
    fn take(&mut self, _now: Time, _cost: u64) {
        self.queue.promise(self.queue.promised() + 1);
    }

    fn put_back(&mut self, _now: Time, _cost: u64) {
        self.queue.promise(self.queue.promised().saturating_sub(1));
    }

    fn room_at(&self, _cost: u64) -> Option<Time> {
        None
    }

    fn honours_grants(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// The room that is there and not reserved.
#[derive(Debug, Default)]
struct Space {
    /// How many more items may wait.
    free: usize,
    reserved: usize,
}

impl Room for Space {
    fn has_room(&self, _now: Time, _cost: u64) -> bool {
        self.reserved < self.free
    }

    fn take(&mut self, _now: Time, _cost: u64) {
        self.reserved += 1;
    }

    fn put_back(&mut self, _now: Time, _cost: u64) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    fn room_at(&self, _cost: u64) -> Option<Time> {
        None
    }

    /// The worker that it was reserved for may have left, or the capacity be less.
    fn honours_grants(&self) -> bool {
        self.reserved <= self.free
    }
}

/// Who asks, and how long it may wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// Where it waits; needed to wait.
    pub home: Option<Home>,
    /// Until when; `None` is without bound.
    pub until: Option<Time>,
}

/// How it went with an item that was to be put.
#[derive(Debug)]
pub enum Put<T> {
    /// It is inside.
    Accepted(ItemId),
    /// It waits for room; a [`Wake`](crate::primitives::Wake) says when to claim.
    Waiting(Ticket, T),
    /// It is not taken.
    Rejected(T, Rejection),
    /// There is no room, and it did not ask to wait.
    NoRoom(T),
    /// The ticket is of no wait; it was cancelled, or is of before a fork.
    Unknown(T),
}

/// How it went with an item that was to be taken.
#[derive(Debug)]
pub enum Take<T> {
    /// There it is.
    Taken(Taken<T>),
    /// In line, or going on to wait: to be given a new waiter by
    /// [`Waitable::renew`].
    Waiting(Ticket),
    /// There is none.
    Empty,
    /// There never will be one: the queue is closed.
    Closed,
    /// It waited for as long as it may.
    TimedOut,
    /// The ticket is of no wait; it was cancelled, or is of before a fork.
    Unknown,
}

impl<T, W> Channel<T, W> {
    /// An open channel over an empty queue.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: QueueConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            takers: Turns::of_side(Items { queue: CoDelQueue::new(config)? }, TAKERS),
            putters: Turns::of_side(Space::default(), PUTTERS),
            is_closed: false,
            is_ended: false,
        })
    }

    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &CoDelQueue<T> {
        &self.takers.room.queue
    }

    /// Whether it is closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many wait for an item.
    #[must_use]
    pub const fn takers(&self) -> usize {
        self.takers.waiting()
    }

    /// How many wait for room.
    #[must_use]
    pub const fn putters(&self) -> usize {
        self.putters.waiting()
    }

    /// Puts an item now, or hands it back.
    ///
    /// It overtakes nobody of the same or higher criticality who waits for room.
    #[inline]
    pub fn put_now(
        &mut self,
        now: Time,
        item: T,
        offer: &Offer<'_>,
        home: Option<Home>,
    ) -> (Put<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let put = match self.put(now, item, offer, home, true) {
            Put::NoRoom(item) => self.refuse(Reason::Full, item, offer),
            put => put,
        };
        self.serve(now, &mut wakes);
        (put, wakes)
    }

    /// Puts an item if there is room for it now; for somebody who else goes on to
    /// wait.
    pub fn put_into_room(&mut self, now: Time, item: T, offer: &Offer<'_>) -> (Put<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let put = self.put(now, item, offer, None, false);
        self.serve(now, &mut wakes);
        (put, wakes)
    }

    /// Puts an item now, or joins the line of those who wait for room with `waiter`,
    /// which is taken only then.
    ///
    /// The deadline of the item bounds the wait too. Nobody is evicted for it but by
    /// more critical items.
    pub fn put_or_wait(
        &mut self,
        now: Time,
        item: T,
        offer: &Offer<'_>,
        wait: Wait,
        waiter: &mut Option<W>,
    ) -> (Put<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let put = match self.put(now, item, offer, wait.home, false) {
            Put::NoRoom(item) => self.wait_for_room(now, item, offer, wait, waiter),
            put => put,
        };
        self.serve(now, &mut wakes);
        (put, wakes)
    }

    /// Puts an item that had to wait for room.
    pub fn claim_room(
        &mut self,
        now: Time,
        ticket: Ticket,
        item: T,
        offer: &Offer<'_>,
    ) -> (Put<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        self.measure();
        let put = match self.putters.claim(now, ticket, &mut wakes) {
            Turn::Granted { cost, .. } => {
                self.putters.room.put_back(now, cost);
                match self.objection(offer) {
                    Some(reason) => self.refuse(reason, item, offer),
                    None => self.push(item, offer),
                }
            }
            Turn::Waiting if self.is_closed => {
                self.putters.cancel(now, ticket, &mut wakes);
                self.refuse(Reason::Closed, item, offer)
            }
            Turn::Waiting => Put::Waiting(ticket, item),
            Turn::Refused { reason, .. } => self.refuse(reason, item, offer),
            Turn::Unknown => Put::Unknown(item),
        };
        self.serve(now, &mut wakes);
        (put, wakes)
    }

    /// Takes the next item now, if there is one for which no worker waits.
    #[inline]
    pub fn take_now(&mut self, now: Time, home: Option<Home>) -> (Take<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let take = self.take(now, home);
        self.serve(now, &mut wakes);
        (take, wakes)
    }

    /// Takes the next item now, or joins the line of those who wait for one with
    /// `waiter`, which is taken only then.
    pub fn take_or_wait(
        &mut self,
        now: Time,
        wait: Wait,
        waiter: &mut Option<W>,
    ) -> (Take<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let mut take = self.take(now, wait.home);
        if matches!(take, Take::Empty) {
            if wait.until.is_some_and(|until| until <= now) {
                take = Take::TimedOut;
            } else if let Some((home, waiter)) = wait.home.zip(waiter.take()) {
                let arrival = Arrival {
                    home,
                    criticality: Criticality::default(),
                    cost: 1,
                    now,
                    bound: wait.until,
                    bound_reason: Reason::Wait,
                };
                take = Take::Waiting(self.takers.join(arrival, waiter));
            }
        }
        self.serve(now, &mut wakes);
        (take, wakes)
    }

    /// Takes an item that had to be waited for.
    pub fn claim_item(&mut self, now: Time, ticket: Ticket) -> (Take<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let take = match self.takers.claim(now, ticket, &mut wakes) {
            Turn::Granted { cost, .. } => {
                self.takers.room.put_back(now, cost);
                // A grant is honoured only while something is inside.
                self.queue_mut().pop_unseen(now).map_or(Take::Empty, Take::Taken)
            }
            Turn::Waiting if self.is_drained() => {
                self.takers.cancel(now, ticket, &mut wakes);
                Take::Closed
            }
            Turn::Waiting => Take::Waiting(ticket),
            // An item may have been put back since.
            Turn::Refused { reason: Reason::Closed, .. } => match self.take(now, None) {
                Take::Empty => Take::Closed,
                take => take,
            },
            Turn::Refused { .. } => Take::TimedOut,
            Turn::Unknown => Take::Unknown,
        };
        self.serve(now, &mut wakes);
        (take, wakes)
    }

    /// Begins to time the work on an item that was just taken.
    pub fn begin(&mut self, taken: &Taken<T>) -> Work {
        self.queue_mut().begin(taken)
    }

    /// Ends work on an item that was taken, and learns from it.
    pub fn finish(&mut self, now: Time, work: Work, is_success: bool) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.queue_mut().finish(now, work, is_success);
        let now = self.queue().latest();
        self.serve(now, &mut wakes);
        wakes
    }

    /// Ends work that is not timed.
    pub fn abandon(&mut self, work: Work) {
        self.queue_mut().abandon(work);
    }

    /// Puts an item back that could not be handed over, into its place.
    pub fn put_back(&mut self, now: Time, taken: Taken<T>) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.queue_mut().put_back(taken);
        let now = self.refresh(now, &mut wakes);
        if self.is_ended {
            self.queue_mut().reject_all(now, Reason::Closed);
        }
        self.serve(now, &mut wakes);
        wakes
    }

    /// Whether an answer to who puts may depend on where it comes from: others wait
    /// for room, and what was granted to them may be stale.
    #[must_use]
    pub fn is_putters_home_wanted(&self) -> bool {
        !self.putters.is_empty()
    }

    /// The same for who takes.
    #[must_use]
    pub fn is_takers_home_wanted(&self) -> bool {
        !self.takers.is_empty()
    }

    /// Takes an item out that is not wanted any more; `None` if it is not inside.
    pub fn cancel_item(&mut self, now: Time, id: ItemId) -> (Option<T>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        let item = self.queue_mut().cancel(now, id);
        self.serve(now, &mut wakes);
        (item, wakes)
    }

    /// Lets nothing in any more; who waits for room is refused. With `is_immediate`
    /// what is inside is rejected.
    pub fn close(&mut self, now: Time, is_immediate: bool) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        self.is_closed = true;
        if is_immediate {
            self.is_ended = true;
            self.queue_mut().reject_all(now, Reason::Closed);
        }
        self.serve(now, &mut wakes);
        wakes
    }

    /// Changes capacity, target, interval or watermarks.
    ///
    /// # Errors
    /// If a parameter is out of its range; then nothing is changed.
    pub fn update(&mut self, now: Time, config: QueueConfig) -> Result<Wakes<W>, ConfigError> {
        let mut wakes = Wakes::none();
        self.queue_mut().update(now, config)?;
        let now = self.queue().latest();
        self.serve(now, &mut wakes);
        Ok(wakes)
    }

    /// Whether there is something to tell.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.queue().has_news()
    }

    /// Takes out what there is to tell.
    #[must_use = "rejected items are in it"]
    pub fn take_news(&mut self) -> Vec<News<T>> {
        self.queue_mut().take_news()
    }

    /// Takes all items out, without any trace; for after a [`reset`](Waitable::reset),
    /// since nobody is called for the room.
    #[must_use = "the items are to be dropped outside the lock"]
    pub fn take_items(&mut self) -> Vec<T> {
        self.queue_mut().clear()
    }

    /// The state of the queue at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> QueueSnapshot {
        self.queue().snapshot(now)
    }

    fn queue_mut(&mut self) -> &mut CoDelQueue<T> {
        &mut self.takers.room.queue
    }

    /// Whether there is nothing to take any more, for ever.
    fn is_drained(&self) -> bool {
        self.is_closed && self.queue().is_empty()
    }

    /// Lets go what is over, before anything is decided.
    #[inline]
    fn look(&mut self, now: Time) -> Time {
        self.queue_mut().expire(now);
        if !self.putters.is_empty() {
            self.measure();
        }
        self.queue().latest()
    }

    /// The same, and serves those in line, before anybody else comes.
    fn refresh(&mut self, now: Time, wakes: &mut Wakes<W>) -> Time {
        let now = self.look(now);
        self.serve(now, wakes);
        now
    }

    /// Serves those in line.
    #[inline]
    fn serve(&mut self, now: Time, wakes: &mut Wakes<W>) {
        if !self.takers.is_empty() {
            self.takers.serve(now, wakes);
            if self.is_drained() && self.takers.waiting() > 0 {
                self.takers.refuse_all(Reason::Closed, wakes);
            }
        }
        self.queue_mut().check_level();
        if !self.putters.is_empty() {
            self.measure();
            if self.is_closed {
                self.putters.refuse_all(Reason::Closed, wakes);
            } else {
                self.putters.serve(now, wakes);
            }
        }
    }

    /// How much room there is: an item for which a worker waits needs none.
    fn measure(&mut self) {
        let idle = self.takers.waiting_ready();
        let room = self.queue().capacity().saturating_sub(self.queue().depth());
        self.putters.room.free = room.saturating_add(idle);
    }

    #[inline]
    fn put(
        &mut self,
        now: Time,
        item: T,
        offer: &Offer<'_>,
        home: Option<Home>,
        for_equals: bool,
    ) -> Put<T> {
        if let Some(reason) = self.objection(offer) {
            return self.refuse(reason, item, offer);
        }
        self.measure();
        if self.putters.is_empty() {
            if self.putters.room.has_room(now, 1) {
                return self.push(item, offer);
            }
        } else if self.putters.admit(now, home, offer.criticality, 1) {
            self.putters.room.put_back(now, 1);
            return self.push(item, offer);
        }
        let is_overtaking = self.putters.is_waiting(offer.criticality);
        if is_overtaking || !self.queue_mut().evict(offer.criticality, for_equals) {
            return Put::NoRoom(item);
        }
        self.push(item, offer)
    }

    /// What speaks against an item, whether there is room or not.
    fn objection(&self, offer: &Offer<'_>) -> Option<Reason> {
        if self.is_closed {
            Some(Reason::Closed)
        } else if self.queue().is_in_vain(offer, self.is_awaited()) {
            Some(Reason::Deadline)
        } else {
            None
        }
    }

    /// Whether a worker waits for the item that comes next.
    fn is_awaited(&self) -> bool {
        self.takers.waiting_ready() > 0
    }

    fn wait_for_room(
        &mut self,
        now: Time,
        item: T,
        offer: &Offer<'_>,
        wait: Wait,
        waiter: &mut Option<W>,
    ) -> Put<T> {
        let home = wait.home.filter(|_| wait.until.is_none_or(|until| until > now));
        let Some((home, waiter)) = home.and_then(|home| Some((home, waiter.take()?))) else {
            return self.refuse(Reason::Wait, item, offer);
        };
        let is_deadline_first = match (offer.deadline, wait.until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, _) => deadline.is_some(),
        };
        let arrival = Arrival {
            home,
            criticality: offer.criticality,
            cost: 1,
            now,
            bound: if is_deadline_first { offer.deadline } else { wait.until },
            bound_reason: if is_deadline_first { Reason::Deadline } else { Reason::Wait },
        };
        Put::Waiting(self.putters.join(arrival, waiter), item)
    }

    #[inline]
    fn push(&mut self, item: T, offer: &Offer<'_>) -> Put<T> {
        let is_awaited = self.is_awaited();
        Put::Accepted(self.queue_mut().push_into_room(item, offer, is_awaited))
    }

    fn refuse(&mut self, reason: Reason, item: T, offer: &Offer<'_>) -> Put<T> {
        Put::Rejected(item, self.queue_mut().refuse_offer(reason, offer))
    }

    fn take(&mut self, now: Time, home: Option<Home>) -> Take<T> {
        if self.is_drained() {
            return Take::Closed;
        }
        if !self.takers.is_empty() {
            if !self.takers.admit(now, home, Criticality::default(), 1) {
                return Take::Empty;
            }
            self.takers.room.put_back(now, 1);
        }
        self.queue_mut().pop_unseen(now).map_or(Take::Empty, Take::Taken)
    }

    fn of(&mut self, ticket: Ticket) -> Side<'_, T, W> {
        if ticket.side() == TAKERS {
            Side::Takers(&mut self.takers)
        } else {
            Side::Putters(&mut self.putters)
        }
    }
}

enum Side<'a, T, W> {
    Takers(&'a mut Turns<Items<T>, W>),
    Putters(&'a mut Turns<Space, W>),
}

impl<T, W> Waitable<W> for Channel<T, W> {
    fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.look(now);
        match self.of(ticket) {
            Side::Takers(takers) => takers.cancel(now, ticket, &mut wakes),
            Side::Putters(putters) => putters.cancel(now, ticket, &mut wakes),
        }
        self.serve(now, &mut wakes);
        wakes
    }

    fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        match self.of(ticket) {
            Side::Takers(takers) => takers.unreached(now, ticket, waiter, &mut wakes),
            Side::Putters(putters) => putters.unreached(now, ticket, waiter, &mut wakes),
        }
        self.serve(now, &mut wakes);
        wakes
    }

    fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.refresh(now, &mut wakes);
        self.takers.expire(now, home, &mut wakes);
        self.measure();
        self.putters.expire(now, home, &mut wakes);
        self.serve(now, &mut wakes);
        wakes
    }

    fn next_expiry(&self) -> Option<Time> {
        let queue = self.queue().next_expiry();
        let waits = self.takers.next_expiry().into_iter().chain(self.putters.next_expiry());
        queue.into_iter().chain(waits).min()
    }

    fn needs_time(&self) -> bool {
        true
    }

    fn latest(&self) -> Time {
        self.queue().latest()
    }

    fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        match self.of(ticket) {
            Side::Takers(takers) => takers.renew(ticket, waiter),
            Side::Putters(putters) => putters.renew(ticket, waiter),
        }
    }

    /// Items may fall due on any loop while there are any, and more may come from where
    /// there is no loop while all workers are at work.
    fn waits(&self, home: Home) -> bool {
        let is_needed = !self.queue().is_empty() || self.queue().working() > 0;
        is_needed || self.takers.waits(home) || self.putters.waits(home)
    }

    fn has_unclaimed(&self, home: Option<Home>) -> bool {
        self.takers.has_unclaimed(home) || self.putters.has_unclaimed(home)
    }

    fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a,
    {
        self.takers.waiters().chain(self.putters.waiters())
    }

    fn take_waiters(&mut self) -> Vec<W> {
        let mut waiters = self.takers.take_waiters();
        waiters.extend(self.putters.take_waiters());
        waiters
    }

    /// The items are still to be taken out, by [`take_items`](Self::take_items).
    fn reset(&mut self) -> Vec<W> {
        let mut waiters = self.takers.clear();
        waiters.extend(self.putters.clear());
        self.putters.room.reserved = 0;
        self.queue_mut().promise(0);
        self.queue_mut().check_level();
        waiters
    }
}
