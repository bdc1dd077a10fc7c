use super::Gate;
use crate::primitives::{Home, Ticket, Time, Wake, Wakes};

/// Somebody who waits until nothing is in flight.
#[derive(Debug)]
pub(super) struct Drain<W> {
    pub(super) serial: u64,
    pub(super) home: Home,
    pub(super) until: Option<Time>,
    /// When he is told that it is over: later than that, if he could not be reached.
    pub(super) due: Option<Time>,
    pub(super) waiter: Option<W>,
}

/// Tickets of those who wait for the end are told apart by this key.
pub(super) const DRAINS: u32 = u32::MAX;

impl<W> Drain<W> {
    /// Tells him to come and look, unless that is on its way.
    pub(super) fn wake(&mut self) -> Option<Wake<W>> {
        let ticket = Ticket::new(DRAINS, self.serial);
        self.waiter.take().map(|waiter| Wake { ticket, waiter })
    }
}

impl<W> Gate<W> {
    /// Waits with `waiter` until nothing is in flight, at most `until` then; `None` if
    /// nothing is.
    pub fn join_drain(
        &mut self,
        now: Time,
        home: Home,
        until: Option<Time>,
        waiter: &mut Option<W>,
    ) -> Option<Ticket> {
        self.tick(now);
        if self.is_idle() {
            return None;
        }
        let serial = self.next_drain;
        self.next_drain += 1;
        self.drains.push(Drain { serial, home, until, due: until, waiter: waiter.take() });
        Some(Ticket::new(DRAINS, serial))
    }

    /// Whether nothing is in flight any more, of a wait that is over: by that, or by its
    /// bound. `None` if it goes on.
    pub fn claim_drain(&mut self, now: Time, ticket: Ticket) -> (Option<bool>, Wakes<W>) {
        let mut wakes = Wakes::none();
        self.look(now, &mut wakes);
        let is_over = |drain: &Drain<W>| drain.until.is_some_and(|until| until <= self.now);
        let place = self.drains.iter().position(|drain| drain.serial == ticket.serial());
        let answer = match place {
            Some(_) if self.is_idle() => Some(true),
            Some(place) if is_over(&self.drains[place]) => Some(false),
            Some(_) => None,
            None => Some(self.is_idle()),
        };
        if let (Some(_), Some(place)) = (answer, place) {
            wakes.discard(self.drains.swap_remove(place).waiter);
        }
        (answer, wakes)
    }
}
