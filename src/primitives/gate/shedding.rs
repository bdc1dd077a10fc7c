use super::GateAsk;
use crate::primitives::random::Random;
use crate::primitives::{Criticality, Position, Priority, Reason, Threshold, Time};

/// The pressure of a line that is standing and rejects nobody: it may stay as it is.
const STANDING: f64 = 0.9;
/// How fast it rises with the share that is rejected in line, so that it is 1 at 2 %.
const SLOPE: f64 = 5.0;

/// Who is rejected for others who matter more, before there is anything to wait for.
///
/// There are two thresholds: by pressure from outside, whatever room there is; and by that
/// of the own line, for those who would have to wait. What the line rejects in the end, it
/// would have been better to reject at once: earlier, the less critical first, and the same
/// callers for a while. So the pressure of the line is what it rejects although it had been
/// in time; deadlines that cannot be kept say nothing about others.
#[derive(Debug)]
pub(super) struct Shedding {
    by_pressure: bool,
    by_line: bool,
    outside: Threshold,
    line: Threshold,
    pressure: f64,
    /// How many came to the line, and how many it rejected, since the last look.
    came: u32,
    rejected: u32,
}

impl Shedding {
    pub(super) fn new(by_pressure: bool, by_line: bool) -> Self {
        Self {
            by_pressure,
            by_line,
            outside: Threshold::new(),
            line: Threshold::new(),
            pressure: 0.0,
            came: 0,
            rejected: 0,
        }
    }

    /// Whether anybody may be rejected by it who finds room.
    #[inline]
    pub(super) const fn is_by_pressure(&self) -> bool {
        self.by_pressure
    }

    pub(super) fn note_pressure(&mut self, pressure: f64) {
        self.pressure = pressure;
    }

    /// Whether pressure from outside lets somebody in.
    #[inline]
    pub(super) fn admits(&mut self, now: Time, priority: Priority) -> bool {
        if !self.by_pressure {
            return true;
        }
        if self.outside.is_due(now) {
            self.outside.update(now, self.pressure);
        }
        self.outside.admits(now, priority)
    }

    /// Whether the line lets somebody in; `is_standing` if it is.
    pub(super) fn lets_wait(&mut self, now: Time, priority: Priority, is_standing: bool) -> bool {
        if !self.by_line {
            return true;
        }
        self.came = self.came.saturating_add(1);
        self.look_at_line(now, is_standing);
        self.line.admits(now, priority)
    }

    /// Forgets that somebody was let into the line who asks for it again.
    pub(super) fn retract(&mut self, priority: Priority) {
        if self.by_pressure {
            self.outside.retract(priority);
        }
        if self.by_line {
            self.came = self.came.saturating_sub(1);
            self.line.retract(priority);
        }
    }

    /// Takes note that somebody found room, so that what was long ago is forgotten.
    #[inline]
    pub(super) fn note_room(&mut self, now: Time) {
        if self.by_line && self.line.rate() > 0.0 {
            self.look_at_line(now, false);
        }
    }

    /// Takes note that the line has rejected somebody.
    pub(super) fn note_rejected(&mut self, reason: Reason) {
        if matches!(reason, Reason::Wait | Reason::Evicted | Reason::Full) {
            self.rejected = self.rejected.saturating_add(1);
        }
    }

    fn look_at_line(&mut self, now: Time, is_standing: bool) {
        if !self.line.is_due(now) {
            return;
        }
        let share = f64::from(self.rejected) / f64::from(self.came.max(1));
        let pressure =
            if is_standing || self.rejected > 0 { STANDING + SLOPE * share } else { 0.0 };
        (self.came, self.rejected) = (0, 0);
        self.line.update(now, pressure);
    }

    /// The least critical that are not all rejected: by pressure, and in line.
    pub(super) fn level(&self) -> Criticality {
        self.outside.level().max(self.line.level())
    }

    pub(super) fn outside_level(&self) -> Criticality {
        self.outside.level()
    }

    pub(super) fn line_level(&self) -> Criticality {
        self.line.level()
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.by_pressure, self.by_line);
    }
}

/// Where somebody stands who may have said where; by chance, who has not; and last of his
/// criticality, who asks again.
#[inline]
pub(super) fn priority_of(ask: &GateAsk<'_>, random: &mut Random) -> Priority {
    let position = ask.position.unwrap_or_else(|| Position::random(random.unit()));
    let position = if ask.is_retry { Position::LOWEST } else { position };
    Priority::new(ask.ask.criticality, position)
}
