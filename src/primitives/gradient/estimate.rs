use std::time::Duration;

use super::baseline::Baselines;
use super::peak::Peak;
use super::shift::{ShiftTest, Verdict};
use super::window::{Slowdown, Window};
use super::{Because, Cause, Change, GradientConfig};
use crate::primitives::{ConfigError, Outcome, Time};

/// So many times the baseline are no reason to cut.
const TOLERANCE: f64 = 2.0;
/// How many standard errors are significant.
const SIGNIFICANT: f64 = 2.0;
/// The most that one window can say against the limit.
const LEAST_GRADIENT: f64 = 0.5;
/// What overload downstream says, from one in 20 on, and from one in two on.
const OVERLOAD_GRADIENT: f64 = 0.9;
const OVERLOAD_SHARE: f64 = 0.05;
const MOSTLY_OVERLOAD_SHARE: f64 = 0.5;
/// How much of what is said is done at once.
const SMOOTHING: f64 = 0.3;
/// As many cuts in a row call for a shift test.
const CUTS: u32 = 3;
/// What is left after a test found overload.
const AFTER_TEST: f64 = 0.75;
/// The pause after a test, in nanoseconds and in mean latencies; it doubles so many times.
const PAUSE: f64 = 2e9;
const PAUSE_IN_LATENCIES: f64 = 4.0;
const MOST_DOUBLINGS: i32 = 5;
/// Fewer samples of an operation do not shift its baseline.
const FEWEST_OF_SHIFT: u64 = 3;
/// The limit is at most so many times the peak in flight.
const CAP: f64 = 4.0;
/// For how long a peak counts, and for how many mean latencies.
const PEAK: f64 = 60e9;
const PEAK_IN_LATENCIES: f64 = 20.0;
/// A sample counts as at most so long, in nanoseconds: clocks may jump.
const LONGEST: f64 = 4_000e9;
/// By how much a limit grows in a round trip when latency is as without load.
const GROWTH: f64 = 0.5;
const MOST_SIGNIFICANCE: f64 = 1_000.0;

/// The limit, by what is admitted, rejected and released.
///
/// A window of samples is compared with what was expected of just these operations. The limit is
/// cut if that is significantly more than twice as much, or if there was overload downstream, and
/// grows if it was reached and is not too much. After three cuts in a row a
/// [`ShiftTest`](super::shift::ShiftTest) tells whether the service is overloaded or has become
/// slower.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    config: GradientConfig,
    limit: f64,
    window: Window,
    baselines: Baselines,
    peak: Peak,
    test: Option<Box<ShiftTest>>,
    /// How many cuts there were in a row, and the limit before them.
    cuts: u32,
    /// What took too long since then, and what was expected of it; half of it is forgotten
    /// with each cut.
    slow: (f64, f64),
    before_cuts: f64,
    last_cut: Option<Time>,
    next_test: Time,
    doublings: i32,
    /// The mean latency of the last window, in nanoseconds.
    latency: f64,
    because: Because,
}

/// Who is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Released<'a> {
    pub(super) started: Time,
    /// How much was in flight when he was admitted, himself included.
    pub(super) in_flight: u64,
    pub(super) operation: Option<&'a str>,
    pub(super) outcome: Outcome,
}

/// What an end says.
enum Reading {
    Nothing,
    Sample,
    Overload,
    SlowOverload,
}

