use rustc_hash::FxHashMap;
use slab::Slab;

use crate::primitives::links::{Linked, Links, List};
use crate::primitives::{
    Criticality, Home, ItemId, Permit, Rejection, Taken, Ticket, Time, Wake, Wakes,
};

/// Somebody who waits, or has not come yet to hear what came of it.
#[derive(Debug)]
pub(super) struct Seat<W> {
    serial: u64,
    pub(super) home: Home,
    pub(super) criticality: Criticality,
    pub(super) cost: u32,
    /// Of the rate, charged at the arrival.
    pub(super) tokens: f64,
    pub(super) joined: Time,
    pub(super) state: State,
    /// Was granted before and came too late for it.
    pub(super) is_late: bool,
    /// `None` while a signal is on its way.
    pub(super) waiter: Option<W>,
    links: Links,
}

#[derive(Debug)]
pub(super) enum State {
    /// In line.
    Waiting(ItemId),
    /// Out of the line until its home moves again.
    Aside(Box<Taken<u32>>),
    /// To be claimed, since then.
    Granted(Time, Box<Grant>),
    Refused(Box<Rejection>),
    /// Nobody is there: the work runs already, and what would have come of it is found
    /// out.
    Shadow(Box<super::shadow::Shadow>),
}

#[derive(Debug)]
pub(super) struct Grant {
    pub(super) taken: Taken<u32>,
    pub(super) permit: Permit,
}

