use super::Gate;
use super::aside::Aside;
use super::drain::DRAINS;
use super::seats::{Grant, Seat, State};
use super::shadow::Departures;
use crate::primitives::{CLAIM_PATIENCE, Home, Ticket, Time, Waitable, Wakes};

impl<W> Waitable<W> for Gate<W> {
    fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.tick(now);
        if ticket.key() == DRAINS {
            let place = self.drains.iter().position(|drain| drain.serial == ticket.serial());
            if let Some(place) = place {
                wakes.discard(self.drains.swap_remove(place).waiter);
            }
            return wakes;
        }
        self.look(now, &mut wakes);
        if let Some(home) = self.seats.find(ticket).map(|seat| seat.home) {
            // Who leaves is not blocked.
            self.show_alive(home, &mut wakes);
            if let Some(Grant { permit, .. }) = self.seats.revoke(ticket.key()) {
                self.take_back(permit);
            }
            if let Some(seat) = self.seats.leave(ticket, &mut wakes) {
                self.owed += seat.tokens;
                if let State::Waiting(item) = seat.state
                    && self.queue.cancel(self.now, item).is_some()
                {
                    self.seats.leave_line(seat.home);
                }
                self.aside.remove(ticket.key(), seat.criticality);
            }
            self.look(now, &mut wakes);
        }
        wakes
    }

    fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.tick(now);
        if ticket.key() == DRAINS {
            let drain = self.drains.iter_mut().find(|drain| drain.serial == ticket.serial());
            match drain {
                Some(drain) => {
                    wakes.discard(drain.waiter.replace(waiter));
                    // A look would wake him at once again, and so on for ever.
                    let retry = self.now.after(CLAIM_PATIENCE);
                    drain.due = drain.until.map(|until| until.max(retry));
                    self.retry_later();
                }
                None => wakes.discard(Some(waiter)),
            }
            return wakes;
        } else if let Some(seat) = self.seats.find(ticket) {
            let before = seat.waiter.replace(waiter);
            let home = seat.home;
            wakes.discard(before);
            self.revoke_aside(ticket.key(), home);
            if !self.blocked.contains(&home) {
                self.blocked.push(home);
            }
        } else {
            wakes.discard(Some(waiter));
            return wakes;
        }
        self.retry_later();
        self.look(now, &mut wakes);
        wakes
    }

    fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.tick(now);
        if let Some(home) = home {
            self.show_alive(home, &mut wakes);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            // All are tried again: who cannot be reached now says so again.
            for home in std::mem::take(&mut self.blocked) {
                self.blocked.push(home);
                self.show_alive(home, &mut wakes);
            }
            let refused = |(key, seat): (u32, &Seat<W>)| {
                matches!(seat.state, State::Refused(_)).then_some(key)
            };
            let refused: Vec<u32> = self.seats.iter().filter_map(refused).collect();
            for key in refused {
                self.seats.wake(key, &mut wakes);
            }
        }
        self.look(now, &mut wakes);
        for drain in &mut self.drains {
            if drain.due.is_some_and(|due| due <= now) {
                wakes.extend(drain.wake());
            }
        }
        wakes
    }

    fn next_expiry(&self) -> Option<Time> {
        if self.is_calm() {
            return None;
        }
        let is_in_line = self.queue.depth() > 0;
        let stale = self.seats.oldest_grant();
        let stale = stale.filter(|(_, owner, _)| self.seats.is_line_elsewhere(*owner));
        let stale = stale.map(|(_, _, at)| at.after(CLAIM_PATIENCE));
        let room = if is_in_line { self.limit.room_at() } else { None };
        let drain = self.drains.iter().filter(|drain| drain.waiter.is_some());
        let drain = drain.filter_map(|drain| drain.due);
        let queue = self.queue.next_expiry().filter(|_| is_in_line);
        let all = queue.into_iter().chain(stale).chain(room).chain(drain).chain(self.retry_at);
        all.chain(self.departures.next()).chain(self.aside_due()).min().filter(|at| *at < Time::MAX)
    }

    /// Always: what is admitted and given back is timed.
    #[inline]
    fn needs_time(&self) -> bool {
        true
    }

    fn latest(&self) -> Time {
        self.now
    }

    fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        if ticket.key() == DRAINS {
            let is_idle = self.is_idle();
            let drain = self.drains.iter_mut().find(|drain| drain.serial == ticket.serial());
            return match drain {
                Some(drain) if !is_idle => {
                    drain.due = drain.until;
                    Ok(drain.waiter.replace(waiter))
                }
                _ => Err(waiter),
            };
        }
        match self.seats.find(ticket) {
            Some(seat) if matches!(seat.state, State::Waiting(_) | State::Aside(_)) => {
                Ok(seat.waiter.replace(waiter))
            }
            _ => Err(waiter),
        }
    }

    /// What waits in line may fall due on any loop.
    fn waits(&self, home: Home) -> bool {
        self.queue.depth() > 0
            || !self.departures.is_empty()
            || self.seats.iter().any(|(_, seat)| seat.home == home)
            || self.drains.iter().any(|drain| drain.home == home)
    }

    fn has_unclaimed(&self, home: Option<Home>) -> bool {
        let is_there = |at: Home| home.is_none_or(|home| home == at);
        let is_unclaimed = |seat: &Seat<W>| {
            matches!(seat.state, State::Granted(..) | State::Refused(_) | State::Aside(_))
        };
        self.seats.iter().any(|(_, seat)| is_unclaimed(seat) && is_there(seat.home))
            || self.drains.iter().any(|drain| drain.waiter.is_none() && is_there(drain.home))
    }

    fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a,
    {
        let seats = self.seats.iter().filter_map(|(_, seat)| seat.waiter.as_ref());
        seats.chain(self.drains.iter().filter_map(|drain| drain.waiter.as_ref()))
    }

    fn take_waiters(&mut self) -> Vec<W> {
        let mut waiters = self.seats.take_waiters();
        waiters.extend(self.drains.iter_mut().filter_map(|drain| drain.waiter.take()));
        waiters
    }

    /// Tickets and permits given so far are worth nothing; what was learned is kept.
    fn reset(&mut self) -> Vec<W> {
        self.epoch = self.epoch.wrapping_add(1);
        let mut waiters = self.seats.clear();
        let drains = std::mem::take(&mut self.drains);
        waiters.extend(drains.into_iter().filter_map(|drain| drain.waiter));
        self.limit.reset();
        let _ = self.queue.clear();
        self.departures = Departures::new();
        self.held = 0;
        self.beside = 0;
        self.shedding.reset();
        self.in_flight = [0; 4];
        self.blocked.clear();
        self.aside = Aside::new();
        self.retry_at = None;
        self.owed = 0.0;
        waiters
    }
}
