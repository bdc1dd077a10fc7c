//! What a rejection says to whoever reads it in a log: why, and the figures that matter
//! for that.

use std::fmt::Write;
use std::time::Duration;

use super::rejection::Kind;
use crate::primitives::{Reason, Rejection};

/// `full (82 of 82 waiting, 41 in flight, limit 41.3); retry after 0.8 s`.
pub(crate) fn describe(kind: Kind, rejection: &Rejection) -> String {
    let mut text = rejection.reason.as_str().to_owned();
    let figures = figures(kind, rejection);
    if !figures.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, " ({figures})");
    }
    if let Some(span) = rejection.retry_after {
        let _ = write!(text, "; retry after {} s", tenths_up(span));
    }
    text
}

fn figures(kind: Kind, rejection: &Rejection) -> String {
    let Rejection { limit, in_flight, waiting, .. } = *rejection;
    match rejection.reason {
        Reason::Closed | Reason::Rate | Reason::Throttled => String::new(),
        Reason::Saturated => "the next stage".into(),
        Reason::Deadline => match rejection.time_left {
            None => String::new(),
            Some(Duration::ZERO) => "no time left".into(),
            Some(left) => format!("{} s left", millis(left)),
        },
        Reason::Priority => rejection
            .threshold
            .map(|threshold| {
                let part = if threshold == rejection.criticality { "a part of" } else { "below" };
                format!("{part} {}", threshold.name())
            })
            .unwrap_or_default(),
        Reason::Limit if waiting == 0 => busy(kind, rejection),
        Reason::Limit => format!("{}, {waiting} waiting", busy(kind, rejection)),
        Reason::Full => line(kind, rejection),
        Reason::Wait => format!("for too long; {}", line(kind, rejection)),
        Reason::Evicted => format!("for more critical work; {}", line(kind, rejection)),
        Reason::Streams => format!("{in_flight} of {} streams", tenths_down(limit)),
        Reason::Budget => format!("{in_flight} of {} retries", tenths_down(limit)),
    }
}

fn line(kind: Kind, rejection: &Rejection) -> String {
    let Rejection { waiting, max_waiting, .. } = *rejection;
    let busy = busy(kind, rejection);
    match max_waiting {
        Some(most) => format!("{waiting} of {most} waiting, {busy}"),
        None => format!("{waiting} waiting, {busy}"),
    }
}

/// The limit of a queue is one on what waits.
fn busy(kind: Kind, rejection: &Rejection) -> String {
    let Rejection { limit, in_flight, .. } = *rejection;
    if kind == Kind::Queue {
        format!("{in_flight} in flight")
    } else {
        format!("{in_flight} in flight, limit {}", tenths_down(limit))
    }
}

/// Down, since 4 in flight are all that a limit of 4.98 lets in.
fn tenths_down(number: f64) -> String {
    let tenths = (number * 10.0 * (1.0 + f64::EPSILON)).floor() / 10.0;
    if number.fract() == 0.0 || !tenths.is_finite() {
        format!("{number}")
    } else {
        format!("{tenths:.1}")
    }
}

/// Up, since before that it would be too early.
fn tenths_up(span: Duration) -> String {
    let tenths = span.as_nanos().div_ceil(100_000_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// In seconds, as far as a millisecond; what is left at all is not said to be none.
fn millis(span: Duration) -> String {
    let seconds = span.as_secs_f64().max(0.001);
    if seconds < 1.0 { format!("{seconds:.3}") } else { format!("{seconds:.1}") }
}
