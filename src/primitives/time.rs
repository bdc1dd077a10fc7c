use std::time::Duration;

/// A moment on a monotonic clock, in nanoseconds since an arbitrary origin.
///
/// Moments come from the caller; spans between them are [`Duration`]s. The
/// arithmetic saturates, so that no reading of a clock, however odd, can
/// overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes (584 years after the origin).
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `seconds` after the origin; not-a-number and negative values
    /// give the origin, values too large give [`Time::MAX`].
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The moment `span` later.
    #[must_use]
    #[inline]
    pub const fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(span)))
    }

    /// The moment `span` earlier; the origin if that would be before it.
    #[must_use]
    #[inline]
    pub const fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(span)))
    }

    /// The span from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

const fn nanos_of(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(span.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_seconds_saturate() {
        assert_eq!(Time::from_secs_f64(f64::NAN), Time::ZERO);
        assert_eq!(Time::from_secs_f64(-1.0), Time::ZERO);
        assert_eq!(Time::from_secs_f64(f64::INFINITY), Time::MAX);
        assert_eq!(Time::from_secs_f64(1.5), Time::from_nanos(1_500_000_000));
    }

    #[test]
    fn a_span_is_never_negative() {
        let (early, late) = (Time::from_nanos(1), Time::from_nanos(3));
        assert_eq!(late.since(early), Duration::from_nanos(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Time::MAX.after(Duration::MAX), Time::MAX);
    }
}
