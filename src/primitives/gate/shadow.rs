//! A dry run: everybody is admitted at once, and what the gate would have done with them is
//! found out by the same rules, on a shadow of what would have been in flight and in line.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decision::Decision;
use super::seats::{Comer, Grant, State};
use super::{Gate, GateAsk, Rate};
use crate::primitives::{Home, ItemId, Outcome, Permit, Ticket, Time, Wakes};

/// What would have become of somebody who is at work.
#[derive(Debug)]
pub(super) struct Shadow {
    fate: Fate,
    /// How the work ended, if it has.
    done: Option<Done>,
}

#[derive(Debug)]
enum Fate {
    /// He would wait.
    Waiting(ItemId),
    /// He would be in flight, from then on.
    Running(Permit),
    /// He would have been rejected.
    Refused,
}

#[derive(Debug)]
struct Done {
    service: Duration,
    operation: Option<Box<str>>,
    outcome: Outcome,
}

impl Shadow {
    pub(super) const fn new() -> Self {
        Self { fate: Fate::Refused, done: None }
    }

    pub(super) fn stand(&mut self, item: ItemId) {
        self.fate = Fate::Waiting(item);
    }

    const fn is_waiting(&self) -> bool {
        matches!(self.fate, Fate::Waiting(_))
    }

    /// Returns whether nobody asks for it any more.
    pub(super) fn refuse(&mut self) -> bool {
        self.fate = Fate::Refused;
        self.done.is_some()
    }
}

/// When work would end that ended earlier, since it did not wait.
#[derive(Debug)]
pub(super) struct Departures {
    /// Those of the same moment in the order in which they came.
    at: BTreeMap<(Time, u64), Ticket>,
}

