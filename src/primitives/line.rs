use std::collections::BTreeSet;
use std::time::Duration;

use slab::Slab;

use super::lanes::{Lanes, Waits};
use super::links::{Linked, Links, List};
use super::{Criticality, Reason, Time, Wake, Wakes};

/// How long a grant may stay unclaimed before somebody else may have it.
pub const CLAIM_PATIENCE: Duration = Duration::from_millis(50);

/// Where a waiter lives: the waiters of one home are answered by the same
/// thread of control, an event loop or a parked thread, and are blocked
/// together when it is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home(pub u64);

/// A place in line. It stays valid until it is claimed or cancelled, and a
/// ticket that is no longer valid is recognised for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    key: u32,
    serial: u64,
}

/// How many lines can stand at one object.
const SIDES: u64 = 2;

impl Ticket {
    pub(crate) const fn new(key: u32, serial: u64) -> Self {
        Self { key, serial }
    }

    pub(crate) const fn key(self) -> u32 {
        self.key
    }

    pub(crate) const fn serial(self) -> u64 {
        self.serial
    }

    pub(crate) const fn side(self) -> u64 {
        self.serial % SIDES
    }
}

/// Who joins the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) home: Home,
    pub(crate) criticality: Criticality,
    pub(crate) cost: u64,
    pub(crate) now: Time,
    /// Until when it may wait.
    pub(crate) bound: Option<Time>,
    /// Why it is refused then.
    pub(crate) bound_reason: Reason,
}

/// What a ticket turned out to be worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting { granted_before: bool },
    Granted { cost: u64, joined: Time },
    Refused { reason: Reason, criticality: Criticality },
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Granted(Time),
    Refused(Reason),
}

#[derive(Debug)]
struct Entry<W> {
    serial: u64,
    home: usize,
    criticality: Criticality,
    cost: u64,
    joined: Time,
    bound: Option<Time>,
    bound_reason: Reason,
    state: State,
    /// Was granted before and came too late for it.
    granted_before: bool,
    /// `None` while a signal is on its way.
    waiter: Option<W>,
    links: Links,
}

impl<W> Linked for Entry<W> {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<W> Waits for Entry<W> {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn home(&self) -> usize {
        self.home
    }

    fn criticality(&self) -> Criticality {
        self.criticality
    }

    fn cost(&self) -> u64 {
        self.cost
    }

    fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }
}

/// The one that is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    key: u32,
    pub(crate) cost: u64,
    pub(crate) bound: Option<Time>,
}

/// The waiting line: who is next, by criticality, then by age.
///
/// A grant is a signal, not a permit: the waiter has to come and claim it. The
/// waiters of a home that lets a grant go stale are passed over until one of
/// them moves again; they keep their places. Every operation is O(log n).
#[derive(Debug)]
pub(crate) struct Line<W> {
    entries: Slab<Entry<W>>,
    lanes: Lanes,
    bounds: BTreeSet<(Time, u32)>,
    /// The granted and not yet claimed, by the time of the grant.
    granted: List,
    /// When those are tried again that could not be reached.
    retry_at: Option<Time>,
    waiting: usize,
    next_serial: u64,
}

