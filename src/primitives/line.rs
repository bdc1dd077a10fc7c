use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use slab::Slab;

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

/// Who joins the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) home: Home,
    pub(crate) criticality: Criticality,
    pub(crate) cost: u32,
    pub(crate) now: Time,
    /// Until when it may wait.
    pub(crate) bound: Option<Time>,
}

/// What a ticket turned out to be worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting { granted_before: bool },
    Granted { cost: u32, joined: Time },
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
    cost: u32,
    joined: Time,
    bound: Option<Time>,
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

#[derive(Debug)]
struct HomeState {
    id: Home,
    /// The waiting, oldest first, by criticality.
    lanes: [List; 4],
    /// Where the one that came back last went, to look on from there.
    returned: [Option<u32>; 4],
    /// Has a signal to get that could not be delivered.
    is_unreached: bool,
    members: usize,
    /// Let a grant go stale, and has shown no sign of life since.
    stalled: bool,
}

/// The one that is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    key: u32,
    pub(crate) cost: u32,
}

/// The waiting line: who is next, by criticality, then by age.
///
/// A grant is a signal, not a permit: the waiter has to come and claim it. The
/// waiters of a home that lets a grant go stale are passed over until one of
/// them moves again; they keep their places. Every operation is O(log n).
#[derive(Debug)]
pub(crate) struct Line<W> {
    entries: Slab<Entry<W>>,
    homes: Slab<HomeState>,
    home_keys: HashMap<Home, usize>,
    /// The heads of the lanes of the homes that are not stalled: (serial, home).
    ready: [BTreeSet<(u64, usize)>; 4],
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
            homes: Slab::new(),
            home_keys: HashMap::new(),
            ready: [const { BTreeSet::new() }; 4],
            bounds: BTreeSet::new(),
            granted: List::default(),
            retry_at: None,
            waiting: 0,
            next_serial: 0,
        }
    }

    /// How many wait, without those that are granted or refused.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no ticket is out, waiting or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn waits(&self, home: Home) -> bool {
        self.home_keys
            .get(&home)
            .is_some_and(|&key| self.homes[key].lanes.iter().any(|lane| lane.head().is_some()))
    }

    /// Whether somebody at or above `criticality` waits who could answer.
    pub(crate) fn is_waiting(&self, criticality: Criticality) -> bool {
        self.waiting > 0 && self.ready[criticality.index()..].iter().any(|lane| !lane.is_empty())
    }

    /// Whether a signal is out that has not been answered.
    pub(crate) fn has_unclaimed(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.state != State::Waiting)
    }

    pub(crate) fn oldest_wait(&self, now: Time) -> Duration {
        self.homes
            .iter()
            .flat_map(|(_, home)| home.lanes)
            .filter_map(List::head)
            .map(|key| now.since(self.entries[key as usize].joined))
            .max()
            .unwrap_or_default()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.entries.iter().filter_map(|(_, entry)| entry.waiter.as_ref())
    }

    pub(crate) fn join(&mut self, arrival: Arrival, waiter: W) -> Ticket {
        let Arrival { home, criticality, cost, now, bound } = arrival;
        let home = self.enter_home(home);
        let serial = self.next_serial;
        self.next_serial += 1;
        let key = key_of(self.entries.insert(Entry {
            serial,
            home,
            criticality,
            cost,
            joined: now,
            bound,
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
        let (class, &(_, home)) = { self.ready.iter().enumerate().rev() }
            .find_map(|(class, heads)| heads.first().map(|head| (class, head)))?;
        let key = self.homes[home].lanes[class].head()?;
        Some(Head { key, cost: self.entries[key as usize].cost })
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
        home.is_some_and(|home| self.revive(home))
    }

    /// Ends a ticket, whatever it is worth.
    pub(crate) fn leave(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Standing {
        let standing = self.standing(ticket);
        if standing != Standing::Unknown {
            // The waiter of a blocked home cannot leave: this one moves.
            self.revive(self.entries[ticket.key as usize].home);
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
    ) -> Result<Option<u32>, W> {
        let Some(entry) = self.find(ticket) else {
            return Err(waiter);
        };
        entry.waiter = Some(waiter);
        let (home, state) = (entry.home, entry.state);
        self.homes[home].is_unreached = true;
        let retry = now.after(CLAIM_PATIENCE);
        self.retry_at = Some(self.retry_at.map_or(retry, |at| at.min(retry)));
        Ok(matches!(state, State::Granted(_)).then(|| self.revoke_and_stall(ticket.key)))
    }

    /// Tries again to reach those that could not be reached.
    fn retry(&mut self, now: Time, wakes: &mut Wakes<W>) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        let unreached: Vec<usize> = { self.homes.iter_mut() }
            .filter_map(|(key, home)| std::mem::take(&mut home.is_unreached).then_some(key))
            .collect();
        for home in unreached {
            self.revive(home);
        }
        for (key, entry) in &mut self.entries {
            if matches!(entry.state, State::Refused(_)) {
                wakes.extend(entry.wake(key_of(key)));
            }
        }
    }

    /// Refuses all whose bound has passed.
    pub(crate) fn expire(&mut self, now: Time, wakes: &mut Wakes<W>) -> [usize; 4] {
        self.retry(now, wakes);
        let mut expired = [0; 4];
        while let Some(&(bound, key)) = self.bounds.first() {
            if bound > now {
                break;
            }
            self.leave_lane(key);
            let entry = &mut self.entries[key as usize];
            entry.state = State::Refused(Reason::Wait);
            expired[entry.criticality.index()] += 1;
            wakes.extend(entry.wake(key));
        }
        expired
    }

    /// Takes the oldest grant back if it is stale and somebody elsewhere could
    /// use it, and passes its home over from now on. Returns the cost that
    /// became free.
    pub(crate) fn revoke_stale(&mut self, now: Time) -> Option<u32> {
        let (key, home) = self.stale(now)?;
        self.is_ready_elsewhere(home).then(|| self.revoke_and_stall(key))
    }

    /// The same for the benefit of somebody at `home` who is not in line.
    pub(crate) fn revoke_stale_for(&mut self, now: Time, home: Home) -> Option<u32> {
        let (key, owner) = self.stale(now)?;
        (self.homes[owner].id != home).then(|| self.revoke_and_stall(key))
    }

    /// Takes the newest unclaimed grant of another home back for the head, who
    /// is older and whose owner is here now.
    pub(crate) fn revoke_for(&mut self, head: Head) -> Option<u32> {
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

    /// When [`expire`](Self::expire) or [`revoke_stale`](Self::revoke_stale)
    /// next have something to do.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        let bound = self.bounds.first().map(|&(bound, _)| bound);
        let stale = self.granted.head().and_then(|key| {
            let entry = &self.entries[key as usize];
            match entry.state {
                State::Granted(at) if self.is_ready_elsewhere(entry.home) => {
                    Some(at.after(CLAIM_PATIENCE))
                }
                _ => None,
            }
        });
        bound.into_iter().chain(stale).chain(self.retry_at).min()
    }

    /// Notes that a home is not blocked.
    pub(crate) fn show_alive(&mut self, home: Home) {
        if let Some(&key) = self.home_keys.get(&home) {
            self.revive(key);
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

    fn enter_home(&mut self, id: Home) -> usize {
        let homes = &mut self.homes;
        let key = *self.home_keys.entry(id).or_insert_with(|| {
            homes.insert(HomeState {
                id,
                lanes: [List::default(); 4],
                returned: [None; 4],
                is_unreached: false,
                members: 0,
                stalled: false,
            })
        });
        self.homes[key].members += 1;
        self.revive(key);
        key
    }

    /// Returns what it would have been woken with.
    fn remove(&mut self, key: u32) -> Option<W> {
        match self.entries[key as usize].state {
            State::Waiting => self.leave_lane(key),
            State::Granted(_) => self.granted.unlink(&mut self.entries, key),
            State::Refused(_) => {}
        }
        let Entry { home, waiter, .. } = self.entries.remove(key as usize);
        self.homes[home].members -= 1;
        if self.homes[home].members == 0 {
            let home = self.homes.remove(home);
            self.home_keys.remove(&home.id);
        }
        waiter
    }

    /// Puts a waiting entry into its lane, in order of age.
    fn enter_lane(&mut self, key: u32) {
        let Entry { serial, home, criticality, bound, .. } = self.entries[key as usize];
        let class = criticality.index();
        let state = &mut self.homes[home];
        let lane = &mut state.lanes[class];
        let old_head = lane.head();
        // The newest goes to the back at once. One that comes back after a lost
        // grant is among the oldest, and behind the one that came back before it
        // as a rule, since grants are lost in their order.
        let is_before = |entries: &Slab<Entry<W>>, other: u32| {
            entries.get(other as usize).is_some_and(|other| {
                other.state == State::Waiting
                    && other.home == home
                    && other.criticality == criticality
                    && other.serial < serial
            })
        };
        let prev = if lane.tail().is_none_or(|tail| is_before(&self.entries, tail)) {
            lane.tail()
        } else {
            let hint = state.returned[class].filter(|&hint| is_before(&self.entries, hint));
            let mut prev = hint;
            let mut cursor = match hint {
                Some(hint) => self.entries[hint as usize].links.next(),
                None => old_head,
            };
            while let Some(other) = cursor.filter(|&other| is_before(&self.entries, other)) {
                (prev, cursor) = (Some(other), self.entries[other as usize].links.next());
            }
            state.returned[class] = Some(key);
            prev
        };
        lane.insert_after(&mut self.entries, prev, key);
        if prev.is_none() && !state.stalled {
            if let Some(old) = old_head {
                self.ready[class].remove(&(self.entries[old as usize].serial, home));
            }
            self.ready[class].insert((serial, home));
        }
        if let Some(bound) = bound {
            self.bounds.insert((bound, key));
        }
        self.waiting += 1;
    }

    fn leave_lane(&mut self, key: u32) {
        let Entry { serial, home, criticality, bound, .. } = self.entries[key as usize];
        let class = criticality.index();
        let state = &mut self.homes[home];
        let lane = &mut state.lanes[class];
        let was_head = lane.head() == Some(key);
        lane.unlink(&mut self.entries, key);
        if was_head && !state.stalled {
            self.ready[class].remove(&(serial, home));
            if let Some(next) = lane.head() {
                self.ready[class].insert((self.entries[next as usize].serial, home));
            }
        }
        if let Some(bound) = bound {
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

    fn is_ready_elsewhere(&self, home: usize) -> bool {
        // A home stands at most once in each set: the first two tell.
        self.ready.iter().any(|lane| lane.iter().take(2).any(|&(_, other)| other != home))
    }

    fn revoke_and_stall(&mut self, key: u32) -> u32 {
        let home = self.entries[key as usize].home;
        if !self.homes[home].stalled {
            self.homes[home].stalled = true;
            for (class, lane) in self.homes[home].lanes.iter().enumerate() {
                if let Some(head) = lane.head() {
                    self.ready[class].remove(&(self.entries[head as usize].serial, home));
                }
            }
        }
        self.revoke(key)
    }

    fn revoke(&mut self, key: u32) -> u32 {
        self.granted.unlink(&mut self.entries, key);
        let entry = &mut self.entries[key as usize];
        entry.state = State::Waiting;
        entry.granted_before = true;
        let cost = entry.cost;
        self.enter_lane(key);
        cost
    }

    fn revive(&mut self, home: usize) -> bool {
        if !std::mem::take(&mut self.homes[home].stalled) {
            return false;
        }
        for (class, lane) in self.homes[home].lanes.iter().enumerate() {
            if let Some(head) = lane.head() {
                self.ready[class].insert((self.entries[head as usize].serial, home));
            }
        }
        true
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
