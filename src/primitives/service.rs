use std::time::Duration;

use hdrhistogram::Histogram;

use super::Time;

/// Fewer samples say nothing about a high quantile.
const FEWEST: u64 = 20;
/// As many are enough, and what is older is forgotten the sooner.
const PLENTY: u64 = 500;
/// For how long samples are recent, if there are not plenty of them.
const RECENT: Duration = Duration::from_secs(5);
/// After as long without a sample the quantile is worth nothing any more; or after
/// four times itself, for services that take long.
const AGEING: Duration = Duration::from_secs(10);
const QUANTILE: f64 = 0.95;
/// The shortest baseline: from nothing it could not rise.
const SHORTEST: Duration = Duration::from_micros(1);
/// A sample counts as at most so long: clocks may jump.
const LONGEST: Duration = Duration::from_secs(4_000);
const INSTANT: Duration = Duration::from_nanos(1);

/// The shortest batch that moves the baseline.
const SHORTEST_BATCH: Duration = Duration::from_millis(100);
/// The share of the way to a lower, and to a higher, mean of a batch that the
/// baseline goes at once.
const FALL: f64 = 0.2;
const RISE: f64 = 0.05;
/// A batch counts for the baseline as at most so many times the baseline.
const MOST: f64 = 4.0;

/// How certain it has to be that work is done in time, for it to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Of 100 that can be in time at all, 97 are.
    High,
    /// Of 100 that can be in time at all, 85 are: more than that would be certain only
    /// if others, that could be done as well, were given up for it.
    Fair,
}

impl Certainty {
    const ALL: [Self; 2] = [Self::High, Self::Fair];

    const fn share(self) -> f64 {
        match self {
            Self::High => 0.97,
            Self::Fair => 0.85,
        }
    }
}

/// What is known of how long a service takes: the mean with its standard error, a
/// high quantile, both of recent samples, and a baseline.
///
/// *Recent* are the last 500 to 1,000 samples, or those of the last 5 to 10 s if
/// these are fewer; what is older counts until there are 20 newer ones. A sample
/// counts as at most 4,000 s. The *quantile* is the 95th percentile, with the
/// resolution of a histogram of one significant digit, rounded up. The *baseline* is
/// the mean when there is no overload: it falls quickly to what is measured, and rises
/// slowly, and only by what was measured without overload, since overload makes a
/// service slower.
#[derive(Clone, Debug)]
pub struct ServiceEstimate {
    /// What is recent: the current window and the one before.
    recent: Window,
    current: Window,
    current_since: Time,
    quantile: Duration,
    /// By certainty.
    estimates: [Duration; 2],
    useful: Duration,
    /// At how many recent samples the quantiles are looked at again.
    next_look: u64,
    last: Time,
    baseline: Option<f64>,
    batch: Sums,
    batch_since: Time,
    is_batch_loaded: bool,
}

impl Default for ServiceEstimate {
    fn default() -> Self {
        Self::new()
    }
}

