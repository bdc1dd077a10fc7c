use super::cuts::{Cuts, Seen};
use super::estimate::{Estimate, as_nanos, nanos};
use super::shift::{ShiftTest, Slow, Verdict};
use super::window::Slowdown;
use super::{Cause, Change};
use crate::primitives::Time;

/// So many times the baseline are no reason to cut.
pub(super) const TOLERANCE: f64 = 2.0;
/// The share of what may take longer than the target, if there is one: it is for the 95 % quantile.
const SLOWER: f64 = 0.05;
/// So many times the baseline is no queue to speak of.
const QUEUELESS: f64 = 1.25;
/// How many standard errors are significant.
const SIGNIFICANT: f64 = 2.0;
/// The most that one window can say against the limit.
const LEAST_GRADIENT: f64 = 0.5;
/// What overload downstream says, from one in 20 on, and from one in two on.
const OVERLOAD_GRADIENT: f64 = 0.9;
const OVERLOAD_SHARE: f64 = 0.05;
const MOSTLY_OVERLOAD_SHARE: f64 = 0.5;
/// How much of what is said is done at once.
const SMOOTHING: f64 = 0.5;
/// By how much a limit grows in a mean latency when latency is as without load.
const GROWTH: f64 = 1.0;
/// A limit grows fast up to this share of the way to what is tolerated, from 1 on.
const NEAR: f64 = 4.0 / 3.0;
/// Cuts are taken back when the limit was not reached in so many windows since.
const LONG_UNREACHED: u32 = 8;
/// The share of the way to a higher mean that a baseline goes in a window without load to speak of.
const RISE: f64 = 0.05;
/// As many cuts in a row call for a shift test.
const CUTS: u32 = 3;
/// So do so many windows in which it is slow without a cut.
const LONG_SLOW: u32 = 30;
/// The baseline is at most so much of the latency of a test in which as much was done as before.
const QUEUED: f64 = 0.9;
/// What is left of the limit after a test found overload.
const AFTER_TEST: f64 = 0.75;
/// The pause after a test, in nanoseconds and in mean latencies; it doubles so many times.
const PAUSE: f64 = 2e9;
const PAUSE_IN_LATENCIES: f64 = 4.0;
const MOST_DOUBLINGS: i32 = 5;
/// Fewer samples of an operation do not shift its baseline.
const FEWEST_OF_SHIFT: u64 = 3;
const MOST_SIGNIFICANCE: f64 = 1_000.0;

