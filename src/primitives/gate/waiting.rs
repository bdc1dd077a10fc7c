use std::time::Duration;

use super::seats::{Grant, Seats, State};
use super::{Gate, GateAsk};
use crate::primitives::{
    Ask, CLAIM_PATIENCE, Criticality, Home, News, Offer, Permit, Reason, Rejection, Taken, Ticket,
    Time, Wakes,
};

impl<W> Gate<W> {
    /// Lets go what is over, and serves those in line.
    pub(super) fn look(&mut self, now: Time, wakes: &mut Wakes<W>) {
        let now = self.tick(now);
        self.let_depart(wakes);
        self.queue.expire(now);
        self.hear(wakes);
        self.serve(wakes);
        self.let_aside_end(wakes);
        if self.is_idle() {
            for drain in &mut self.drains {
                wakes.extend(drain.wake());
            }
        }
    }

    /// Puts a seat into the line; who is rejected has none any more.
    pub(super) fn join(
        &mut self,
        ask: &GateAsk<'_>,
        until: Option<Time>,
        ticket: Ticket,
        wakes: &mut Wakes<W>,
    ) -> Result<(), Rejection> {
        let offer = ask.offer(until);
        self.make_room(ask, &offer, wakes);
        let pushed = self.queue.push(self.now, ticket.key(), &offer);
        self.hear(wakes);
        match pushed {
            Ok(item) => {
                self.seats.enter_line(ticket.key(), item);
                self.refusals.note_ask();
                // Then the newest goes first, and may fit where the older ones do not.
                if self.queue.is_standing() {
                    self.serve(wakes);
                }
                Ok(())
            }
            Err((_, rejection)) => {
                let seat = self.seats.leave(ticket, wakes);
                self.owed += seat.map_or(0.0, |seat| seat.tokens);
                self.shedding.note_rejected(rejection.reason);
                let Rejection { time_left, criticality, reason, .. } = rejection;
                Err(Rejection { time_left, ..self.reject(reason, criticality) })
            }
        }
    }

    /// Lets as many wait as is of use now.
    pub(super) fn fit(&mut self) {
        self.queue.set_capacity(self.max_waiting().saturating_sub(self.aside.len()));
    }

    /// The same for somebody who comes: who asks again has half of it.
    pub(super) fn fit_for(&mut self, ask: &GateAsk<'_>) {
        let most = self.max_waiting();
        let most = if ask.is_retry { most.div_ceil(2) } else { most };
        self.queue.set_capacity(most.saturating_sub(self.aside.len()));
    }

    /// Makes room where he goes before one who was set aside.
    fn make_room(&mut self, ask: &GateAsk<'_>, offer: &Offer<'_>, wakes: &mut Wakes<W>) {
        self.fit_for(ask);
        if !self.queue.has_room_for(offer)
            && let Some(key) = self.coldest_aside_for(offer)
        {
            self.reject_aside(key, Reason::Evicted, wakes);
            self.fit_for(ask);
        }
    }

    /// Hears what the line has rejected.
    pub(super) fn hear(&mut self, wakes: &mut Wakes<W>) {
        while self.queue.has_news() {
            for news in self.queue.take_news() {
                if let News::Rejected(key, rejection) = news {
                    self.shedding.note_rejected(rejection.reason);
                    let rejection = self.reject_waiter(rejection.reason, rejection.criticality);
                    self.seats.leave_line_at(key);
                    self.refuse(key, rejection, wakes);
                }
            }
        }
    }

    pub(super) fn criticality_at(&self, key: u32) -> Criticality {
        self.seats.at(key).map(|seat| seat.criticality).unwrap_or_default()
    }

    /// Tells somebody that he is rejected.
    pub(super) fn refuse(&mut self, key: u32, rejection: Rejection, wakes: &mut Wakes<W>) {
        let Some(seat) = self.seats.at_mut(key) else { return };
        self.owed += std::mem::take(&mut seat.tokens);
        if let State::Shadow(shadow) = &mut seat.state {
            let is_over = shadow.refuse();
            if is_over && let Some(ticket) = self.seats.ticket_of(key) {
                self.seats.leave(ticket, wakes);
            }
            return;
        }
        seat.state = State::Refused(Box::new(rejection));
        self.seats.wake(key, wakes);
    }

