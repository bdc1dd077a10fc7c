use std::time::Duration;

use super::{Criticality, Priority, Time};

/// How many decisions are remembered.
const DECISIONS: usize = 1_000;
/// For how long a decision is remembered.
const SPAN: Duration = Duration::from_secs(2);
/// How often there is something to evaluate.
const INTERVAL: Duration = Duration::from_millis(100);
/// What has passed since the last evaluation counts as at most so long.
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// After as long without an evaluation nothing is known any more.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The highest share that is rejected.
const MAX_RATE: f64 = 0.95;
/// What the depth is for an error, and what it gains a second for it.
const PROPORTIONAL: f64 = 0.3;
const INTEGRAL: f64 = 1.5;
/// A larger error gains no more: a queue grows for as long as the overload lasts.
const MAX_GAIN: f64 = 1.0;
/// A larger error counts as this one.
const MAX_ERROR: f64 = 3.0;
/// The most that the rate rises, in a second and in one evaluation.
const RISE: f64 = 1.0;
const MAX_RISE: f64 = 0.25;
/// Below this pressure the overload is over.
const CALM: f64 = 0.8;
/// And if that lasts for longer than so many seconds, the depth falls faster and faster:
/// by so much more a second in each second.
const PATIENCE: f64 = 0.5;
const RELEASE: f64 = 6.0;

/// A priority below which work is rejected; it moves so that pressure stays at its
/// target.
///
/// *Pressure* is 1 at its target and above 1 beyond. [`update`](Self::update) sets the
/// *rate*, the share of the decisions that is to be rejected, and looks up below which
/// priority that share of the recent decisions was: those of the last 2 s, at most 1,000.
/// That is the threshold. Since positions are all but unique, shedding at the criticality
/// of the threshold is partial, and it is the same callers who are rejected for as long
/// as the rate stays. Where many decisions have the very same priority, because one
/// caller has a large share of them, and it is the one of the threshold, so many of them
/// are rejected, evenly spaced, that the rate comes out: one caller who is the whole load
/// is neither rejected nor admitted wholly.
///
/// The rate follows a proportional-integral controller of the error `pressure − 1`, as in
/// Uber's Cinnamon, with three differences:
///
/// - **It moves the logarithm of the share that is admitted.** Pressure is about
///   proportional to what is admitted, so that each step changes pressure in proportion,
///   whether the load is 1.2 or 5 times what can be done. The *depth* is −ln(1 − rate): it
///   gains 1.5 a second for an error of 1 or more, and 0.3 with the error, which counts as
///   at most 3. It stays between 0 and what rejects 95 %, so that it does not wind up.
/// - **It rises gradually**: the rate by at most 0.1 in 100 ms.
/// - **It comes back quickly**: once pressure is below 0.8 for half a second, the depth
///   falls faster and faster, so that the rate is 0 after 0.5 to 1.5 s, the sooner the
///   less it was. Pressure that comes back on the way ends that at once.
///
/// Evaluate it when a decision is to be made and it [is due](Self::is_due), so that it
/// needs no timer. What is rejected for its deadline must not raise pressure: it would
/// have been in vain without any load.
///
/// `now` may stand still or jump back: the latest moment seen counts.
#[derive(Clone, Debug, Default)]
pub struct Threshold {
    now: Time,
    /// What is below it is rejected.
    least: Priority,
    ties: Ties,
    depth: f64,
    evaluated: Option<Evaluation>,
    /// A ring once it is full.
    history: Vec<(Time, Priority)>,
    next: usize,
    /// What the quantile is taken of; kept for its memory.
    recent: Vec<Priority>,
}

#[derive(Clone, Copy, Debug)]
struct Evaluation {
    at: Time,
    error: f64,
    /// For how long pressure has been low.
    calm: Duration,
}

impl Threshold {
    /// One that admits everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether work of this priority is admitted; it counts as a decision either way.
    #[inline]
    pub fn admits(&mut self, now: Time, priority: Priority) -> bool {
        self.now = self.now.max(now);
        self.remember(priority);
        priority > self.least || (priority == self.least && self.ties.admit_one())
    }

    /// Takes the last decision back, which was to admit work of this priority: it is asked
    /// for again, and counts once.
    pub(crate) fn retract(&mut self, priority: Priority) {
        if priority == self.least {
            self.ties.due -= self.ties.share;
        }
        self.next = self.next.checked_sub(1).unwrap_or(DECISIONS - 1);
    }