impl<W> Line<W> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Slab::new(),
            lanes: Lanes::new(),
            bounds: BTreeSet::new(),
            granted: List::default(),
            retry_at: None,
            waiting: 0,
            next_serial: 0,
        }
    }

    /// One of two lines at one object, 0 or 1: [`Ticket::side`] tells whose a
    /// ticket is.
    pub(crate) fn of_side(side: u64) -> Self {
        Self { next_serial: side, ..Self::new() }
    }

    /// How many wait, without those that are granted or refused.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many wait who could answer.
    pub(crate) const fn waiting_ready(&self) -> usize {
        self.lanes.ready()
    }

    /// What these ask for together.
    pub(crate) const fn ready_cost(&self) -> u128 {
        self.lanes.ready_cost()
    }

    /// Whether no ticket is out, waiting or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn waits(&self, home: Home) -> bool {
        self.lanes.waits(home)
    }

    /// Whether somebody at or above `criticality` waits who could answer.
    pub(crate) fn is_waiting(&self, criticality: Criticality) -> bool {
        self.waiting > 0 && self.lanes.is_ready(criticality)
    }

    /// Whether a signal is out, to `home` or anywhere, that has not been answered.
    pub(crate) fn has_unclaimed(&self, home: Option<Home>) -> bool {
        let mut entries = self.entries.iter().filter(|(_, entry)| entry.state != State::Waiting);
        entries.any(|(_, entry)| home.is_none_or(|home| self.lanes.is(entry.home, home)))
    }

    pub(crate) fn oldest_wait(&self, now: Time) -> Duration {
        self.lanes
            .all_heads()
            .map(|key| now.since(self.entries[key as usize].joined))
            .max()
            .unwrap_or_default()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.entries.iter().filter_map(|(_, entry)| entry.waiter.as_ref())
    }

    pub(crate) fn join(&mut self, arrival: Arrival, waiter: W) -> Ticket {
        let Arrival { home, criticality, cost, now, bound, bound_reason } = arrival;
        let home = self.lanes.enter_home(&self.entries, home);
        let serial = self.next_serial;
        self.next_serial += SIDES;
        let key = key_of(self.entries.insert(Entry {
            serial,
            home,
            criticality,
            cost,
            joined: now,
            bound,
            bound_reason,
            state: State::Waiting,
            granted_before: false,
            waiter: Some(waiter),
            links: Links::default(),
        }));
        self.enter_lane(key);
        Ticket { key, serial }
    }

    /// Gives a ticket whose signal was used up something to be woken with, and
    /// returns what it had; hands it back if the ticket no longer waits and has to
    /// be claimed instead.
    pub(crate) fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        match self.find(ticket) {
            Some(entry) if entry.state == State::Waiting => Ok(entry.waiter.replace(waiter)),
            _ => Err(waiter),
        }
    }

    pub(crate) fn head(&self) -> Option<Head> {
        if self.waiting == 0 {
            return None;
        }
        let key = self.lanes.head()?;
        let Entry { cost, bound, .. } = self.entries[key as usize];
        Some(Head { key, cost, bound })
    }

    /// The head, if it is this ticket's.
    pub(crate) fn head_if(&self, ticket: Ticket) -> Option<Head> {
        self.head().filter(|head| head.key == ticket.key)
    }

    /// Grants the head its turn; no wake if its signal is already on its way.
    pub(crate) fn grant(&mut self, head: Head, now: Time) -> Option<Wake<W>> {
        self.leave_lane(head.key);
        self.granted.push_back(&mut self.entries, head.key);
        let entry = &mut self.entries[head.key as usize];
        entry.state = State::Granted(now);
        entry.wake(head.key)
    }

    /// What a ticket is worth now. Granted and refused tickets end with it.
    pub(crate) fn claim(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Standing {
        let standing = self.standing(ticket);
        if matches!(standing, Standing::Granted { .. } | Standing::Refused { .. }) {
            wakes.discard(self.remove(ticket.key));
        }
        standing
    }

    /// Notes that the home of a ticket is not blocked; whether it was passed over
    /// until now.
    pub(crate) fn show_alive_at(&mut self, ticket: Ticket) -> bool {
        let home = self.find(ticket).map(|entry| entry.home);
        home.is_some_and(|home| self.lanes.come_back(&self.entries, home))
    }

    /// Ends a ticket, whatever it is worth.
    pub(crate) fn leave(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Standing {
        let standing = self.standing(ticket);
        if standing != Standing::Unknown {
            // The waiter of a blocked home cannot leave: this one moves.
            let home = self.entries[ticket.key as usize].home;
            self.lanes.come_back(&self.entries, home);
            wakes.discard(self.remove(ticket.key));
        }
        standing
    }

    /// Takes the signal of a ticket back that could not be delivered although its
    /// home is there: the home is passed over for a while, and then tried again.
    /// Returns the cost that became free; hands the waiter back if the ticket is
    /// over.
    pub(crate) fn unreached(
        &mut self,
        now: Time,
        ticket: Ticket,
        waiter: W,
    ) -> Result<Option<u64>, W> {
        let Some(entry) = self.find(ticket) else {
            return Err(waiter);
        };
        entry.waiter = Some(waiter);
        let (home, state) = (entry.home, entry.state);
        self.lanes.note_unreached(home);
        let retry = now.after(CLAIM_PATIENCE);
        self.retry_at = Some(self.retry_at.map_or(retry, |at| at.min(retry)));
        Ok(matches!(state, State::Granted(_)).then(|| self.revoke_and_pass_over(ticket.key)))
    }

    /// Tries again to reach those that could not be reached.
    fn retry(&mut self, now: Time, wakes: &mut Wakes<W>) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        self.lanes.come_back_to_the_unreached(&self.entries);
        for (key, entry) in &mut self.entries {
            if matches!(entry.state, State::Refused(_)) {
                wakes.extend(entry.wake(key_of(key)));
            }
        }
    }

    /// Refuses all whose bound has passed, and returns how many.
    pub(crate) fn expire(&mut self, now: Time, wakes: &mut Wakes<W>) -> u64 {
        self.retry(now, wakes);
        let mut expired = 0;
        while let Some(&(bound, key)) = self.bounds.first() {
            if bound > now {
                break;
            }
            self.leave_lane(key);
            let entry = &mut self.entries[key as usize];
            entry.state = State::Refused(entry.bound_reason);
            expired += 1;
            wakes.extend(entry.wake(key));
        }
        expired
    }

    /// Takes the oldest grant back if it is stale and somebody elsewhere could
    /// use it, and passes its home over from now on. Returns the cost that
    /// became free.
    pub(crate) fn revoke_stale(&mut self, now: Time) -> Option<u64> {
        let (key, home) = self.stale(now)?;
        self.lanes.is_ready_elsewhere(home).then(|| self.revoke_and_pass_over(key))
    }

    /// The same for the benefit of somebody at `home` who is not in line.
    pub(crate) fn revoke_stale_for(&mut self, now: Time, home: Home) -> Option<u64> {
        let (key, owner) = self.stale(now)?;
        (!self.lanes.is(owner, home)).then(|| self.revoke_and_pass_over(key))
    }

    /// The same for somebody behind whom nobody waits but neighbours of the stale
    /// grant, who are as blocked as it is.
    pub(crate) fn revoke_stale_ahead(
        &mut self,
        now: Time,
        home: Home,
        criticality: Criticality,
    ) -> Option<u64> {
        let (key, owner) = self.stale(now)?;
        let is_blocked =
            !self.lanes.is(owner, home) && !self.lanes.is_ready_elsewhere_from(owner, criticality);
        is_blocked.then(|| self.revoke_and_pass_over(key))
    }

    /// Takes the newest unclaimed grant of another home back for the head, who
    /// is older and whose owner is here now.
    pub(crate) fn revoke_for(&mut self, head: Head) -> Option<u64> {
        let Entry { home, criticality, serial, .. } = self.entries[head.key as usize];
        let mut cursor = self.granted.tail();
        while let Some(key) = cursor {
            let entry = &self.entries[key as usize];
            if entry.serial > serial && entry.home != home && entry.criticality <= criticality {
                return Some(self.revoke(key));
            }
            cursor = entry.links.prev();
        }
        None
    }

    /// Takes back what a ticket was granted, which waits again in its old place.
    pub(crate) fn take_back(&mut self, ticket: Ticket) -> Option<u64> {
        let state = self.find(ticket)?.state;
        matches!(state, State::Granted(_)).then(|| self.revoke(ticket.key))
    }

    /// Refuses all that wait.
    pub(crate) fn refuse_all(&mut self, reason: Reason, wakes: &mut Wakes<W>) {
        if self.waiting == 0 {
            return;
        }
        let waiting: Vec<u32> = { self.entries.iter() }
            .filter(|(_, entry)| entry.state == State::Waiting)
            .map(|(key, _)| key_of(key))
            .collect();
        for key in waiting {
            self.leave_lane(key);
            let entry = &mut self.entries[key as usize];
            entry.state = State::Refused(reason);
            wakes.extend(entry.wake(key));
        }
    }

    /// When [`expire`](Self::expire) or [`revoke_stale`](Self::revoke_stale)
    /// next have something to do.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        let bound = self.bounds.first().map(|&(bound, _)| bound);
        let stale = self.granted.head().and_then(|key| {
            let entry = &self.entries[key as usize];
            match entry.state {
                State::Granted(at) if self.lanes.is_ready_elsewhere(entry.home) => {
                    Some(at.after(CLAIM_PATIENCE))
                }
                _ => None,
            }
        });
        bound.into_iter().chain(stale).chain(self.retry_at).min()
    }

    /// Notes that a home is not blocked.
    pub(crate) fn show_alive(&mut self, home: Home) {
        if let Some(key) = self.lanes.key_of(home) {
            self.lanes.come_back(&self.entries, key);
        }
    }

    /// Takes out what the waiters would be woken with, and leaves them in line.
    pub(crate) fn take_waiters(&mut self) -> Vec<W> {
        self.entries.iter_mut().filter_map(|(_, entry)| entry.waiter.take()).collect()
    }

    /// Forgets everybody. Their tickets stay recognisable as unknown.
    pub(crate) fn clear(&mut self) -> Vec<W> {
        let waiters = self.take_waiters();
        *self = Self { next_serial: self.next_serial, ..Self::new() };
        waiters
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Entry<W>> {
        self.entries.get_mut(ticket.key as usize).filter(|entry| entry.serial == ticket.serial)
    }

    fn standing(&mut self, ticket: Ticket) -> Standing {
        let Some(entry) = self.find(ticket) else {
            return Standing::Unknown;
        };
        match entry.state {
            State::Waiting => Standing::Waiting { granted_before: entry.granted_before },
            State::Granted(_) => Standing::Granted { cost: entry.cost, joined: entry.joined },
            State::Refused(reason) => Standing::Refused { reason, criticality: entry.criticality },
        }
    }

    /// Returns what it would have been woken with.
    fn remove(&mut self, key: u32) -> Option<W> {
        match self.entries[key as usize].state {
            State::Waiting => self.leave_lane(key),
            State::Granted(_) => self.granted.unlink(&mut self.entries, key),
            State::Refused(_) => {}
        }
        let Entry { home, waiter, .. } = self.entries.remove(key as usize);
        self.lanes.leave_home(home);
        waiter
    }

    fn enter_lane(&mut self, key: u32) {
        self.lanes.enter(&mut self.entries, key);
        if let Some(bound) = self.entries[key as usize].bound {
            self.bounds.insert((bound, key));
        }
        self.waiting += 1;
    }

    fn leave_lane(&mut self, key: u32) {
        self.lanes.leave(&mut self.entries, key);
        if let Some(bound) = self.entries[key as usize].bound {
            self.bounds.remove(&(bound, key));
        }
        self.waiting -= 1;
    }

    fn stale(&self, now: Time) -> Option<(u32, usize)> {
        let key = self.granted.head()?;
        let entry = &self.entries[key as usize];
        match entry.state {
            State::Granted(at) if at.after(CLAIM_PATIENCE) <= now => Some((key, entry.home)),
            _ => None,
        }
    }

    fn revoke_and_pass_over(&mut self, key: u32) -> u64 {
        let home = self.entries[key as usize].home;
        self.lanes.pass_over(home);
        self.revoke(key)
    }

    fn revoke(&mut self, key: u32) -> u64 {
        self.granted.unlink(&mut self.entries, key);
        let entry = &mut self.entries[key as usize];
        entry.state = State::Waiting;
        entry.granted_before = true;
        let cost = entry.cost;
        self.enter_lane(key);
        cost
    }
}

impl<W> Entry<W> {
    fn wake(&mut self, key: u32) -> Option<Wake<W>> {
        let ticket = Ticket { key, serial: self.serial };
        self.waiter.take().map(|waiter| Wake { ticket, waiter })
    }
}

/// Four thousand million waiters do not fit into memory.
#[allow(clippy::cast_possible_truncation)]
const fn key_of(key: usize) -> u32 {
    key as u32
}
