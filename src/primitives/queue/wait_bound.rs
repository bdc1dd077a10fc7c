use std::time::Duration;

use super::config::{Spans, UNSAID};
use crate::primitives::Time;

/// When a queue becomes standing, items that have waited for longer than the target
/// are rejected at most so many at a time, and a pause apart: a change of state does
/// not expel hundreds in one tick.
const EXPELLED_AT_ONCE: u32 = 32;
const PAUSE: Duration = Duration::from_millis(1);

/// For how long an item may wait, after the rule of Facebook's "Fail at Scale":
/// for `interval` while the queue is healthy, for `target` while it is standing.
///
/// - Healthy is a queue that was empty, or whose oldest item had waited for less
///   than `target`, at some moment of the last `interval`.
/// - A standing queue becomes healthy after an `interval` in which nothing had to
///   be rejected, and nobody waited for longer than `target`, so that it does not
///   flap.
/// - If spans are automatic, items wait for as long as their deadlines allow, and those
///   without for `unsaid`; while it is standing and more comes than can be done, for half
///   of that. *Patient* are those with a deadline.
/// - Items that are over the target already when that begins to count are *late*:
///   they go a few at a time, and none stays for longer than `interval`.
///
/// [`observe`](Self::observe) is called before and after anything comes or goes: what
/// happened in between follows from the age of the oldest.
#[derive(Debug)]
pub(crate) struct WaitBound {
    spans: Spans,
    is_standing: bool,
    /// When it was last seen to be empty, or its oldest wait below the target.
    good_at: Time,
    /// When something was last rejected, while standing.
    bad_at: Time,
    seen_at: Time,
    /// How many of the late may still be expelled before the next pause, and when
    /// that ends.
    expellable: u32,
    paused_until: Time,
    /// Until when more comes than can be done, as far as is known.
    exceeded_until: Time,
}

impl WaitBound {
    pub(crate) const fn new(spans: Spans) -> Self {
        Self {
            spans,
            is_standing: false,
            good_at: Time::ZERO,
            bad_at: Time::ZERO,
            seen_at: Time::ZERO,
            expellable: EXPELLED_AT_ONCE,
            paused_until: Time::ZERO,
            exceeded_until: Time::ZERO,
        }
    }

    /// Other spans are in force from `now` on.
    pub(crate) fn set(&mut self, spans: Spans, now: Time, oldest: Option<Time>) {
        self.spans = spans;
        self.note_if_bad(now, oldest);
    }

    #[inline]
    fn note_if_bad(&mut self, now: Time, oldest: Option<Time>) {
        if self.is_standing && oldest.is_some_and(|joined| joined.after(self.spans.target) <= now) {
            self.bad_at = now;
        }
    }

    pub(crate) const fn target(&self) -> Duration {
        self.spans.target
    }

    pub(crate) const fn interval(&self) -> Duration {
        self.spans.interval
    }

    /// How long the workers need for one item, if it matters.
    pub(crate) const fn each(&self) -> Duration {
        self.spans.each
    }

    pub(crate) const fn is_standing(&self) -> bool {
        self.is_standing
    }

    /// For how long callers wait who do not say.
    pub(crate) fn unsaid(&self) -> Duration {
        self.spans.unsaid.unwrap_or(UNSAID)
    }

    /// When an item that came at `joined` has waited for as long as it may.
    #[inline]
    pub(crate) fn due(&self, joined: Time) -> Time {
        joined.after(match self.spans.unsaid {
            Some(unsaid) => unsaid,
            None if self.is_standing => self.spans.target,
            None => self.spans.interval,
        })
    }

    /// The same if more comes than can be done, at `now` or later, and spans are
    /// automatic.
    #[inline]
    pub(crate) fn due_unsaid(&self, now: Time, joined: Time) -> Option<Time> {
        let unsaid = self.spans.unsaid.filter(|_| self.is_standing)?;
        self.due_patient(now, joined.after(self.patience(unsaid)))
    }

    /// The same for the oldest of the late.
    pub(crate) fn due_late(&self, joined: Time) -> Time {
        let due = self.due(joined);
        if self.expellable > 0 {
            return due;
        }
        due.max(self.paused_until.min(joined.after(self.spans.interval)))
    }

    /// For how long a patient item waits that comes now and has so much time, even if
    /// more comes than can be done.
    pub(crate) fn patience(&self, given: Duration) -> Duration {
        self.spans.target.max(given / 2)
    }

    /// When a patient item whose patience ends at that moment has waited for as long as
    /// it may at `now` or later, apart from its deadline.
    pub(crate) fn due_patient(&self, now: Time, patience: Time) -> Option<Time> {
        let due = patience.max(now);
        let due = if self.expellable > 0 { due } else { due.max(self.paused_until) };
        (self.is_standing && due < self.exceeded_until).then_some(due)
    }

    /// Takes note of until when more comes than can be done, if nobody else comes.
    pub(crate) const fn note_demand(&mut self, exceeded_until: Time) {
        self.exceeded_until = exceeded_until;
    }

    /// When it becomes standing or healthy, if nothing comes or goes until then.
    #[inline]
    pub(crate) fn next_change(&self, oldest: Option<Time>) -> Option<Time> {
        if self.is_standing {
            let change = self.bad_at.after(self.spans.interval);
            let is_bad = oldest.is_some_and(|joined| joined.after(self.spans.target) <= change);
            return (!is_bad).then_some(change);
        }
        Some(self.good_until(oldest?).after(self.spans.interval))
    }

    /// Takes note of the state at `now`; whether it became standing or healthy.
    #[inline]
    pub(crate) fn observe(&mut self, now: Time, oldest: Option<Time>) -> bool {
        let is_due = self.next_change(oldest).is_some_and(|at| at <= now);
        if is_due {
            self.is_standing = !self.is_standing;
            if self.is_standing {
                self.bad_at = now;
                self.expellable = EXPELLED_AT_ONCE;
            } else {
                self.good_at = now;
            }
        } else if self.is_standing {
            self.note_if_bad(now, oldest);
        } else {
            self.good_at = oldest.map_or(now, |joined| self.good_until(joined).min(now));
        }
        self.seen_at = now;
        is_due
    }

    /// Until when it is good if the oldest goes on waiting. The oldest may be the
    /// oldest only since the last look, and over the target before.
    #[inline]
    fn good_until(&self, oldest: Time) -> Time {
        let over = oldest.after(self.spans.target);
        if over > self.seen_at { over } else { self.good_at }
    }

    /// Takes note that something had to be rejected.
    pub(crate) fn note_rejection(&mut self, now: Time) {
        self.bad_at = self.bad_at.max(now);
    }

    /// The same of one of the late, which came at `joined`.
    pub(crate) fn note_expelled(&mut self, now: Time, joined: Time) {
        self.note_rejection(now);
        if now < joined.after(self.spans.interval) {
            self.count_expelled(now);
        }
    }

    /// The same of a patient item.
    pub(crate) fn note_patient(&mut self, now: Time) {
        self.note_rejection(now);
        self.count_expelled(now);
    }

    fn count_expelled(&mut self, now: Time) {
        if self.expellable == 0 {
            self.expellable = EXPELLED_AT_ONCE;
        }
        self.expellable -= 1;
        if self.expellable == 0 {
            self.paused_until = now.after(PAUSE);
        }
    }
}