/// What is made of a window.
///
/// It is compared with what was expected of just these operations. The limit is cut if that is
/// significantly more than twice as much, or if there was overload downstream, and grows if at
/// least half of it is in use and latency is well. After three cuts in a row a [`ShiftTest`] tells
/// whether the service is overloaded or has become slower.
impl Estimate {
    /// At the end of a window.
    #[cold]
    pub(super) fn decide(&mut self, now: Time) {
        self.baselines.establish(now);
        let slowdown = self.window.samples.slowdown(&self.baselines);
        self.see(slowdown);
        let is_reached = self.window.met_no_room || self.window.peak as f64 >= 0.9 * self.limit;
        let is_alone = self.window.peak <= 1;
        let is_light = !self.window.met_no_room && (self.window.peak as f64) < self.limit / 2.0;
        let share = self.window.overload_share();
        let had_overload = self.window.overloads > 0;
        self.unreached = if is_reached { 0 } else { self.unreached.saturating_add(1) };
        let rise = if !had_overload && (is_light || is_alone) { RISE } else { 0.0 };
        self.baselines.learn(&self.window.samples, rise);

        let gradient = self.gradient(slowdown, share);
        let headroom = self.headroom(slowdown);
        let tolerates = self.tolerates(slowdown);
        if tolerates {
            self.strain = Cuts::default();
        }
        let is_young = self.baselines.is_young();
        let slots = self.baselines.slots().filter(|_| is_young);
        let most = slots.map_or(f64::INFINITY, |slots| TOLERANCE * slots.count as f64);
        if self.limit > most {
            // It began too high, and what is queued takes as long to go as it took to come.
            self.resume = now.after(nanos(self.latency));
            self.move_to(most, self.what_is_seen());
        } else if is_light && !had_overload {
            self.hold(Cause::Light);
        } else if gradient < 1.0 && (is_reached || share >= OVERLOAD_SHARE) {
            self.cut(now, gradient, share);
        } else if self.unreached >= LONG_UNREACHED && self.cuts.count() > 0 {
            // It was a burst: nobody was held back since.
            let before = self.cuts.before().unwrap_or(self.limit);
            self.cuts = Cuts::default();
            self.move_to(self.limit.max(before), Cause::Burst);
        } else if gradient < 1.0 {
            self.endure(now);
        } else if tolerates {
            self.cuts = Cuts::default();
            let cause = self.what_is_seen();
            // A tiny limit would jump, and a large one would creep.
            let step = (self.limit.sqrt() / 2.0).max(self.limit.min(1.0)) * self.caution();
            // One window may be lucky.
            let room = self.headroom.min(headroom);
            let round_trips = self.window.round_trips(now);
            // Where there is a line more is of use only to those who are in it; up to a target
            // it does no harm.
            let is_for_line = self.has_line && self.config.latency_target.is_none();
            let growth = if is_light || is_for_line && !self.window.met_no_room {
                0.0
            } else if is_young && (slots.is_some() || !self.baselines.looks_for_slots()) {
                // What is queued would be taken for the baseline.
                step * round_trips
            } else {
                step.max(GROWTH * self.limit * room * round_trips)
            };
            self.move_to(self.limit + growth, cause);
        } else {
            self.hold(self.what_is_seen());
        }
        self.headroom = headroom;
    }

    /// Whether the limit may grow. A target is not to be passed, what is tolerated may be by chance;
    /// and a target that is not reached without a queue either is not to be had by a limit.
    fn tolerates(&self, slowdown: Option<Slowdown>) -> bool {
        let significance = self.because.significance;
        if self.config.latency_target.is_none() {
            return significance <= 0.0;
        }
        let is_queueless = slowdown.is_none_or(|it| it.ratio + it.error < QUEUELESS);
        significance <= -1.0 || is_queueless
    }

    /// What is done of a step: less than 1, down to a quarter, if latency is close to what is
    /// tolerated, so that the limit does not swing.
    fn caution(&self) -> f64 {
        let share = match self.config.latency_target {
            Some(_) => self.window.slower_share() / SLOWER,
            None => self.because.slowdown / TOLERANCE,
        };
        ((1.0 - share) * 4.0).clamp(0.25, 1.0)
    }

    /// How far latency is below what is tolerated, from 0 to 1, by one standard error at least.
    fn headroom(&self, slowdown: Option<Slowdown>) -> f64 {
        let Some(slowdown) = slowdown else { return 0.0 };
        // 1 at the baseline, 0 before what is tolerated.
        let share = if let Some(target) = self.config.latency_target {
            // Of a normal distribution, which is near enough here.
            let sums = self.window.samples.all();
            1.0 - NEAR * (sums.mean() + 1.645 * sums.deviation()) / as_nanos(target)
        } else {
            let most = slowdown.ratio + slowdown.error;
            1.0 - NEAR * (most - 1.0) / (TOLERANCE - 1.0)
        };
        share.clamp(0.0, 1.0)
    }

    /// What latency and overload say against the limit, from 0.5 to 1, which is nothing.
    fn gradient(&self, slowdown: Option<Slowdown>, share: f64) -> f64 {
        let by_latency = match (self.config.latency_target, slowdown) {
            (Some(_), Some(slowdown)) if self.because.significance >= SIGNIFICANT => {
                let is_queued = slowdown.ratio - slowdown.error > QUEUELESS;
                if is_queued { 1.0 - (self.window.slower_share() - SLOWER) } else { 1.0 }
            }
            (None, Some(slowdown)) => {
                let certain = slowdown.ratio - SIGNIFICANT * slowdown.error;
                TOLERANCE / certain.max(f64::MIN_POSITIVE)
            }
            _ => 1.0,
        };
        let by_overload = match share {
            _ if share >= MOSTLY_OVERLOAD_SHARE => LEAST_GRADIENT,
            _ if share >= OVERLOAD_SHARE => OVERLOAD_GRADIENT,
            _ => 1.0,
        };
        by_latency.clamp(LEAST_GRADIENT, 1.0).min(by_overload)
    }

