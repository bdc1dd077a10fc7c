use std::time::Duration;

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
///   be rejected, so that it does not flap.
/// - Items that are over the target already when that begins to count are *late*:
///   they go a few at a time, and none stays for longer than `interval`.
///
/// [`observe`](Self::observe) is called before and after anything comes or goes: what
/// happened in between follows from the age of the oldest.
#[derive(Debug)]
pub(crate) struct WaitBound {
    target: Duration,
    interval: Duration,
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
}

impl WaitBound {
    pub(crate) const fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            is_standing: false,
            good_at: Time::ZERO,
            bad_at: Time::ZERO,
            seen_at: Time::ZERO,
            expellable: EXPELLED_AT_ONCE,
            paused_until: Time::ZERO,
        }
    }

    pub(crate) const fn set(&mut self, target: Duration, interval: Duration) {
        self.target = target;
        self.interval = interval;
    }

    pub(crate) const fn target(&self) -> Duration {
        self.target
    }

    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    pub(crate) const fn is_standing(&self) -> bool {
        self.is_standing
    }

    /// When an item that came at `joined` has waited for as long as it may.
    pub(crate) fn due(&self, joined: Time) -> Time {
        joined.after(if self.is_standing { self.target } else { self.interval })
    }

    /// The same for the oldest of the late.
    pub(crate) fn due_late(&self, joined: Time) -> Time {
        let due = self.due(joined);
        if self.expellable > 0 {
            return due;
        }
        due.max(self.paused_until.min(joined.after(self.interval)))
    }

    /// When it becomes standing or healthy, if nothing comes or goes until then.
    pub(crate) fn next_change(&self, oldest: Option<Time>) -> Option<Time> {
        if self.is_standing {
            return Some(self.bad_at.after(self.interval));
        }
        Some(self.good_until(oldest?).after(self.interval))
    }

    /// Takes note of the state at `now`; whether it became standing or healthy.
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
        } else if !self.is_standing {
            self.good_at = oldest.map_or(now, |joined| self.good_until(joined).min(now));
        }
        self.seen_at = now;
        is_due
    }

    /// Until when it is good if the oldest goes on waiting. The oldest may be the
    /// oldest only since the last look, and over the target before.
    fn good_until(&self, oldest: Time) -> Time {
        let over = oldest.after(self.target);
        if over > self.seen_at { over } else { self.good_at }
    }

    /// Takes note that something had to be rejected.
    pub(crate) fn note_rejection(&mut self, now: Time) {
        self.bad_at = self.bad_at.max(now);
    }

    /// The same of one of the late, which came at `joined`.
    pub(crate) fn note_expelled(&mut self, now: Time, joined: Time) {
        self.note_rejection(now);
        if now >= joined.after(self.interval) {
            return;
        }
        if self.expellable == 0 {
            self.expellable = EXPELLED_AT_ONCE;
        }
        self.expellable -= 1;
        if self.expellable == 0 {
            self.paused_until = now.after(PAUSE);
        }
    }
}