impl ServiceEstimate {
    /// An estimate that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            recent: Window::new(),
            current: Window::new(),
            current_since: Time::ZERO,
            quantile: Duration::ZERO,
            estimates: [Duration::ZERO; 2],
            useful: Duration::MAX,
            next_look: FEWEST,
            last: Time::ZERO,
            baseline: None,
            batch: Sums::default(),
            batch_since: Time::ZERO,
            is_batch_loaded: false,
        }
    }

    /// Learns that work which ended at `now` took `service`; `is_loaded` if there
    /// was overload meanwhile.
    pub fn record(&mut self, now: Time, service: Duration, is_loaded: bool) {
        let (now, service) = (now.max(self.last), service.min(LONGEST));
        self.forget(now);
        self.last = now;
        self.current.add(service);
        self.recent.add(service);
        if self.recent.sums.count >= self.next_look {
            self.look();
        }
        self.is_batch_loaded |= is_loaded;
        self.learn(now, service);
    }

    /// The mean of the recent samples; zero if there is none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        nanos(self.recent.sums.mean())
    }

    /// The standard error of the mean; zero below two samples.
    #[must_use]
    pub fn standard_error(&self) -> Duration {
        nanos(self.recent.sums.standard_error())
    }

    /// The 95th percentile of the recent samples; zero below 20 of them.
    #[must_use]
    pub const fn quantile(&self) -> Duration {
        self.quantile
    }

    /// Says for how long an answer is of use; any length, until this is called. What
    /// takes longer is in vain however early it begins, and says nothing about when to
    /// begin the others.
    pub const fn set_useful(&mut self, useful: Duration) {
        self.useful = useful;
    }

    /// How long work will take that begins at `now`: the quantile of the recent samples
    /// that were of [use](Self::set_useful), as far as it can still be relied on. Without
    /// new samples it ages to zero within 10 s, or 4 times the
    /// [`quantile`](Self::quantile) if that is longer, and what was known before is
    /// forgotten: an estimate that refuses everything learns nothing more.
    #[must_use]
    pub fn estimate(&self, now: Time, certainty: Certainty) -> Duration {
        let estimate = self.estimates[certainty as usize];
        let (idle, ageing) = (now.since(self.last), self.ageing());
        if idle.is_zero() {
            return estimate;
        }
        if idle >= ageing {
            return Duration::ZERO;
        }
        let aged = estimate.as_nanos() * idle.as_nanos() / ageing.as_nanos();
        estimate.saturating_sub(span(aged))
    }

    /// From when on it is too late to begin work that is to be done by `deadline`: less
    /// is left than the [`estimate`](Self::estimate). The deadline itself if nothing is
    /// known.
    #[must_use]
    pub fn too_late_at(&self, deadline: Time, certainty: Certainty) -> Time {
        let estimate = self.estimates[certainty as usize];
        let (left, ageing) = (deadline.since(self.last), self.ageing());
        if estimate.is_zero() || left >= ageing {
            return deadline;
        }
        let Some(spare) = left.checked_sub(estimate) else {
            return deadline.after(INSTANT).before(estimate);
        };
        // What is left and the estimate both go to zero along straight lines.
        let closing = ageing.saturating_sub(estimate);
        let meeting = spare.as_nanos() * ageing.as_nanos() / closing.as_nanos();
        self.last.after(span(meeting)).after(INSTANT)
    }

    /// After how long without a sample the estimate is zero.
    fn ageing(&self) -> Duration {
        AGEING.max(self.quantile.saturating_mul(4))
    }

    /// The mean without overload; `None` before the first 20 samples.
    #[must_use]
    pub fn baseline(&self) -> Option<Duration> {
        self.baseline.map(nanos)
    }

    /// How many samples are recent.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.recent.sums.count
    }

    /// Makes what is current the past, and forgets what was past.
    fn forget(&mut self, now: Time) {
        if !self.quantile.is_zero() && now.since(self.last) >= self.ageing() {
            // One sample does not bring back what is worth nothing any more.
            self.recent.clear();
            self.current.clear();
            self.look();
        }
        let count = self.current.sums.count;
        if count == 0 {
            self.current_since = now;
        }
        let is_old = now.since(self.current_since) >= RECENT;
        if count >= PLENTY || (count >= FEWEST && is_old) {
            std::mem::swap(&mut self.recent, &mut self.current);
            self.current.clear();
            self.current_since = now;
            self.look();
        }
    }

    /// Looks the quantiles up, and again when there is a quarter more to see.
    fn look(&mut self) {
        let count = self.recent.sums.count;
        self.quantile = Duration::ZERO;
        self.estimates = [Duration::ZERO; 2];
        if count >= FEWEST {
            self.quantile = self.recent.quantile(QUANTILE);
            let useful = self.recent.share_below(self.useful);
            self.estimates =
                Certainty::ALL.map(|certainty| self.recent.quantile(certainty.share() * useful));
        }
        self.next_look = FEWEST.max(count + count / 4);
    }

    fn learn(&mut self, now: Time, service: Duration) {
        if self.batch.count == 0 {
            self.batch_since = now;
        }
        self.batch.add(service.as_secs_f64() * 1e9);
        let mean = self.batch.mean();
        let shortest = SHORTEST_BATCH.max(nanos(2.0 * mean));
        let is_first = self.baseline.is_none();
        if self.batch.count < FEWEST || (!is_first && now.since(self.batch_since) < shortest) {
            return;
        }
        let baseline = match self.baseline {
            None => mean,
            Some(baseline) if mean < baseline => baseline + FALL * (mean - baseline),
            Some(baseline) if self.is_batch_loaded => baseline,
            Some(baseline) => baseline + RISE * (mean.min(MOST * baseline) - baseline),
        };
        self.baseline = Some(baseline.max(SHORTEST.as_nanos() as f64));
        self.batch = Sums::default();
        self.is_batch_loaded = false;
    }
}

#[derive(Clone, Debug)]
struct Window {
    /// In nanoseconds; made for the first sample.
    histogram: Option<Histogram<u32>>,
    sums: Sums,
}

impl Window {
    const fn new() -> Self {
        Self { histogram: None, sums: Sums { count: 0, sum: 0.0, sum_of_squares: 0.0 } }
    }

    fn add(&mut self, service: Duration) {
        const LEAST: u64 = 1_000;
        const MOST: u64 = LONGEST.as_secs() * 1_000_000_000;
        let nanos = u64::try_from(service.as_nanos()).unwrap_or(MOST);
        if self.histogram.is_none() {
            // These bounds are right: it is there from now on.
            self.histogram = Histogram::new_with_bounds(LEAST, MOST, 1).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(nanos);
        }
        self.sums.add(nanos as f64);
    }

    fn quantile(&self, quantile: f64) -> Duration {
        let histogram = self.histogram.as_ref();
        Duration::from_nanos(histogram.map_or(0, |known| known.value_at_quantile(quantile)))
    }

    fn share_below(&self, most: Duration) -> f64 {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.as_ref().map_or(1.0, |known| known.quantile_below(most))
    }

    fn clear(&mut self) {
        if let Some(histogram) = &mut self.histogram {
            histogram.clear();
        }
        self.sums = Sums::default();
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    fn standard_error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let count = self.count as f64;
        let squares = self.sum_of_squares - self.sum * self.sum / count;
        (squares.max(0.0) / (count - 1.0) / count).sqrt()
    }
}

fn span(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}