    /// Cuts, or begins a test if it was cut in vain too often. What a cut does shows in those who
    /// are admitted afterwards: until they end, a mean latency later, nothing is looked at.
    fn cut(&mut self, now: Time, gradient: f64, share: f64) {
        let is_steady = self.cuts.add(self.limit, &self.seen(now));
        let is_overload = share >= OVERLOAD_SHARE;
        if is_steady && !is_overload && self.cuts.count() >= CUTS {
            self.begin_test(now, self.limit, self.cuts.slow());
        }
        if self.test.is_none() {
            self.resume = now.after(nanos(self.latency));
            let cause = if is_overload { Cause::Overload } else { self.what_is_seen() };
            self.move_to(self.limit * (1.0 - SMOOTHING + SMOOTHING * gradient), cause);
        }
    }

    /// It is slow, and nobody is held back: there is nothing to cut. If that lasts, a test tells
    /// whether it is to be got used to.
    fn endure(&mut self, now: Time) {
        let is_steady = self.strain.add(self.limit, &self.seen(now));
        self.hold(self.what_is_seen());
        if is_steady && self.strain.count() >= LONG_SLOW {
            self.begin_test(now, self.window.peak as f64, self.strain.slow());
        }
    }

    fn seen(&self, now: Time) -> Seen {
        let count = self.window.samples.all().count as f64;
        Seen {
            slowdown: self.because.slowdown,
            expected: self.because.baseline.map_or(0.0, as_nanos) * count,
            completions: self.window.completions as f64,
            span: self.window.span(now),
        }
    }

    /// Begins to admit half of `in_use`, if it is time for a test and that is enough for one.
    fn begin_test(&mut self, now: Time, in_use: f64, slow: Slow) {
        if now < self.next_test {
            return;
        }
        let least = self.config.min_limit;
        let test = ShiftTest::begin(now, self.limit, in_use, least, slow, self.latency);
        if let Some(test) = test {
            let trial = test.trial;
            self.test = Some(Box::new(test));
            self.move_to(trial, Cause::Test);
        }
    }

    /// Ends a test, if it is over.
    pub(super) fn judge(&mut self, now: Time) {
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
                (self.cuts.before().unwrap_or(test.limit), Cause::Shift)
            }
            Verdict::Overload { slowdown, is_saturated } => {
                // What is still queued then cannot be the baseline.
                let most = slowdown.ratio + SIGNIFICANT * slowdown.error;
                let most = if is_saturated { QUEUED * most } else { most };
                if most < 1.0 {
                    self.baselines.scale(&test.cohort, most);
                }
                self.pause(now);
                ((AFTER_TEST * test.before).max(test.trial), Cause::NoShift)
            }
            Verdict::Open => {
                self.pause(now);
                (test.limit, Cause::NoShift)
            }
        };
        (self.cuts, self.strain) = (Cuts::default(), Cuts::default());
        self.resume = now.after(nanos(self.latency));
        self.window.clear(Some(self.resume));
        let trial = self.limit;
        self.limit = test.limit;
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
        let (excess, error) = if self.config.latency_target.is_some() {
            let error = (SLOWER * (1.0 - SLOWER) / sums.count.max(1) as f64).sqrt();
            (self.window.slower_share() - SLOWER, error)
        } else {
            (slowdown.ratio - TOLERANCE, slowdown.error)
        };
        let errors = if excess == 0.0 { 0.0 } else { excess / error };
        self.because.significance = errors.clamp(-MOST_SIGNIFICANCE, MOST_SIGNIFICANCE);
    }

    fn what_is_seen(&self) -> Cause {
        if self.config.latency_target.is_some() { Cause::Target } else { Cause::Latency }
    }
}
