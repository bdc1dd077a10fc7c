use std::time::Duration;

use super::seats::Comer;
use super::shedding::priority_of;
use super::{Gate, GateAsk, MAX_WAIT, Rate};
use crate::primitives::{Ask, Criticality, Home, Permit, Priority, Reason, Rejection, Time, Wakes};

/// What is decided about somebody who comes.
pub(super) enum Decision {
    Admitted(Permit),
    /// There is no room now, and he may wait until then; judged as of that priority.
    Line {
        until: Option<Time>,
        priority: Priority,
    },
    Rejected(Rejection),
}

/// The weight of the callers before against that of the next.
const MEMORY: u32 = 16;

impl<W> Gate<W> {
    pub(super) fn decide(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        may_wait: bool,
        rate: &mut dyn Rate,
        wakes: &mut Wakes<W>,
    ) -> Decision {
        let now = self.tick(now);
        let criticality = ask.ask.criticality;
        if let Some((reason, span)) = self.forced {
            let rejection = self.reject(reason, criticality);
            return Decision::Rejected(Rejection { retry_after: Some(span), ..rejection });
        }
        if self.is_closed {
            return Decision::Rejected(self.reject(Reason::Closed, criticality));
        }
        if ask.deadline.is_some_and(|deadline| deadline <= now) {
            // It says nothing of the load: whoever likes could bring it.
            self.refusals.note_ask();
            let retry_after = self.refusals.note_at_any_load(now, Reason::Deadline);
            let time_left = Some(Duration::ZERO);
            let rejection = self.rejection(Reason::Deadline, criticality);
            return Decision::Rejected(Rejection { retry_after, time_left, ..rejection });
        }
        if let Err(retry_after) = rate.take(now, ask.tokens) {
            let mut rejection = self.reject(Reason::Rate, criticality);
            let told = rejection.retry_after.map_or(retry_after, |told| told.max(retry_after));
            rejection.retry_after = Some(told);
            return Decision::Rejected(rejection);
        }
        let priority = priority_of(ask, &mut self.random);
        // What nothing is in flight for is not the load; and whoever matters most is not
        // rejected for others, however long a signal stays that has nothing to do with this.
        let is_spared = criticality == Criticality::CriticalPlus || self.in_flight() == 0;
        let decision = if self.shedding.admits(now, priority) || is_spared {
            self.decide_room(ask, priority, may_wait, wakes)
        } else {
            let level = self.shedding.outside_level();
            Decision::Rejected(self.reject_below(level, criticality))
        };
        if matches!(decision, Decision::Rejected(_)) {
            rate.give_back(now, ask.tokens);
        }
        decision
    }

    /// The same of who is on time and within the rate.
    pub(super) fn decide_room(
        &mut self,
        ask: &GateAsk<'_>,
        priority: Priority,
        may_wait: bool,
        wakes: &mut Wakes<W>,
    ) -> Decision {
        if self.is_calm() {
            self.queue.expire(self.now);
        } else {
            if let Some(home) = ask.ask.home {
                self.show_alive(home, wakes);
            }
            self.look(self.now, wakes);
        }
        loop {
            if let Some(permit) = self.begin_in_turn(ask) {
                // What was kept for him may be more than what he occupies.
                if self.queue.depth() > 0 {
                    self.serve(wakes);
                }
                return Decision::Admitted(permit);
            }
            let home = ask.ask.home;
            if !self.revoke_stale_if(|_, owner| home.is_some_and(|home| home != owner)) {
                break;
            }
            // Those in line there are as blocked, and hold nobody up.
            self.look(self.now, wakes);
        }
        self.limit.note_no_room();
        let criticality = ask.ask.criticality;
        if !may_wait || self.config.is_without_line() {
            return Decision::Rejected(self.reject(Reason::Limit, criticality));
        }
        self.note_given(ask);
        if !self.shedding.lets_wait(self.now, priority, self.queue.is_standing()) {
            // He would have come to the line, and is as much demand as who does.
            self.queue.note_comer(&ask.offer(None));
            let level = self.shedding.line_level();
            return Decision::Rejected(self.reject_below(level, criticality));
        }
        let until = self.until(criticality);
        if self.queue.is_too_late(&ask.offer(until), true) {
            return Decision::Rejected(self.reject_late(ask));
        }
        Decision::Line { until, priority }
    }

