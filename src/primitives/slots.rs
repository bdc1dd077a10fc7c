use std::time::Duration;

use super::turns::Room;
use super::{ConfigError, Time};

/// The largest limit that can be set.
pub const MAX_LIMIT: f64 = 1e9;
/// The largest cost that one permit can have.
pub const MAX_COST: u32 = 1_000_000_000;

/// Counts what is in flight against a limit that may be fractional and may
/// move.
///
/// A cost above the limit runs alone. A limit below 1 admits one at a time and
/// then rests, so that the mean in flight is the limit: after work that took
/// `s`, for `(1 / limit − 1) × s`. A limit of 0 admits nobody.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: f64,
    in_flight: u64,
    last_end: Time,
    last_service: Duration,
    /// Since when the limit is below 1: what began earlier may not have been
    /// timed, and counts from then.
    timed_since: Time,
}

impl Slots {
    pub(crate) fn new(limit: f64) -> Result<Self, ConfigError> {
        if limit > 0.0 && limit <= MAX_LIMIT {
            Ok(Self {
                limit,
                in_flight: 0,
                last_end: Time::ZERO,
                last_service: Duration::ZERO,
                timed_since: Time::ZERO,
            })
        } else {
            Err(ConfigError::new("limit", limit, "a number above 0 and at most 1e9"))
        }
    }

    pub(crate) fn set_limit(&mut self, now: Time, limit: f64) -> Result<(), ConfigError> {
        if (0.0..=MAX_LIMIT).contains(&limit) {
            if self.limit >= 1.0 && limit < 1.0 {
                self.timed_since = now;
                self.last_service = Duration::ZERO;
            }
            self.limit = limit;
            Ok(())
        } else {
            Err(ConfigError::new("limit", limit, "a number from 0 (admits nobody) to 1e9"))
        }
    }

    pub(crate) const fn limit(&self) -> f64 {
        self.limit
    }

    /// Whether room depends on the time.
    pub(crate) fn needs_time(&self) -> bool {
        self.limit < 1.0
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(crate) fn saturation(&self) -> f64 {
        if self.limit > 0.0 { self.in_flight as f64 / self.limit } else { 1.0 }
    }

    /// The end of the rest after the last work, while the limit is below 1 and
    /// nothing is in flight.
    fn rests_until(&self) -> Option<Time> {
        if self.in_flight > 0 || self.limit >= 1.0 || self.limit <= 0.0 {
            return None;
        }
        let rest = self.last_service.as_secs_f64() * (1.0 / self.limit - 1.0);
        // A tiny limit makes the span overflow: then the rest is without end.
        Some(Duration::try_from_secs_f64(rest).map_or(Time::MAX, |rest| self.last_end.after(rest)))
    }

    pub(crate) fn finish(&mut self, now: Time, cost: u32, started: Time) {
        self.put_back(now, u64::from(cost));
        self.last_end = now;
        self.last_service = now.since(started.max(self.timed_since));
    }

    pub(crate) fn reset(&mut self) {
        self.in_flight = 0;
        self.last_service = Duration::ZERO;
    }
}

impl Room for Slots {
    fn has_room(&self, now: Time, cost: u64) -> bool {
        if self.in_flight > 0 {
            return (self.in_flight + cost) as f64 <= self.limit;
        }
        self.limit > 0.0 && self.rests_until().is_none_or(|until| until <= now)
    }

    fn take(&mut self, _now: Time, cost: u64) {
        self.in_flight += cost;
    }

    fn put_back(&mut self, _now: Time, cost: u64) {
        self.in_flight = self.in_flight.saturating_sub(cost);
    }

    fn room_at(&self, _cost: u64) -> Option<Time> {
        self.rests_until()
    }
}
