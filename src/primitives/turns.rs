use std::time::Duration;

use super::line::{Arrival, Line, Standing};
use super::{Criticality, Home, Reason, Ticket, Time, Wakes};

const INSTANT: Duration = Duration::from_nanos(1);

/// What turns are given for: units of a limit, tokens of a bucket, items of a
/// queue.
pub(crate) trait Room {
    fn has_room(&self, now: Time, cost: u64) -> bool;
    fn take(&mut self, now: Time, cost: u64);
    fn put_back(&mut self, now: Time, cost: u64);
    /// When there is room by the mere passing of time.
    fn room_at(&self, cost: u64) -> Option<Time>;
    /// Whether what was taken for somebody who comes now is still there.
    fn honours_grants(&self) -> bool {
        true
    }
}

/// Room and the line of those who wait for it: who gets a turn, and when.
#[derive(Debug)]
pub(crate) struct Turns<R, W> {
    pub(crate) room: R,
    line: Line<W>,
    now: Time,
    revoked: u64,
}

/// What a ticket turned out to be worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Granted { cost: u64, waited: Duration },
    Waiting,
    Refused { reason: Reason, criticality: Criticality },
    Unknown,
}

impl<R: Room, W> Turns<R, W> {
    pub(crate) fn new(room: R) -> Self {
        Self { room, line: Line::new(), now: Time::ZERO, revoked: 0 }
    }

    /// Tells the tickets of two lines apart that stand at one object.
    pub(crate) fn of_side(room: R, side: u64) -> Self {
        Self { line: Line::of_side(side), ..Self::new(room) }
    }

    pub(crate) fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// The latest moment seen.
    pub(crate) const fn latest(&self) -> Time {
        self.now
    }

    /// How many wait in line.
    pub(crate) const fn waiting(&self) -> usize {
        self.line.waiting()
    }

    /// How many wait whose homes are not blocked.
    pub(crate) const fn waiting_ready(&self) -> usize {
        self.line.waiting_ready()
    }

    /// What these ask for together.
    pub(crate) const fn ready_cost(&self) -> u128 {
        self.line.ready_cost()
    }

    /// Whether somebody at or above `criticality` waits who could answer.
    pub(crate) fn is_waiting(&self, criticality: Criticality) -> bool {
        self.line.is_waiting(criticality)
    }

    pub(crate) fn oldest_wait(&self, now: Time) -> Duration {
        self.line.oldest_wait(now.max(self.now))
    }

    /// How many grants were taken back because nobody came to claim them.
    pub(crate) const fn revoked(&self) -> u64 {
        self.revoked
    }