    /// Takes note of how much time somebody gives, if he says so.
    #[inline]
    pub(super) fn note_given(&mut self, ask: &GateAsk<'_>) {
        let Some(deadline) = ask.deadline else { return };
        let given = deadline.since(self.now).min(MAX_WAIT);
        let mean = match self.given {
            None => given,
            Some(before) => (before * (MEMORY - 1) + given) / MEMORY,
        };
        self.given = Some(mean);
        self.limit.note_given(mean);
    }

    /// Until when somebody of that criticality may wait who comes now.
    pub(super) fn until(&self, criticality: Criticality) -> Option<Time> {
        let max_wait = self.config.max_wait?;
        let is_reserving = self.config.reserve.is_for(criticality);
        // Half of it is what is left while the line is standing.
        let least = 2 * self.queue.service().quantile();
        Some(self.now.after(if is_reserving { max_wait.max(least) } else { max_wait }))
    }

    pub(super) fn comer(&self, ask: &GateAsk<'_>) -> Comer {
        let Ask { criticality, .. } = ask.ask;
        Comer {
            home: ask.ask.home.unwrap_or(Home(0)),
            criticality,
            cost: ask.ask.cost(),
            tokens: ask.tokens,
            joined: self.now,
        }
    }

    /// Whether what is kept for the more critical leaves room.
    #[inline]
    pub(super) fn is_room_for(&self, ask: &Ask) -> bool {
        let limit = self.limit.value();
        let kept = self.config.reserve.kept_from(ask.criticality, limit, &self.in_flight);
        let in_flight = self.limit.in_flight();
        // Who is too large runs alone, and then nothing is kept.
        kept == 0 || in_flight == 0 || (in_flight + u64::from(ask.cost()) + kept) as f64 <= limit
    }

    /// Admits if nobody of the same or higher criticality waits.
    pub(super) fn begin_in_turn(&mut self, ask: &GateAsk<'_>) -> Option<Permit> {
        let is_behind = !self.seats.is_empty() && self.queue.has_from(ask.ask.criticality);
        if is_behind || !self.is_room_for(&ask.ask) { None } else { self.begin(ask) }
    }

    #[inline]
    pub(super) fn begin(&mut self, ask: &GateAsk<'_>) -> Option<Permit> {
        let mut permit = self.limit.admit(self.now, &ask.ask)?;
        self.note_given(ask);
        self.queue.expire(self.now);
        // Whoever does not wait, where nobody does, says little about the line.
        let is_noted = self.waiting() > 0 || self.sampling.is_due(self.now);
        let work = self.queue.begin_at_once(&ask.offer(None), is_noted);
        permit.operation = work.operation();
        self.hold(&mut permit, ask.ask.criticality);
        self.admitted += 1;
        self.held += 1;
        self.refusals.note_ask();
        self.shedding.note_room(self.now);
        Some(permit)
    }

    /// Rejects somebody who comes.
    pub(super) fn reject(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        self.refusals.note_ask();
        self.reject_waiter(reason, criticality)
    }

    /// The same for somebody who was in line, and is counted as one who came.
    pub(super) fn reject_waiter(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        let retry_after = self.refusals.note(self.now, reason, criticality);
        Rejection { retry_after, ..self.rejection(reason, criticality) }
    }

    pub(super) fn reject_below(
        &mut self,
        level: Criticality,
        criticality: Criticality,
    ) -> Rejection {
        let rejection = self.reject(Reason::Priority, criticality);
        Rejection { threshold: Some(level), ..rejection }
    }

    pub(super) fn reject_late(&mut self, ask: &GateAsk<'_>) -> Rejection {
        let time_left = ask.deadline.map(|deadline| deadline.since(self.now));
        Rejection { time_left, ..self.reject(Reason::Deadline, ask.ask.criticality) }
    }

    pub(super) fn rejection(&self, reason: Reason, criticality: Criticality) -> Rejection {
        Rejection {
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            max_waiting: Some(self.max_waiting()),
            ..Rejection::new(reason, criticality)
        }
    }
}