    /// Grants while there is room and somebody who could answer.
    pub(super) fn serve(&mut self, wakes: &mut Wakes<W>) {
        while let Some(&key) = self.queue.peek(self.now) {
            self.hear(wakes);
            let Some(seat) = self.seats.at(key) else { return };
            let (home, criticality, cost) = (seat.home, seat.criticality, seat.cost);
            if self.blocked.contains(&home) {
                self.set_aside(key);
                continue;
            }
            let Ok(mut ask) = Ask::new(cost) else { return };
            ask.criticality = criticality;
            let permit =
                if self.is_room_for(&ask) { self.limit.admit(self.now, &ask) } else { None };
            if let Some(permit) = permit {
                self.grant(key, permit, wakes);
            } else if !self.revoke_stale_if(Seats::is_line_elsewhere) {
                break;
            }
        }
        self.hear(wakes);
    }

    /// Takes the next one out of the line.
    pub(super) fn call_next(&mut self) -> Option<Taken<u32>> {
        let taken = self.queue.pop(self.now)?;
        self.seats.leave_line_at(taken.item);
        Some(taken)
    }

    pub(super) fn grant(&mut self, key: u32, mut permit: Permit, wakes: &mut Wakes<W>) {
        let Some(taken) = self.call_next() else {
            // It was there a moment ago, and no time has passed.
            self.limit.annul(self.now, permit);
            return;
        };
        let work = self.queue.begin(&taken);
        permit.operation = work.operation();
        self.hold(&mut permit, self.criticality_at(key));
        let is_shadow =
            self.seats.at(key).is_some_and(|seat| matches!(seat.state, State::Shadow(_)));
        if is_shadow {
            self.begin_shadow(key, permit, wakes);
        } else {
            self.seats.grant(key, self.now, Grant { taken, permit }, wakes);
        }
    }

    /// Ends the wait of somebody who is granted what he waits for.
    pub(super) fn take_grant(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Option<Permit> {
        let Grant { mut permit, .. } = self.seats.revoke(ticket.key())?;
        let seat = self.seats.leave(ticket, wakes);
        if permit.shadow.is_some() {
            // What occupies nothing costs nothing.
            self.owed += seat.as_ref().map_or(0.0, |seat| seat.tokens);
        }
        let waited = seat.map_or(Duration::ZERO, |seat| self.now.since(seat.joined));
        self.admitted += 1;
        self.held += 1;
        permit.started = self.now;
        permit.waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Some(permit)
    }

    /// Takes the oldest grant back if it is stale and, where its owner is, of use elsewhere;
    /// whether it was. A signal is on its way to the owner already.
    pub(super) fn revoke_stale_if(
        &mut self,
        is_of_use: impl FnOnce(&Seats<W>, Home) -> bool,
    ) -> bool {
        let Some((key, owner, at)) = self.seats.oldest_grant() else { return false };
        if at.after(CLAIM_PATIENCE) > self.now || !is_of_use(&self.seats, owner) {
            return false;
        }
        self.revoke_aside(key, owner);
        true
    }

    /// Lets a late claimer who is next have what those behind him elsewhere were granted and
    /// have not claimed: whoever comes first. So homes that are all slow still make
    /// progress.
    pub(super) fn take_over(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) {
        while self.queue.peek(self.now).copied() == Some(ticket.key()) {
            let is_newest_first = self.queue.is_standing();
            let Some(key) = self.seats.younger_grant(ticket, is_newest_first) else { return };
            let Some(Grant { taken, permit }) = self.seats.revoke(key) else { return };
            self.revoked += 1;
            self.take_back(permit);
            self.seats.enter_line(key, taken.id());
            self.queue.put_back(taken);
            self.look(self.now, wakes);
        }
    }
}
