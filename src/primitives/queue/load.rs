use std::time::Duration;

use super::config::UNSAID;
use crate::primitives::Time;

const LONGEST: Duration = Duration::from_secs(3600);
/// The weight of the callers before against that of the next.
const MEMORY: u64 = 16;
/// A caller counts as at most so many times those before, or as one who does not say:
/// else one of twenty who claims an hour speaks for all.
const OUTLIER: u64 = 4;
/// The shortest time over which the workers are counted, also in service times.
const RECENT: Duration = Duration::from_secs(5);
const SERVICES: u32 = 20;

/// For how many items in line the workers are hardly ever idle by chance: at as much
/// work as they can do, 1 of 19 in a line of 18 (M/M/1/K).
pub(super) const ITEMS: usize = 18;
/// More comes than can be done if the last `ITEMS` came within the time in which the
/// workers can do so many times these, and the last one within the time for so many.
const FED: u64 = 2;
const SILENCE: u64 = 5;

/// What the bounds of a queue have to fit: how much time its callers give, how fast
/// they come, and how many workers it has.
///
/// The time is the mean of the last callers', about 16, of whom each counts as at
/// most an hour, and as 4 times the mean before or 1 s. Workers are as many as were at
/// work at once within the last 5 to 10 s, or 20 to 40 service times if these are
/// longer.
#[derive(Debug)]
pub(super) struct Load {
    given: u64,
    /// When the last ones came, and which of them is the oldest.
    arrivals: [Option<Time>; ITEMS],
    oldest: usize,
    most: usize,
    most_before: usize,
    since: Time,
}

impl Load {
    pub(super) const fn new() -> Self {
        Self {
            given: nanos(UNSAID),
            arrivals: [None; ITEMS],
            oldest: 0,
            most: 0,
            most_before: 0,
            since: Time::ZERO,
        }
    }

    /// Somebody came, and gave so much time.
    #[inline]
    pub(super) fn note_caller(&mut self, given: Duration) {
        let most = self.given.saturating_mul(OUTLIER).max(nanos(UNSAID));
        let given = nanos(given.min(LONGEST)).min(most);
        self.given = self.given - self.given / MEMORY + given / MEMORY;
    }

    /// He came now. Until when more comes than can be done, if the workers need so long
    /// for one and nobody else comes.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Time, each: Duration) -> Time {
        let place = &mut self.arrivals[self.oldest];
        *place = Some(now);
        self.oldest = if self.oldest + 1 < ITEMS { self.oldest + 1 } else { 0 };
        let Some(first) = self.arrivals[self.oldest].filter(|_| !each.is_zero()) else {
            return Time::ZERO;
        };
        let each = nanos(each);
        let fed = first.after(Duration::from_nanos(each.saturating_mul(FED * ITEMS as u64)));
        fed.min(now.after(Duration::from_nanos(each.saturating_mul(SILENCE))))
    }

    /// So many are at work.
    #[inline]
    pub(super) fn note_workers(&mut self, working: usize) {
        self.most = self.most.max(working);
    }

    /// Forgets the workers of long ago.
    pub(super) fn forget(&mut self, now: Time, working: usize, service: Duration) {
        if now.since(self.since) >= RECENT.max(service.saturating_mul(SERVICES)) {
            self.most_before = self.most;
            self.most = working;
            self.since = now;
        }
    }

    /// How much time callers give.
    pub(super) const fn given(&self) -> Duration {
        Duration::from_nanos(self.given)
    }

    /// How many workers there are, at least 1.
    pub(super) fn workers(&self) -> usize {
        self.most.max(self.most_before).max(1)
    }
}

#[allow(clippy::cast_possible_truncation)] // an hour at most
const fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}
