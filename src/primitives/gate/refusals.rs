use std::time::Duration;

use crate::primitives::random::Random;
use crate::primitives::{Criticality, Episodes, Reason, Rejecting, RetryAfter, Time};

/// For how long a span is as good as one made anew.
const FRESH: Duration = Duration::from_millis(10);

/// What a gate has rejected: how much, when it is told to come back, and what there is to
/// tell of it.
#[derive(Debug)]
pub(super) struct Refusals {
    counts: [u64; 12],
    retry_after: RetryAfter,
    /// The shortest span of a moment ago, and until when it is good.
    shortest: Duration,
    fresh_until: Time,
    episodes: Episodes,
    random: Random,
}

impl Refusals {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            counts: [0; 12],
            retry_after: RetryAfter::new(),
            shortest: Duration::ZERO,
            fresh_until: Time::ZERO,
            episodes: Episodes::new(),
            random: Random::new(seed),
        }
    }

    /// How many were rejected, by reason.
    pub(super) const fn counts(&self) -> &[u64; 12] {
        &self.counts
    }

    /// Somebody asks.
    #[inline]
    pub(super) const fn note_ask(&mut self) {
        self.episodes.note_ask();
    }

    /// Some work is done.
    #[inline]
    pub(super) fn note_done(&mut self, now: Time) {
        self.retry_after.note_done(now);
    }

    /// Somebody is rejected: after what time it is worth coming back. Where nobody is let
    /// in any more there is none.
    pub(super) fn note(
        &mut self,
        now: Time,
        reason: Reason,
        criticality: Criticality,
    ) -> Option<Duration> {
        self.episodes.note(now, reason, criticality);
        if reason != Reason::Rate && reason != Reason::Closed {
            self.retry_after.note_rejection(now);
        }
        self.note_at_any_load(now, reason)
    }

    /// The same of somebody who would have been at any load, and says nothing about it.
    pub(super) fn note_at_any_load(&mut self, now: Time, reason: Reason) -> Option<Duration> {
        self.counts[reason.index()] += 1;
        if reason == Reason::Closed {
            return None;
        }
        if now >= self.fresh_until {
            self.shortest = self.retry_after.shortest_span(now);
            self.fresh_until = now.after(FRESH);
        }
        Some(self.shortest + self.shortest.mul_f64(self.random.unit()))
    }

    /// Whether there is something to tell.
    #[inline]
    pub(super) fn has_news(&self, now: Time) -> bool {
        self.next_news().is_some_and(|at| at <= now)
    }

    /// When there may be something to tell.
    #[inline]
    pub(super) fn next_news(&self) -> Option<Time> {
        self.episodes.next_look()
    }

    pub(super) fn news(&mut self, now: Time) -> Option<Rejecting> {
        self.episodes.look(now)
    }
}