impl Estimate {
    pub(super) fn new(config: GradientConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            limit: config.initial,
            window: Window::new(),
            baselines: Baselines::new(),
            peak: Peak::new(),
            test: None,
            cuts: 0,
            slow: (0.0, 0.0),
            before_cuts: config.initial,
            last_cut: None,
            next_test: Time::ZERO,
            doublings: 0,
            latency: 0.0,
            because: Because::initial(config.initial),
        })
    }

    pub(super) const fn config(&self) -> &GradientConfig {
        &self.config
    }

    #[inline]
    pub(super) const fn limit(&self) -> f64 {
        self.limit
    }

    pub(super) fn because(&self) -> Because {
        Because { cap: self.cap(), ..self.because }
    }

    /// Whether the mere passing of time says something: see [`settle`](Self::settle).
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.peak.is_due(now)
    }

    /// Forgets what was in flight long ago; that may lower the limit.
    #[cold]
    pub(super) fn settle(&mut self, now: Time, in_flight: u64) {
        let span = nanos(PEAK.max(PEAK_IN_LATENCIES * self.latency));
        self.peak.advance(now, span, in_flight);
        if self.limit > self.cap() {
            self.move_to(self.limit, Cause::Peak);
        }
    }

    /// Somebody was admitted, with so much in flight then.
    #[inline]
    pub(super) fn admitted(&mut self, started: Time, in_flight: u64) {
        self.peak.record(in_flight);
        self.window.peak = self.window.peak.max(in_flight);
        if let Some(test) = &mut self.test {
            test.admitted(started);
        }
    }

    /// Somebody met no room.
    #[inline]
    pub(super) fn rejected(&mut self) {
        self.window.met_no_room = true;
    }

    /// Somebody is done; may change the limit.
    #[inline]
    pub(super) fn released(&mut self, now: Time, released: Released<'_>) {
        let elapsed = (now.since(released.started).as_nanos() as f64).min(LONGEST);
        let place = self.baselines.place(released.operation);
        let group = self.baselines.group(place);
        let is_member = self.test.as_mut().map(|test| test.finished(now, released.started));
        let samples = match &self.test {
            Some(test) => &test.cohort,
            None => &self.window.samples,
        };
        let known = samples.of(group);
        let normal = self.baselines.baseline(group);
        let usual = if known.count > 0 { Some(known.mean()) } else { normal };
        let bearable = self.config.latency_target.map(as_nanos).or(normal);
        let reading = match released.outcome {
            Outcome::Success => Reading::Sample,
            Outcome::Overload if usual.is_some_and(|usual| elapsed > usual) => {
                Reading::SlowOverload
            }
            Outcome::Overload => Reading::Overload,
            // Right-censored: it would have taken at least so long.
            Outcome::Ignored => match (usual, bearable) {
                (Some(_), Some(bearable)) if elapsed >= TOLERANCE * bearable => {
                    Reading::SlowOverload
                }
                (Some(usual), _) if elapsed >= usual => Reading::Sample,
                _ => Reading::Nothing,
            },
        };
        let (sample, is_overload) = match reading {
            Reading::Nothing => (None, false),
            Reading::Sample => (Some(elapsed), false),
            Reading::Overload => (None, true),
            Reading::SlowOverload => (Some(elapsed), true),
        };
        if let Some(nanos) = sample {
            let is_light = released.in_flight as f64 <= self.limit / 2.0;
            self.baselines.study(place, nanos, is_light);
        }
        if let Some(test) = &mut self.test {
            if is_member == Some(true) {
                test.add(group, sample, is_overload);
            }
            self.judge(now);
        } else if sample.is_some() || is_overload {
            self.window.add(now, group, sample, is_overload);
            if self.window.is_whole(now) {
                self.decide(now);
                self.window.clear(Some(now));
            }
        }
    }

    /// Changes the range, which the limit moves into, and the target.
    ///
    /// # Errors
    /// If one is out of its range.
    pub(super) fn update(
        &mut self,
        min_limit: f64,
        max_limit: f64,
        latency_target: Option<Duration>,
    ) -> Result<(), ConfigError> {
        let config = GradientConfig { min_limit, max_limit, latency_target, ..self.config };
        config.check_range()?;
        self.config = config;
        let limit = match self.test.take() {
            Some(test) => test.before,
            None => self.limit,
        };
        self.move_to(limit, Cause::Range);
        Ok(())
    }

    /// Nothing is in flight any more, and nobody of those who were will be released. What was
    /// learned is kept.
    pub(super) fn restart(&mut self) {
        if let Some(test) = self.test.take() {
            self.move_to(test.before, Cause::NoShift);
        }
        self.window.clear(None);
    }

    /// At the end of a window.
    #[cold]
    fn decide(&mut self, now: Time) {
        self.baselines.establish();
        let slowdown = self.window.samples.slowdown(&self.baselines);
        self.see(slowdown);
        let is_reached = self.window.met_no_room || self.window.peak as f64 >= 0.9 * self.limit;
        let is_alone = self.window.peak <= 1;
        let is_light = !self.window.met_no_room && (self.window.peak as f64) < self.limit / 2.0;
        let share = self.window.overload_share();
        let had_overload = self.window.overloads > 0;
        self.baselines.learn(&self.window.samples, (is_light || is_alone) && !had_overload);

        let gradient = self.gradient(slowdown, share);
        let tolerates = self.because.significance <= 0.0;
        if is_light && !had_overload {
            self.hold(Cause::Light);
        } else if gradient < 1.0 && (is_reached || share >= OVERLOAD_SHARE) {
            self.cut(now, gradient, share);
        } else if tolerates {
            self.cuts = 0;
            let cause = self.what_is_seen();
            // A tiny limit would jump, and a large one would creep.
            let step = (self.limit.sqrt() / 2.0).max(self.limit.min(1.0));
            let step = step.max(GROWTH * self.limit * self.headroom(slowdown) * self.window.round_trips(now));
            let aim = if is_reached || !is_light { self.limit + step } else { self.limit };
            self.move_to(aim, cause);
        } else {
            self.hold(self.what_is_seen());
        }
    }

    /// How far latency is certainly below what is tolerated, from 0 to 1.
    fn headroom(&self, slowdown: Option<Slowdown>) -> f64 {
        let Some(slowdown) = slowdown else { return 0.0 };
        let share = match self.config.latency_target {
            Some(target) => {
                let sums = self.window.samples.all();
                1.0 - (sums.mean() + SIGNIFICANT * sums.standard_error()) / as_nanos(target)
            }
            None => {
                let most = slowdown.ratio + SIGNIFICANT * slowdown.error;
                (TOLERANCE - most) / (TOLERANCE - 1.0)
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// What latency and overload say against the limit, from 0.5 to 1, which is nothing.
    fn gradient(&self, slowdown: Option<Slowdown>, share: f64) -> f64 {
        let by_latency = match (self.config.latency_target, slowdown) {
            (Some(target), _) => {
                let sums = self.window.samples.all();
                let certain = sums.mean() - SIGNIFICANT * sums.standard_error();
                as_nanos(target) / certain.max(1.0)
            }
            (None, Some(slowdown)) => {
                let certain = slowdown.ratio - SIGNIFICANT * slowdown.error;
                TOLERANCE / certain.max(f64::MIN_POSITIVE)
            }
            (None, None) => 1.0,
        };
        let by_overload = match share {
            _ if share >= MOSTLY_OVERLOAD_SHARE => LEAST_GRADIENT,
            _ if share >= OVERLOAD_SHARE => OVERLOAD_GRADIENT,
            _ => 1.0,
        };
        by_latency.clamp(LEAST_GRADIENT, 1.0).min(by_overload)
    }

    /// At most once in a mean latency: what was cut shows in those who are admitted afterwards.
    fn cut(&mut self, now: Time, gradient: f64, share: f64) {
        if self.cuts == 0 {
            self.before_cuts = self.limit;
            self.slow = (0.0, 0.0);
        }
        let count = self.window.samples.all().count as f64;
        let expected = self.because.baseline.map_or(0.0, as_nanos) * count;
        self.slow.0 += self.because.slowdown * expected;
        self.slow.1 += expected;
        let is_early =
            self.last_cut.is_some_and(|at| (now.since(at).as_nanos() as f64) < self.latency);
        if is_early {
            self.hold(Cause::Early);
            return;
        }
        self.cuts = self.cuts.saturating_add(1);
        let is_overload = share >= OVERLOAD_SHARE;
        let may_test = self.config.latency_target.is_none() && !is_overload;
        if may_test && self.cuts >= CUTS && now >= self.next_test {
            let least = self.config.min_limit;
            let slowdown = self.slow.0 / self.slow.1.max(1.0);
            let test = ShiftTest::begin(now, self.limit, least, slowdown, self.latency);
            if let Some(test) = test {
                let trial = test.trial;
                self.test = Some(Box::new(test));
                self.move_to(trial, Cause::Test);
                return;
            }
        }
        self.last_cut = Some(now);
        self.slow = (self.slow.0 / 2.0, self.slow.1 / 2.0);
        let cause = if is_overload { Cause::Overload } else { self.what_is_seen() };
        self.move_to(self.limit * (1.0 - SMOOTHING + SMOOTHING * gradient), cause);
    }

    /// Ends a test, if it is over.
    fn judge(&mut self, now: Time) {
        let verdict = self.test.as_ref().and_then(|test| test.verdict(now, &self.baselines));
        let Some(verdict) = verdict else {
            return;
        };
        let Some(test) = self.test.take() else {
            return;
        };
        let (aim, cause) = match verdict {
            Verdict::Shift(slowdown) => {
                self.baselines.become_as(&test.cohort, FEWEST_OF_SHIFT);
                self.latency = test.cohort.all().mean();
                self.see(Some(slowdown));
                self.because.recent = Some(nanos(self.latency));
                self.doublings = 0;
                (self.before_cuts, Cause::Shift)
            }
            Verdict::Overload { slowdown, was_idle } => {
                let certain = slowdown.ratio + SIGNIFICANT * slowdown.error;
                if certain < 1.0 && test.is_complete() {
                    self.baselines.scale(&test.cohort, 0.5 + 0.5 * slowdown.ratio);
                }
                self.pause(now);
                let less = (AFTER_TEST * test.before).max(test.trial);
                (if was_idle { test.before } else { less }, Cause::NoShift)
            }
            Verdict::Open => {
                self.pause(now);
                (test.before, Cause::NoShift)
            }
        };
        self.cuts = 0;
        self.last_cut = Some(now);
        self.window.clear(Some(now));
        let trial = self.limit;
        self.limit = test.before;
        self.move_to(aim, cause);
        if cause == Cause::Shift {
            self.because.change = Change::between(trial, self.limit);
        }
    }

    /// No test for a while, and for longer each time.
    fn pause(&mut self, now: Time) {
        let least = PAUSE.max(PAUSE_IN_LATENCIES * self.latency);
        let longest = least * 2_f64.powi(MOST_DOUBLINGS);
        if now.since(self.next_test).as_nanos() as f64 > longest {
            // The last one was long ago.
            self.doublings = 0;
        }
        self.next_test = now.after(nanos(least * 2_f64.powi(self.doublings)));
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Notes what the window says.
    fn see(&mut self, slowdown: Option<Slowdown>) {
        let sums = self.window.samples.all();
        if sums.count > 0 {
            self.latency = sums.mean();
            self.because.recent = Some(nanos(self.latency));
        }
        let Some(slowdown) = slowdown else {
            (self.because.slowdown, self.because.significance) = (1.0, 0.0);
            return;
        };
        self.because.baseline = Some(nanos(slowdown.expected));
        self.because.slowdown = slowdown.ratio;
        let (excess, error) = match self.config.latency_target {
            None => (slowdown.ratio - TOLERANCE, slowdown.error),
            Some(target) => (sums.mean() - as_nanos(target), sums.standard_error()),
        };
        let errors = if excess == 0.0 { 0.0 } else { excess / error };
        self.because.significance = errors.clamp(-MOST_SIGNIFICANCE, MOST_SIGNIFICANCE);
    }

    fn what_is_seen(&self) -> Cause {
        if self.config.latency_target.is_some() { Cause::Target } else { Cause::Latency }
    }

    fn hold(&mut self, cause: Cause) {
        (self.because.cause, self.because.change) = (cause, Change::Held);
    }

    fn move_to(&mut self, aim: f64, cause: Cause) {
        let limit = aim.clamp(self.config.min_limit, self.cap());
        self.because.cause = cause;
        self.because.change = Change::between(self.limit, limit);
        self.limit = limit;
    }

    /// Never below the least.
    fn cap(&self) -> f64 {
        let by_peak = CAP * self.peak.highest() as f64;
        let most = self.config.initial.max(by_peak).min(self.config.max_limit);
        most.max(self.config.min_limit)
    }
}

fn as_nanos(span: Duration) -> f64 {
    span.as_nanos() as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}
