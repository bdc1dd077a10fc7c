//! failsafe-go: the decisions of its adaptive limiter, and its adaptive
//! throttler.

/// What a window of samples says about the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// How much is queued, by the latency: see [`queue_size`].
    pub queue: i64,
    /// Below so much queued the limit grows.
    pub alpha: i64,
    /// Above so much queued it is cut.
    pub beta: i64,
    /// Whether all permits are taken at this instant.
    pub is_full: bool,
    /// How in flight and throughput go together, from −1 to 1.
    pub throughput_correlation: f64,
    /// The standard deviation of the throughput / its mean.
    pub throughput_variation: f64,
    /// How in flight and latency go together, from −1 to 1.
    pub latency_correlation: f64,
}

/// What to do with the limit, and for which reason, in failsafe-go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words say it
pub enum Change {
    Increase,
    Hold,
    Decrease(&'static str),
}

/// What to do with the limit; the first that applies.
#[must_use]
pub fn change(signals: &Signals) -> Change {
    let &Signals { is_full, throughput_correlation, latency_correlation, .. } = signals;
    if signals.queue > signals.beta {
        Change::Decrease("queue")
    } else if is_full && throughput_correlation < 0.0 {
        Change::Decrease("thrptCorr")
    } else if is_full && throughput_correlation < 0.3 && latency_correlation > 0.5 {
        Change::Decrease("thrptCorrRtt")
    } else if is_full && signals.throughput_variation < 0.2 && latency_correlation > 0.5 {
        Change::Decrease("thrptCV")
    } else if signals.queue < signals.alpha {
        Change::Increase
    } else {
        Change::Hold
    }
}

/// How much of the limit is queued: `⌈limit × (1 − baseline / recent)⌉`.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // `as` saturates
pub fn queue_size(limit: f64, baseline: f64, recent: f64) -> i64 {
    (limit * (1.0 - baseline / recent)).ceil() as i64
}

/// The limit after a change by log10(limit), capped at `max_limit`, which is five
/// times the most that was in flight. From above the cap it steps down, from below
/// it goes no further than to it.
#[must_use]
pub fn next_limit(limit: f64, change: Change, max_limit: f64) -> f64 {
    let step = limit.log10().trunc().max(1.0);
    let next = match change {
        Change::Increase => limit + step,
        Change::Hold => limit,
        Change::Decrease(_) => limit - step,
    };
    match next {
        next if next <= max_limit => next,
        _ if limit > max_limit => limit - step,
        _ => max_limit,
    }
}

/// The rate at which the adaptive throttler rejects: `(n − s / 0.9) / (n + 1)` for
/// `s` successes of `n` executions, from 0 to 0.9.
#[must_use]
pub fn rejection_rate(executions: f64, successes: f64) -> f64 {
    const SUCCESS_THRESHOLD: f64 = 0.9;
    const MOST: f64 = 0.9;
    let excess = (executions - successes / SUCCESS_THRESHOLD).max(0.0);
    (excess / (executions + 1.0)).min(MOST)
}
