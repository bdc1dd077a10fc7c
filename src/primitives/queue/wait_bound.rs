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
///
/// [`observe`](Self::observe) is called before and after anything comes or goes: what
/// happened in between follows from the age of the oldest.
#[derive(Debug)]
pub(crate) struct WaitBound {
    target: Duration,
    interval: Duration,
    standing_since: Option<Time>,
    /// When it was last seen to be empty, or its oldest wait below the target.
    good_at: Time,
    /// When something was last rejected, while standing.
    bad_at: Time,
    seen_at: Time,
    /// How many may still be expelled before the next pause, and when that ends.
    expellable: u32,
    paused_until: Time,
}

impl WaitBound {
    pub(crate) const fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            standing_since: None,
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
        self.standing_since.is_some()
    }

    #[inline]
    /// When the oldest item, which came at `joined`, has waited for as long as it
    /// may.
    pub(crate) fn due(&self, joined: Time) -> Time {
        let Some(since) = self.standing_since else {
            return joined.after(self.interval);
        };
        let due = joined.after(self.target);
        if due >= since {
            return due;
        }
        // It was over the target already when the queue became standing.
        let resumed = if self.expellable > 0 { since } else { self.paused_until };
        resumed.min(joined.after(self.interval)).max(due)
    }

    /// When it becomes standing or healthy, if nothing comes or goes until then.
    pub(crate) fn next_change(&self, oldest: Option<Time>) -> Option<Time> {
        if self.standing_since.is_some() {
            return Some(self.bad_at.after(self.interval));
        }
        Some(self.good_until(oldest?).after(self.interval))
    }

    /// Takes note of the state at `now`.
    pub(crate) fn observe(&mut self, now: Time, oldest: Option<Time>) {
        let is_due = self.next_change(oldest).is_some_and(|at| at <= now);
        if self.standing_since.is_some() {
            if is_due {
                self.standing_since = None;
                self.good_at = now;
            }
        } else if is_due {
            self.standing_since = Some(now);
            self.bad_at = now;
            self.expellable = EXPELLED_AT_ONCE;
        } else {
            self.good_at = oldest.map_or(now, |joined| self.good_until(joined).min(now));
        }
        self.seen_at = now;
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

    /// The same of an item that has waited for as long as it may.
    pub(crate) fn note_expelled(&mut self, now: Time, joined: Time) {
        self.note_rejection(now);
        if self.standing_since.is_none_or(|since| joined.after(self.target) >= since) {
            return;
        }
        if self.expellable == 0 && now >= self.paused_until {
            self.expellable = EXPELLED_AT_ONCE;
        }
        self.expellable = self.expellable.saturating_sub(1);
        if self.expellable == 0 {
            self.paused_until = now.after(PAUSE);
        }
    }
}