impl Departures {
    pub(super) const fn new() -> Self {
        Self { at: BTreeMap::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    fn insert(&mut self, at: Time, ticket: Ticket) {
        self.at.insert((at, ticket.serial()), ticket);
    }

    fn take_until(&mut self, now: Time) -> Option<(Time, Ticket)> {
        let first = self.at.first_entry().filter(|first| first.key().0 <= now)?;
        Some((first.key().0, first.remove()))
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.at.first_key_value().map(|(&(at, _), _)| at)
    }
}

/// Nobody waits there.
const NOWHERE: Home = Home(u64::MAX);

impl<W> Gate<W> {
    /// Admits, whatever would have been decided; that is counted. Not for a gate that is closed.
    pub fn admit_in_dry_run(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        may_wait: bool,
        rate: &mut dyn Rate,
    ) -> (Permit, Wakes<W>) {
        let mut wakes = Wakes::none();
        let mut ask = *ask;
        ask.ask.home = Some(NOWHERE);
        let permit = match self.decide(now, &ask, may_wait, rate, &mut wakes) {
            Decision::Admitted(permit) => permit,
            Decision::Rejected(_) => self.pass(None),
            Decision::Line { until, .. } => {
                let comer = Comer { home: NOWHERE, ..self.comer(&ask) };
                let ticket = self.seats.take(comer);
                if let Some(seat) = self.seats.find(ticket) {
                    seat.state = State::Shadow(Box::new(Shadow::new()));
                }
                let joined = self.join(&ask, until, ticket, &mut wakes);
                self.pass(joined.is_ok().then_some(ticket))
            }
        };
        (permit, wakes)
    }

    /// A permit that occupies nothing itself.
    pub(super) fn pass(&mut self, shadow: Option<Ticket>) -> Permit {
        self.admitted += 1;
        self.held += 1;
        Permit { shadow: Some(shadow.unwrap_or(NOBODY)), ..Permit::empty(self.epoch, self.now) }
    }

    /// What stood in the shadow line would be in flight from now on.
    pub(super) fn begin_shadow(&mut self, key: u32, permit: Permit, wakes: &mut Wakes<W>) {
        let ticket = self.seats.ticket_of(key);
        let Some(seat) = self.seats.at_mut(key) else { return };
        let State::Shadow(shadow) = &mut seat.state else { return };
        shadow.fate = Fate::Running(permit);
        if let (Some(done), Some(ticket)) = (&shadow.done, ticket) {
            let at = self.now.after(done.service);
            if at <= self.now {
                self.end_shadow(ticket, self.now, wakes);
            } else {
                self.departures.insert(at, ticket);
            }
        }
    }

    /// Work has ended that had not to wait, although it would have.
    pub(super) fn depart(&mut self, ticket: Ticket, operation: Option<&str>, outcome: Outcome) {
        let now = self.now;
        let Some(seat) = self.seats.find(ticket) else { return };
        let service = now.since(seat.joined);
        let State::Shadow(shadow) = &mut seat.state else { return };
        shadow.done = Some(Done { service, operation: operation.map(Into::into), outcome });
        match &shadow.fate {
            Fate::Waiting(_) => {}
            Fate::Running(permit) => {
                let at = permit.started().after(service);
                self.departures.insert(at, ticket);
            }
            Fate::Refused => {
                // There is no waiter that would have to be dropped elsewhere.
                let _ = self.seats.leave(ticket, &mut Wakes::none());
            }
        }
    }

    /// Ends what would have ended by now, one after the other: each makes room, as a release
    /// does.
    pub(super) fn let_depart(&mut self, wakes: &mut Wakes<W>) {
        while let Some((at, ticket)) = self.departures.take_until(self.now) {
            self.end_shadow(ticket, at, wakes);
            self.serve(wakes);
        }
    }

    fn end_shadow(&mut self, ticket: Ticket, at: Time, wakes: &mut Wakes<W>) {
        let Some(seat) = self.seats.leave(ticket, wakes) else { return };
        let State::Shadow(shadow) = seat.state else { return };
        if let Shadow { fate: Fate::Running(permit), done: Some(done) } = *shadow {
            self.end(at, permit, done.operation.as_deref(), done.outcome);
        }
    }

    /// Admits those who wait: nobody does in a dry run.
    pub(super) fn let_all_pass(&mut self, wakes: &mut Wakes<W>) {
        while let Some(taken) = self.call_next() {
            let key = taken.item;
            let empty = Permit::empty(self.epoch, self.now);
            let permit = Permit { shadow: Some(NOBODY), ..empty };
            self.seats.grant(key, self.now, Grant { taken, permit }, wakes);
        }
        self.hear(wakes);
    }

    /// Forgets the shadows: what runs goes on uncounted.
    pub(super) fn end_dry_run(&mut self, wakes: &mut Wakes<W>) {
        self.departures = Departures::new();
        let shadows: Vec<u32> = { self.seats.iter() }
            .filter(|(_, seat)| matches!(seat.state, State::Shadow(_)))
            .map(|(key, _)| key)
            .collect();
        for key in shadows {
            let Some(ticket) = self.seats.ticket_of(key) else { continue };
            let is_waiting = self.seats.find(ticket).is_some_and(
                |seat| matches!(&seat.state, State::Shadow(shadow) if shadow.is_waiting()),
            );
            let tokens = self.seats.find(ticket).map_or(0.0, |seat| seat.tokens);
            self.annul_shadow(ticket, wakes);
            self.owed += if is_waiting { tokens } else { 0.0 };
        }
    }

    /// Takes somebody out of the shadows, wherever he would be; whether he would have paid
    /// for it.
    pub(super) fn annul_shadow(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> bool {
        let Some(seat) = self.seats.leave(ticket, wakes) else { return false };
        let State::Shadow(shadow) = seat.state else { return false };
        match shadow.fate {
            Fate::Waiting(item) => {
                if self.queue.cancel(self.now, item).is_some() {
                    self.seats.leave_line(NOWHERE);
                }
                true
            }
            Fate::Running(permit) => {
                self.take_back(permit);
                true
            }
            Fate::Refused => false,
        }
    }
}

/// Of no seat: the serials of seats begin at 1.
const NOBODY: Ticket = Ticket::new(u32::MAX, 0);