    /// Whether it is time to measure the pressure and to [`update`](Self::update): 100 ms
    /// have passed since that was done.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.evaluated.is_none_or(|last| now.max(self.now).since(last.at) >= INTERVAL)
    }

    /// Takes the pressure into account, and moves the threshold.
    ///
    /// Not-a-number says nothing: everything stays as it is until it is due again. What is
    /// negative counts as 0, infinity as 4.
    pub fn update(&mut self, now: Time, pressure: f64) {
        self.now = self.now.max(now);
        let now = self.now;
        let last = self.evaluated.filter(|last| now.since(last.at) < FORGOTTEN);
        if last.is_none() {
            self.depth = 0.0;
        }
        let old = last.unwrap_or(Evaluation { at: now, error: 0.0, calm: Duration::ZERO });
        if pressure.is_nan() {
            self.evaluated = Some(Evaluation { at: now, ..old });
            return;
        }
        let step = now.since(old.at).min(LONGEST_STEP);
        let error = (pressure - 1.0).clamp(-1.0, MAX_ERROR);
        let calm = if pressure < CALM { old.calm.saturating_add(step) } else { Duration::ZERO };
        self.depth = self.controlled(step.as_secs_f64(), old.error, error, calm.as_secs_f64());
        self.evaluated = Some(Evaluation { at: now, error, calm });
        self.look_up();
    }

    /// The share of the decisions that is to be rejected, from 0 to 0.95.
    #[must_use]
    pub fn rate(&self) -> f64 {
        -(-self.depth).exp_m1()
    }

    /// What is below this priority is rejected.
    #[must_use]
    pub const fn threshold(&self) -> Priority {
        self.least
    }

    /// The lowest criticality that is admitted at least in part.
    #[must_use]
    pub const fn level(&self) -> Criticality {
        self.least.criticality()
    }

    /// Forgets everything, as a forked process does.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    #[inline]
    fn remember(&mut self, priority: Priority) {
        let decision = (self.now, priority);
        if let Some(oldest) = self.history.get_mut(self.next) {
            *oldest = decision;
        } else {
            self.history.push(decision);
        }
        self.next = if self.next + 1 == DECISIONS { 0 } else { self.next + 1 };
    }

    /// The depth after a step of so many seconds.
    fn controlled(&self, step: f64, old_error: f64, error: f64, calm: f64) -> f64 {
        // What is short of the target is no reason to reject, however fast it grows.
        let proportional = PROPORTIONAL * (error.max(0.0) - old_error.max(0.0));
        // Exact for a pressure that follows at once, so that a long step does not overshoot.
        let integral = -(-INTEGRAL * step).exp_m1() * error.min(MAX_GAIN);
        let release = RELEASE * (calm - PATIENCE).max(0.0) * step;
        let depth = self.depth + proportional + integral - release;

        let rise = (RISE * step).min(MAX_RISE);
        let highest = -(-(self.rate() + rise).min(MAX_RATE)).ln_1p();
        depth.clamp(0.0, highest)
    }

    /// Finds the priority below which the rate lies.
    fn look_up(&mut self) {
        if self.depth == 0.0 {
            self.least = Priority::LOWEST;
            self.ties = Ties::default();
            return;
        }
        let since = self.now.before(SPAN);
        self.recent.clear();
        self.recent.extend(
            self.history.iter().filter(|(at, _)| *at >= since).map(|(_, priority)| *priority),
        );
        if !self.recent.is_empty() {
            let rate = self.rate();
            let share;
            (self.least, share) = quantile(&mut self.recent, rate);
            self.ties.set(share);
        }
    }
}

/// The priority below which `rate` of such priorities lie, and the share of those that are
/// equal to it that has to be added. `priorities` are not empty, and are put into another
/// order.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative
fn quantile(priorities: &mut [Priority], rate: f64) -> (Priority, f64) {
    let count = priorities.len();
    // Where the rate lies among those that are there, each of which takes up one part of
    // count + 1: without bias, however few they are.
    let place = rate * (count + 1) as f64;
    let below = (place as usize).min(count);
    let (lower, upper) = if below == count {
        (priorities.iter().copied().max(), None)
    } else {
        let (lower, upper, _) = priorities.select_nth_unstable(below);
        (lower.iter().copied().max(), Some(*upper))
    };
    match (lower, upper) {
        (Some(lower), Some(upper)) if lower == upper => {
            let less = priorities.iter().filter(|priority| **priority < lower).count();
            let equal = priorities.iter().filter(|priority| **priority == lower).count();
            (lower, ((place - less as f64) / equal as f64).clamp(0.0, 1.0))
        }
        (lower, upper) => {
            let lower = lower.map(Priority::next);
            let lowest = lower.or(upper.map(Priority::lowest_of_class)).unwrap_or_default();
            let highest = upper.or(lower.map(Priority::highest_of_class)).unwrap_or_default();
            (lowest.towards(highest, place - below as f64), 0.0)
        }
    }
}

/// Rejects a share of what comes, evenly spaced.
#[derive(Clone, Copy, Debug, Default)]
struct Ties {
    share: f64,
    /// How much of a rejection has come together.
    due: f64,
}

impl Ties {
    fn set(&mut self, share: f64) {
        self.share = share;
    }

    fn admit_one(&mut self) -> bool {
        self.due += self.share;
        let is_admitted = self.due < 1.0;
        if !is_admitted {
            self.due -= 1.0;
        }
        is_admitted
    }
}
