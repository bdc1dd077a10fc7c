use std::fmt;
use std::time::Duration;

use crate::primitives::limits::Change;

/// Why a limit is what it is: what the last window said, and what came of it.
///
/// Shown as "cut: latency 2.4x of 52 ms".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Because {
    /// What was seen.
    pub cause: Cause,
    /// What became of the limit.
    pub change: Change,
    /// The mean latency without overload of what was done in the last window; `None` before the
    /// first one.
    pub baseline: Option<Duration>,
    /// The mean latency in the last window.
    pub recent: Option<Duration>,
    /// So many times the baseline is what is recent; 1 if nothing is known.
    pub slowdown: f64,
    /// By how many standard errors latency is above what is tolerated, from −1,000 to 1,000; the
    /// limit is cut from 2 on.
    pub significance: f64,
    /// What the limit may not exceed, by what was in flight of late.
    pub cap: f64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing so far.
    Initial,
    /// Less than half of the limit was in flight, which says nothing about it.
    Light,
    /// Latency, against the baseline.
    Latency,
    /// Latency, against the target.
    Target,
    /// Overload downstream.
    Overload,
    /// An experiment: does latency depend on the limit?
    Test,
    /// It does not: the service has become slower or faster.
    Shift,
    /// It does, or did not come out.
    NoShift,
    /// The limit was cut in a burst that is over.
    Burst,
    /// Little was in flight of late.
    Peak,
    /// Nothing was in flight, and nobody came, for long.
    Idle,
    /// The range was changed.
    Range,
}

impl Because {
    pub(super) const fn initial(cap: f64) -> Self {
        Self {
            cause: Cause::Initial,
            change: Change::Held,
            baseline: None,
            recent: None,
            slowdown: 1.0,
            significance: 0.0,
            cap,
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = self.change;
        let baseline = Span(self.baseline.unwrap_or_default());
        let recent = Span(self.recent.unwrap_or_default());
        let slowdown = self.slowdown;
        match self.cause {
            Cause::Initial => f.write_str("initial"),
            Cause::Light => write!(f, "{change}: less than half in flight"),
            Cause::Latency => write!(f, "{change}: latency {slowdown:.1}x of {baseline}"),
            Cause::Target => write!(f, "{change}: latency {recent}"),
            Cause::Overload => write!(f, "{change}: overload downstream"),
            Cause::Test => write!(f, "test: latency {slowdown:.1}x of {baseline}"),
            Cause::Shift => write!(f, "{change}: latency is {recent} at any limit"),
            Cause::NoShift => write!(f, "{change}: latency depends on the limit"),
            Cause::Burst => write!(f, "{change}: the burst is over"),
            Cause::Peak => write!(f, "{change}: little in flight of late"),
            Cause::Idle => write!(f, "{change}: nothing in flight of late"),
            Cause::Range => write!(f, "{change}: the range was changed"),
        }
    }
}

/// A span as people write it.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos() as f64;
        let (value, unit) = match nanos {
            _ if nanos < 1e3 => (nanos, "ns"),
            _ if nanos < 1e6 => (nanos / 1e3, "µs"),
            _ if nanos < 1e9 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let digits = usize::from(value < 10.0);
        write!(f, "{value:.digits$} {unit}")
    }
}
