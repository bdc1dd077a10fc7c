use std::fmt;

/// Why a limit is what it is: what the last sample said, and what came of it.
///
/// Shown as "1.4x of the long-term latency, cut".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Because {
    /// What was seen.
    pub cause: Cause,
    /// What became of the limit.
    pub change: Change,
}

/// What an algorithm saw in a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// The limit never moves.
    Fixed,
    /// Nothing so far.
    Initial,
    /// Less than half of the limit was in flight, which says nothing about it.
    Light,
    /// Half of the limit or more was in flight.
    InUse,
    /// Overload was seen downstream.
    Overload,
    /// It took longer than the time-out.
    TimedOut,
    /// It was the fastest so far.
    Fastest,
    /// It was time to learn the latency without load anew.
    Probe,
    /// So many were queued, by the latency.
    Queued(f64),
    /// So many times the lowest latency.
    OverLowest(f64),
    /// So many times the long-term latency.
    OverLongTerm(f64),
    /// The range was changed.
    Range,
}

/// What became of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words say it
pub enum Change {
    Held,
    Cut,
    Grown,
}

impl Change {
    /// What a step from one limit to another is.
    pub(crate) fn between(from: f64, to: f64) -> Self {
        match to.total_cmp(&from) {
            std::cmp::Ordering::Less => Self::Cut,
            std::cmp::Ordering::Equal => Self::Held,
            std::cmp::Ordering::Greater => Self::Grown,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Cut => "cut",
            Self::Grown => "grown",
        })
    }
}

impl Because {
    pub(super) const fn held(cause: Cause) -> Self {
        Self { cause, change: Change::Held }
    }

    pub(super) fn moved(cause: Cause, from: f64, to: f64) -> Self {
        Self { cause, change: Change::between(from, to) }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Fixed | Cause::Initial => return self.cause.fmt(f),
            cause => cause.fmt(f)?,
        }
        write!(f, ", {}", self.change)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Initial => f.write_str("initial"),
            Self::Light => f.write_str("less than half in flight"),
            Self::InUse => f.write_str("half or more in flight"),
            Self::Overload => f.write_str("overload"),
            Self::TimedOut => f.write_str("slower than the time-out"),
            Self::Fastest => f.write_str("a new lowest latency"),
            Self::Probe => f.write_str("the lowest latency is learned anew"),
            Self::Queued(queued) => write!(f, "{queued:.0} queued by the latency"),
            Self::OverLowest(ratio) => write!(f, "{ratio:.1}x of the lowest latency"),
            Self::OverLongTerm(ratio) => write!(f, "{ratio:.1}x of the long-term latency"),
            Self::Range => f.write_str("the range was changed"),
        }
    }
}