    /// Whether no ticket is out, waiting or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Takes room for somebody who comes now; whether there was any.
    ///
    /// It never overtakes a waiter of the same or higher criticality whose home
    /// is not blocked.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        now: Time,
        home: Option<Home>,
        criticality: Criticality,
        cost: u64,
    ) -> bool {
        let now = self.tick(now);
        if let Some(home) = home {
            self.line.show_alive(home);
        }
        loop {
            let freed = if self.line.is_waiting(criticality) {
                home.and_then(|home| self.line.revoke_stale_ahead(now, home, criticality))
            } else if self.room.has_room(now, cost) {
                self.room.take(now, cost);
                return true;
            } else {
                home.and_then(|home| self.line.revoke_stale_for(now, home))
            };
            let Some(freed) = freed else {
                return false;
            };
            self.room.put_back(now, freed);
            self.revoked += 1;
        }
    }

    pub(crate) fn join(&mut self, arrival: Arrival, waiter: W) -> Ticket {
        self.line.join(arrival, waiter)
    }

    /// Asks what a ticket is worth, after its wake or at any other time.
    pub(crate) fn claim(&mut self, now: Time, ticket: Ticket, wakes: &mut Wakes<W>) -> Turn {
        let now = self.tick(now);
        // Whoever claims is not blocked, so that its neighbours may be next.
        let is_revived = self.line.show_alive_at(ticket);
        if !self.room.honours_grants()
            && let Some(cost) = self.line.take_back(ticket)
        {
            self.room.put_back(now, cost);
        }
        let mut standing = self.line.claim(ticket, wakes);
        if let Standing::Waiting { granted_before } = standing {
            self.serve(now, wakes);
            self.line.show_alive_at(ticket);
            // What is honoured for nobody is of no use to a late claimer either.
            if granted_before && self.room.honours_grants() {
                self.take_over(now, ticket, wakes);
            }
            standing = self.line.claim(ticket, wakes);
        } else if is_revived {
            self.serve(now, wakes);
        }
        match standing {
            Standing::Granted { cost, joined } => Turn::Granted { cost, waited: now.since(joined) },
            Standing::Waiting { .. } => Turn::Waiting,
            Standing::Refused { reason, criticality } => Turn::Refused { reason, criticality },
            Standing::Unknown => Turn::Unknown,
        }
    }

    pub(crate) fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        self.line.renew(ticket, waiter)
    }

    pub(crate) fn cancel(&mut self, now: Time, ticket: Ticket, wakes: &mut Wakes<W>) {
        let now = self.tick(now);
        if let Standing::Granted { cost, .. } = self.line.leave(ticket, wakes) {
            self.room.put_back(now, cost);
        }
        self.serve(now, wakes);
    }

    pub(crate) fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W, wakes: &mut Wakes<W>) {
        let now = self.tick(now);
        match self.line.unreached(now, ticket, waiter) {
            Ok(Some(cost)) => self.room.put_back(now, cost),
            Ok(None) => {}
            Err(waiter) => wakes.discard(Some(waiter)),
        }
        self.serve(now, wakes);
    }

    /// Returns how many have waited for as long as they may.
    pub(crate) fn expire(&mut self, now: Time, home: Option<Home>, wakes: &mut Wakes<W>) -> u64 {
        let now = self.tick(now);
        if let Some(home) = home {
            self.line.show_alive(home);
        }
        // What came before somebody's time was over is its own, however late one looks.
        while let Some(head) = self.line.head()
            && let Some(bound) = head.bound.filter(|&bound| bound <= now)
            && self.room.has_room(bound.before(INSTANT), head.cost)
        {
            self.room.take(now, head.cost);
            wakes.extend(self.line.grant(head, now));
        }
        let mut expired = 0;
        loop {
            expired += self.line.expire(now, wakes);
            let revoked = self.revoked;
            self.serve(now, wakes);
            // Whose grant is taken back here may have waited too long as well.
            if self.revoked == revoked {
                return expired;
            }
        }
    }

    /// Refuses all that wait.
    pub(crate) fn refuse_all(&mut self, reason: Reason, wakes: &mut Wakes<W>) {
        self.line.refuse_all(reason, wakes);
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        if self.line.is_empty() {
            return None;
        }
        let head = self.line.head();
        // After a wake that could not be delivered the head has room: overdue.
        if head.is_some_and(|head| self.room.has_room(self.now, head.cost)) {
            return Some(self.now);
        }
        let room = head.and_then(|head| self.room.room_at(head.cost));
        self.line.next_expiry().into_iter().chain(room).min().filter(|&at| at < Time::MAX)
    }

    pub(crate) fn waits(&self, home: Home) -> bool {
        self.line.waits(home)
    }

    pub(crate) fn has_unclaimed(&self, home: Option<Home>) -> bool {
        self.line.has_unclaimed(home)
    }

    pub(crate) fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a,
    {
        self.line.waiters()
    }

    pub(crate) fn take_waiters(&mut self) -> Vec<W> {
        self.line.take_waiters()
    }

    /// Forgets everybody; what they had taken is not put back.
    pub(crate) fn clear(&mut self) -> Vec<W> {
        self.line.clear()
    }

    /// Serves those in line, if there are any.
    pub(crate) fn served(&mut self, now: Time) -> Wakes<W> {
        let mut wakes = Wakes::none();
        if !self.line.is_empty() {
            let now = self.tick(now);
            self.serve(now, &mut wakes);
        }
        wakes
    }

    /// Grants turns while there is room and somebody who could answer.
    pub(crate) fn serve(&mut self, now: Time, wakes: &mut Wakes<W>) {
        while let Some(head) = self.line.head() {
            if self.room.has_room(now, head.cost) {
                self.room.take(now, head.cost);
                wakes.extend(self.line.grant(head, now));
            } else if let Some(cost) = self.line.revoke_stale(now) {
                self.room.put_back(now, cost);
                self.revoked += 1;
            } else {
                break;
            }
        }
    }

    /// Lets a late claimer who is the head have what younger ones elsewhere were
    /// granted and have not claimed: whoever comes first. So homes that are all
    /// slow still make progress.
    fn take_over(&mut self, now: Time, ticket: Ticket, wakes: &mut Wakes<W>) {
        let Some(head) = self.line.head_if(ticket) else {
            return;
        };
        while !self.room.has_room(now, head.cost) {
            let Some(freed) = self.line.revoke_for(head) else {
                return;
            };
            self.room.put_back(now, freed);
            self.revoked += 1;
        }
        self.room.take(now, head.cost);
        // Whoever claims is awake.
        wakes.discard(self.line.grant(head, now).map(|wake| wake.waiter));
    }
}