impl<W> Linked for Seat<W> {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Who takes a seat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comer {
    pub(super) home: Home,
    pub(super) criticality: Criticality,
    pub(super) cost: u32,
    pub(super) tokens: f64,
    pub(super) joined: Time,
}

/// All who wait at a gate, by ticket, wherever they stand.
#[derive(Debug)]
pub(super) struct Seats<W> {
    slab: Slab<Seat<W>>,
    /// The granted and not yet claimed, by the time of the grant.
    granted: List,
    /// How many of each home stand in line.
    in_line: FxHashMap<Home, usize>,
    next_serial: u64,
}

impl<W> Seats<W> {
    pub(super) fn new() -> Self {
        // So that no serial is zero.
        Self {
            slab: Slab::new(),
            granted: List::new(),
            in_line: FxHashMap::default(),
            next_serial: 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// A seat for somebody whose state, and what he is woken with, is still to be said.
    pub(super) fn take(&mut self, comer: Comer) -> Ticket {
        let Comer { home, criticality, cost, tokens, joined } = comer;
        let serial = self.next_serial;
        self.next_serial += 1;
        let key = self.slab.insert(Seat {
            serial,
            home,
            criticality,
            cost,
            tokens,
            joined,
            state: State::Waiting(ItemId::from_bits(0)),
            is_late: false,
            waiter: None,
            links: Links::default(),
        });
        Ticket::new(key_of(key), serial)
    }

    pub(super) fn find(&mut self, ticket: Ticket) -> Option<&mut Seat<W>> {
        { self.slab.get_mut(ticket.key() as usize) }.filter(|seat| seat.serial == ticket.serial())
    }

    pub(super) fn at(&self, key: u32) -> Option<&Seat<W>> {
        self.slab.get(key as usize)
    }

    pub(super) fn at_mut(&mut self, key: u32) -> Option<&mut Seat<W>> {
        self.slab.get_mut(key as usize)
    }

    pub(super) fn ticket_of(&self, key: u32) -> Option<Ticket> {
        self.at(key).map(|seat| Ticket::new(key, seat.serial))
    }

    /// Ends a seat; a grant in it is to be taken out before.
    pub(super) fn leave(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Option<Seat<W>> {
        self.find(ticket)?;
        let key = ticket.key();
        if matches!(self.slab[key as usize].state, State::Granted(..)) {
            self.granted.unlink(&mut self.slab, key);
        }
        let mut seat = self.slab.remove(key as usize);
        wakes.discard(seat.waiter.take());
        Some(seat)
    }

    /// He stands in line from now on.
    pub(super) fn enter_line(&mut self, key: u32, item: ItemId) {
        let Some(seat) = self.slab.get_mut(key as usize) else { return };
        *self.in_line.entry(seat.home).or_default() += 1;
        match &mut seat.state {
            State::Shadow(shadow) => shadow.stand(item),
            state => *state = State::Waiting(item),
        }
    }

    /// And who has this seat does not any more.
    pub(super) fn leave_line_at(&mut self, key: u32) {
        if let Some(home) = self.at(key).map(|seat| seat.home) {
            self.leave_line(home);
        }
    }

    /// Nor does somebody of this home, whose seat is gone.
    pub(super) fn leave_line(&mut self, home: Home) {
        if let Some(count) = self.in_line.get_mut(&home) {
            *count -= 1;
            if *count == 0 {
                self.in_line.remove(&home);
            }
        }
    }

    /// Whether somebody stands in line elsewhere.
    pub(super) fn is_line_elsewhere(&self, home: Home) -> bool {
        self.in_line.len() > usize::from(self.in_line.contains_key(&home))
    }

    /// Grants, and wakes whoever waits there.
    pub(super) fn grant(&mut self, key: u32, now: Time, grant: Grant, wakes: &mut Wakes<W>) {
        if let Some(seat) = self.slab.get_mut(key as usize) {
            seat.state = State::Granted(now, Box::new(grant));
            wakes.extend(seat.wake(key));
            self.granted.push_back(&mut self.slab, key);
        }
    }

    /// Takes a grant back; the seat is to be put somewhere.
    pub(super) fn revoke(&mut self, key: u32) -> Option<Grant> {
        let seat = self.slab.get_mut(key as usize)?;
        if !matches!(seat.state, State::Granted(..)) {
            return None;
        }
        let nowhere = State::Waiting(ItemId::from_bits(0));
        let State::Granted(_, grant) = std::mem::replace(&mut seat.state, nowhere) else {
            return None;
        };
        seat.is_late = true;
        self.granted.unlink(&mut self.slab, key);
        Some(*grant)
    }

    /// The oldest grant that is not claimed, where, and since when.
    pub(super) fn oldest_grant(&self) -> Option<(u32, Home, Time)> {
        let key = self.granted.head()?;
        let seat = self.at(key)?;
        match seat.state {
            State::Granted(at, _) => Some((key, seat.home, at)),
            _ => None,
        }
    }

    /// The newest unclaimed grant of somebody who came later, would stand behind, and is
    /// elsewhere.
    pub(super) fn younger_grant(&self, ticket: Ticket, is_newest_first: bool) -> Option<u32> {
        let late = self.at(ticket.key())?;
        let mut cursor = self.granted.tail();
        while let Some(key) = cursor {
            let seat = self.at(key)?;
            if seat.serial > late.serial
                && seat.home != late.home
                && (seat.criticality < late.criticality
                    || seat.criticality == late.criticality && !is_newest_first)
            {
                return Some(key);
            }
            cursor = Linked::<0>::links(seat).prev();
        }
        None
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Seat<W>)> {
        self.slab.iter().map(|(key, seat)| (key_of(key), seat))
    }

    pub(super) fn wake(&mut self, key: u32, wakes: &mut Wakes<W>) {
        if let Some(seat) = self.slab.get_mut(key as usize) {
            wakes.extend(seat.wake(key));
        }
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes<W>) {
        for (key, seat) in &mut self.slab {
            wakes.extend(seat.wake(key_of(key)));
        }
    }

    pub(super) fn take_waiters(&mut self) -> Vec<W> {
        self.slab.iter_mut().filter_map(|(_, seat)| seat.waiter.take()).collect()
    }

    /// Forgets everybody. Their tickets stay recognisable as unknown.
    pub(super) fn clear(&mut self) -> Vec<W> {
        let waiters = self.take_waiters();
        *self = Self { next_serial: self.next_serial, ..Self::new() };
        waiters
    }
}

impl<W> Seat<W> {
    fn wake(&mut self, key: u32) -> Option<Wake<W>> {
        let ticket = Ticket::new(key, self.serial);
        self.waiter.take().map(|waiter| Wake { ticket, waiter })
    }
}

/// Four thousand million waiters do not fit into memory.
#[allow(clippy::cast_possible_truncation)]
const fn key_of(key: usize) -> u32 {
    key as u32
}
