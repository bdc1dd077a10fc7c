use std::time::Duration;

use super::Gate;
use super::seats::{Grant, State};
use crate::primitives::{
    CLAIM_PATIENCE, Criticality, Home, ItemId, Offer, Reason, Rejection, Taken, Time, Wakes,
};

/// Those who wait at homes that are blocked, out of the line until they move again.
///
/// Nobody is granted what he cannot claim, but they have their places: each counts as one
/// who waits, is rejected at the end of his wait, and leaves for whoever matters more.
#[derive(Debug)]
pub(super) struct Aside {
    /// In the order in which they would have been served.
    keys: Vec<u32>,
    /// How many of them are of each criticality.
    counts: [usize; 4],
    /// Before then none of them has waited for as long as he may.
    pub(super) due: Time,
}

impl Aside {
    pub(super) const fn new() -> Self {
        Self { keys: Vec::new(), counts: [0; 4], due: Time::MAX }
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().copied()
    }

    fn push(&mut self, key: u32, criticality: Criticality, due: Time) {
        self.keys.push(key);
        self.counts[criticality.index()] += 1;
        self.due = self.due.min(due);
    }

    pub(super) fn remove(&mut self, key: u32, criticality: Criticality) {
        if let Some(place) = self.keys.iter().position(|other| *other == key) {
            self.keys.remove(place);
            self.counts[criticality.index()] -= 1;
        }
    }

    /// The least critical of those below; who would run last.
    fn coldest_below(
        &self,
        criticality: Criticality,
        or_equal: bool,
        class_of: impl Fn(u32) -> Criticality,
    ) -> Option<u32> {
        let classes = criticality.index() + usize::from(or_equal);
        let class = self.counts.iter().take(classes).position(|count| *count > 0)?;
        let is_of = |key: &u32| class_of(*key).index() == class;
        self.keys.iter().rev().copied().find(is_of)
    }
}

impl<W> Gate<W> {
    /// Takes somebody out of the line whose home is blocked. He is not woken: who was granted
    /// there has been, and when he comes his neighbours wait again.
    pub(super) fn set_aside(&mut self, key: u32) {
        if let Some(taken) = self.call_next() {
            self.put_aside(key, taken);
        }
    }

    fn put_aside(&mut self, key: u32, taken: Taken<u32>) {
        let due = taken.end(self.wait_bound()).0;
        if let Some(seat) = self.seats.at_mut(key) {
            seat.state = State::Aside(Box::new(taken));
            self.aside.push(key, seat.criticality, due);
        }
    }

    pub(super) fn revoke_aside(&mut self, key: u32, owner: Home) {
        if let Some(Grant { taken, permit }) = self.seats.revoke(key) {
            self.revoked += 1;
            self.take_back(permit);
            if !self.blocked.contains(&owner) {
                self.blocked.push(owner);
            }
            self.put_aside(key, taken);
        }
    }

    /// Notes that a home is not blocked: those of it who were set aside wait again.
    pub(super) fn show_alive(&mut self, home: Home, wakes: &mut Wakes<W>) {
        let Some(place) = self.blocked.iter().position(|blocked| *blocked == home) else {
            return;
        };
        self.blocked.swap_remove(place);
        let due = self.aside.due;
        let all = std::mem::replace(&mut self.aside, Aside { due, ..Aside::new() });
        let mut here = Vec::new();
        for key in all.keys {
            match self.seats.at(key) {
                Some(seat) if seat.home == home => here.push(key),
                Some(seat) => self.aside.push(key, seat.criticality, Time::MAX),
                None => {}
            }
        }
        // The last first, each into the slot that it left last: so each finds its place at once.
        for key in here.into_iter().rev() {
            self.stand_again(key);
        }
        self.look(self.now, wakes);
    }

    /// Puts somebody back into the line, into his place.
    fn stand_again(&mut self, key: u32) {
        let Some(seat) = self.seats.at_mut(key) else { return };
        let nowhere = State::Waiting(ItemId::from_bits(0));
        match std::mem::replace(&mut seat.state, nowhere) {
            State::Aside(taken) => {
                self.seats.enter_line(key, taken.id());
                self.queue.put_back(*taken);
            }
            state => seat.state = state,
        }
    }

    /// Rejects those set aside who have waited for as long as they may.
    pub(super) fn let_aside_end(&mut self, wakes: &mut Wakes<W>) {
        if self.aside.due > self.now {
            return;
        }
        let bound = self.wait_bound();
        let (mut over, mut due) = (Vec::new(), Time::MAX);
        for key in self.aside.keys() {
            if let Some(State::Aside(taken)) = self.seats.at(key).map(|seat| &seat.state) {
                let (end, reason) = taken.end(bound);
                if end <= self.now { over.push((key, reason)) } else { due = due.min(end) }
            }
        }
        self.aside.due = due;
        for (key, reason) in over {
            self.reject_aside(key, reason, wakes);
        }
    }

    /// Whether one of those set aside may leave for somebody who comes to a full line: as in
    /// line the less critical, and the equal while it is standing.
    pub(super) fn coldest_aside_for(&self, offer: &Offer<'_>) -> Option<u32> {
        let class_of = |key| self.criticality_at(key);
        self.aside.coldest_below(offer.criticality, self.queue.is_standing(), class_of)
    }

    pub(super) fn reject_aside(&mut self, key: u32, reason: Reason, wakes: &mut Wakes<W>) {
        let criticality = self.criticality_at(key);
        self.aside.remove(key, criticality);
        self.shedding.note_rejected(reason);
        let mut rejection = self.reject_waiter(reason, criticality);
        if reason == Reason::Deadline {
            rejection = Rejection { time_left: Some(Duration::ZERO), ..rejection };
        }
        self.refuse(key, rejection, wakes);
    }

    /// When one of those set aside has waited for as long as he may.
    pub(super) fn aside_due(&self) -> Option<Time> {
        (self.aside.len() > 0).then_some(self.aside.due)
    }

    /// Tries again before long who could not be reached.
    pub(super) fn retry_later(&mut self) {
        let retry = self.now.after(CLAIM_PATIENCE);
        self.retry_at = Some(self.retry_at.map_or(retry, |at| at.min(retry)));
    }
}
