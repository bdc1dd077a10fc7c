use std::time::Duration;

use super::baseline::Baselines;
use super::cuts::Cuts;
use super::decision::TOLERANCE;
use super::peak::Peak;
use super::shift::ShiftTest;
use super::window::Window;
use super::{Because, Cause, Change, GradientConfig};
use crate::primitives::{ConfigError, Outcome, Time};

/// The limit is at most so many times the peak in flight.
const CAP: f64 = 4.0;
/// For how long a peak counts, and for how many mean latencies.
const PEAK: f64 = 60e9;
const PEAK_IN_LATENCIES: f64 = 20.0;
/// Callers give so many times as long as work takes without a queue, or more.
const GIVEN: f64 = 4.0;
/// A sample counts as at most so long, in nanoseconds: clocks may jump.
const LONGEST: f64 = 4_000e9;

/// The limit, by what is admitted, rejected and released.
///
/// Here is what comes in; what is made of it, a window at a time, is in `decision`.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    pub(super) config: GradientConfig,
    pub(super) limit: f64,
    pub(super) window: Window,
    pub(super) baselines: Baselines,
    pub(super) peak: Peak,
    pub(super) test: Option<Box<ShiftTest>>,
    pub(super) cuts: Cuts,
    /// What was seen while it was slow without a cut.
    pub(super) strain: Cuts,
    /// Whoever ends earlier was admitted under another limit, and says nothing about this one.
    pub(super) resume: Time,
    pub(super) next_test: Time,
    /// How often the pause after a test was doubled.
    pub(super) doublings: i32,
    /// In how many windows in a row the limit was not reached.
    pub(super) unreached: u32,
    /// How far latency was below what is tolerated, in the last window.
    pub(super) headroom: f64,
    /// The mean latency of the last window, in nanoseconds.
    pub(super) latency: f64,
    pub(super) because: Because,
    /// Whether whoever meets no room waits in a line before it.
    pub(super) has_line: bool,
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
            cuts: Cuts::default(),
            strain: Cuts::default(),
            resume: Time::ZERO,
            next_test: Time::ZERO,
            doublings: 0,
            unreached: 0,
            headroom: 0.0,
            latency: 0.0,
            because: Because::initial(config.initial),
            has_line: false,
        })
    }

    /// Begins as that of a gate, which has a line: see
    /// [`GradientLimiter::of_gate`](super::GradientLimiter::of_gate).
    pub(super) fn begin_of_gate(&mut self) {
        self.has_line = true;
        self.baselines.look_for_slots();
    }

    /// Callers give so much time.
    pub(super) fn note_given(&mut self, given: Duration) {
        self.baselines.bound_young(as_nanos(given) / GIVEN);
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

    /// Forgets what was in flight long ago; that may lower the limit. And if nobody has come for
    /// as long, and nobody `is_there`, it is the initial one at least: whatever it was cut for is
    /// long ago.
    #[cold]
    pub(super) fn settle(&mut self, now: Time, in_flight: u64, is_there: bool) {
        let span = nanos(PEAK.max(PEAK_IN_LATENCIES * self.latency));
        let is_idle = self.peak.advance(now, span, in_flight) && !is_there;
        let initial = self.config.initial.min(self.config.max_limit);
        if is_idle && (self.limit < initial || self.test.is_some()) {
            let before = self.test.take().map_or(self.limit, |test| test.limit);
            (self.cuts, self.strain) = (Cuts::default(), Cuts::default());
            self.window.clear(None);
            self.move_to(before.max(initial), Cause::Idle);
        } else if self.limit > self.cap() {
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
        if now >= self.resume {
            self.window.completions += 1;
        }
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
            self.baselines.study(now, place, nanos, released.in_flight, is_light);
        }
        if let Some(test) = &mut self.test {
            if is_member == Some(true) {
                test.add(group, sample, is_overload);
            }
            self.judge(now);
        } else if now >= self.resume && (sample.is_some() || is_overload) {
            let target = self.config.latency_target.map_or(f64::INFINITY, as_nanos);
            self.window.slower += u64::from(sample.is_some_and(|nanos| nanos > target));
            self.window.add(now, group, sample, is_overload);
            if self.window.is_whole(now) {
                self.decide(now);
                self.window.clear(Some(now.max(self.resume)));
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
            Some(test) => test.limit,
            None => self.limit,
        };
        self.move_to(limit, Cause::Range);
        Ok(())
    }

    /// Nothing is in flight any more, and nobody of those who were will be released. What was
    /// learned is kept.
    pub(super) fn restart(&mut self) {
        if let Some(test) = self.test.take() {
            self.move_to(test.limit, Cause::NoShift);
        }
        self.window.clear(None);
    }

    pub(super) fn hold(&mut self, cause: Cause) {
        (self.because.cause, self.because.change) = (cause, Change::Held);
    }

    pub(super) fn move_to(&mut self, aim: f64, cause: Cause) {
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

pub(super) fn as_nanos(span: Duration) -> f64 {
    span.as_nanos() as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
pub(super) fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}
