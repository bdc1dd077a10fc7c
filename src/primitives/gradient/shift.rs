use super::baseline::{Baselines, Group};
use super::window::{Samples, Slowdown};
use crate::primitives::Time;

/// The limit during a test, as a share of that before.
const TRIAL: f64 = 0.5;
/// For how long members are admitted, and at least how many, and for how long at most; in mean
/// latencies before the test.
const ADMISSION: f64 = 3.0;
const MEMBERS: u64 = 30;
const LONGEST_ADMISSION: f64 = 15.0;
/// Until the standard error of their mean latency is this share of it.
const CERTAIN: f64 = 0.1;
/// What is not so many times the baseline needs no other one.
const SLOW: f64 = 1.5;
/// So much of the throughput before is as much as before.
const AS_MUCH: f64 = 0.95;
/// How long is waited for the last of them, in mean latencies.
const PATIENCE: f64 = 6.0;
/// It is given up with fewer members than these after so long, in nanoseconds, and in mean
/// latencies.
const FEWEST: u64 = 5;
const GIVE_UP: f64 = 5e9;
const GIVE_UP_IN_LATENCIES: f64 = 5.0;

/// An experiment: whether latency depends on how much is in flight.
///
/// At half of the limit what was overloaded does as much as before, and each of it twice as fast,
/// since the queue is half as long; a service that has become slower is as slow as before, and
/// does half as much. What is judged is a fixed cohort, all who are admitted within the first 3
/// mean latencies, or as long as it takes for 30 of them and a mean that is certain: whoever
/// judges those who have finished by some moment sees the short ones first. Those who have not
/// after a further 6 count as at least that long.
#[derive(Clone, Debug)]
pub(super) struct ShiftTest {
    began: Time,
    /// The limit as it was when it began.
    pub(super) limit: f64,
    /// What was in use of it then.
    pub(super) before: f64,
    /// The limit during the test.
    pub(super) trial: f64,
    /// How it was.
    slow: Slow,
    /// The mean latency before, in nanoseconds.
    latency: f64,
    /// Who has finished.
    pub(super) cohort: Samples,
    members: u64,
    unfinished: u64,
    /// The starts of those, in nanoseconds since it began, summed up.
    starts: f64,
    first_start: Option<Time>,
    last_start: Time,
    /// Who starts from here on is no member.
    end: Option<Time>,
    overloads: u64,
}

/// How slow it was at the limit before, and how much was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    /// What samples took, and what was expected of them, in nanoseconds.
    pub(super) took: f64,
    pub(super) expected: f64,
    /// How many ended, and in how many nanoseconds.
    pub(super) completions: f64,
    pub(super) span: f64,
}

impl Slow {
    pub(super) fn forget_half(&mut self) {
        for part in [&mut self.took, &mut self.expected, &mut self.completions, &mut self.span] {
            *part /= 2.0;
        }
    }

    pub(super) fn slowdown(&self) -> f64 {
        (self.took / self.expected.max(1.0)).max(f64::MIN_POSITIVE)
    }

    fn throughput(&self) -> f64 {
        (self.completions / self.span.max(1.0)).max(f64::MIN_POSITIVE)
    }
}

/// What came of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Latency does not depend on the limit.
    Shift(Slowdown),
    /// It does: latency at the trial limit, and whether as much was done then.
    Overload { slowdown: Slowdown, is_saturated: bool },
    /// Too few came to tell.
    Open,
}

impl ShiftTest {
    /// Halves what is `in_use` of the limit; `None` if that is too small to be halved, or the limit
    /// is to be `least` at least.
    pub(super) fn begin(
        now: Time,
        limit: f64,
        in_use: f64,
        least: f64,
        slow: Slow,
        latency: f64,
    ) -> Option<Self> {
        let before = in_use.min(limit);
        let trial = (before * TRIAL).max(1.0).max(least);
        (trial <= 0.75 * before).then(|| Self {
            began: now,
            limit,
            before,
            trial,
            slow,
            latency,
            cohort: Samples::new(),
            members: 0,
            unfinished: 0,
            starts: 0.0,
            first_start: None,
            last_start: now,
            end: None,
            overloads: 0,
        })
    }

    /// Somebody was admitted.
    pub(super) fn admitted(&mut self, started: Time) {
        self.close(started);
        if self.is_member(started) {
            self.members += 1;
            self.unfinished += 1;
            self.starts += nanos(self.began, started);
            self.first_start.get_or_insert(started);
            self.last_start = started;
        }
    }

    /// Somebody is done; whether he is a member.
    pub(super) fn finished(&mut self, now: Time, started: Time) -> bool {
        let is_member = self.is_member(started) && self.unfinished > 0;
        if is_member {
            self.unfinished -= 1;
            self.starts = (self.starts - nanos(self.began, started)).max(0.0);
        }
        self.close(now);
        is_member
    }

    /// What the latency of a member says.
    pub(super) fn add(&mut self, group: Group, nanos: Option<f64>, is_overload: bool) {
        self.overloads += u64::from(is_overload);
        if let Some(nanos) = nanos {
            self.cohort.add(group, nanos);
        }
    }

    /// What came of it, if it is over.
    pub(super) fn verdict(&self, now: Time, baselines: &Baselines) -> Option<Verdict> {
        let Some(end) = self.end else {
            let is_late = nanos(self.began, now) >= self.give_up();
            return (is_late && self.members < FEWEST).then_some(Verdict::Open);
        };
        if self.unfinished > 0 && nanos(end, now) < PATIENCE * self.latency {
            return None;
        }
        let Some(slowdown) = self.slowdown(now, baselines) else {
            return Some(Verdict::Open);
        };
        let latency = slowdown.ratio / self.slow.slowdown();
        let throughput = self.throughput() / self.slow.throughput();
        // Which of the two fell less? By Little's law their product is what is in flight.
        let is_shift = latency > throughput && slowdown.ratio > SLOW && self.overloads == 0;
        Some(if is_shift {
            Verdict::Shift(slowdown)
        } else {
            Verdict::Overload { slowdown, is_saturated: throughput > AS_MUCH }
        })
    }

    /// Members for each nanosecond in which they were admitted.
    fn throughput(&self) -> f64 {
        let first = self.first_start.unwrap_or(self.began);
        let span = nanos(first, self.end.unwrap_or(self.last_start));
        self.members as f64 / span.max(1.0)
    }

    fn slowdown(&self, now: Time, baselines: &Baselines) -> Option<Slowdown> {
        let known = self.cohort.slowdown(baselines)?;
        let (finished, unfinished) = (self.cohort.all().count as f64, self.unfinished as f64);
        let so_far = (unfinished * nanos(self.began, now) - self.starts).max(0.0);
        let expected = known.expected * (finished + unfinished);
        let ratio = (known.ratio * known.expected * finished + so_far) / expected;
        Some(Slowdown { ratio, ..known })
    }

    fn is_member(&self, started: Time) -> bool {
        started > self.began && self.end.is_none_or(|end| started < end)
    }

    /// Ends the admission of members, if it is time; never between two of the same moment.
    fn close(&mut self, now: Time) {
        if self.end.is_some() || now <= self.last_start {
            return;
        }
        let passed = nanos(self.began, now);
        let is_enough = self.members >= MEMBERS
            && passed >= ADMISSION * self.latency
            && (passed >= LONGEST_ADMISSION * self.latency || self.is_certain());
        let longest = self.give_up().max(LONGEST_ADMISSION * self.latency);
        if is_enough || (self.members >= FEWEST && passed >= longest) {
            self.end = Some(now);
        }
    }

    /// Whether the mean of those who have finished is known well enough.
    fn is_certain(&self) -> bool {
        let all = self.cohort.all();
        all.count * 2 >= self.members && all.standard_error() <= CERTAIN * all.mean()
    }

    fn give_up(&self) -> f64 {
        GIVE_UP.max(GIVE_UP_IN_LATENCIES * self.latency)
    }
}

fn nanos(from: Time, to: Time) -> f64 {
    to.since(from).as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * MILLI)
    }

    fn baselines(nanos: f64) -> Baselines {
        let mut baselines = Baselines::new();
        baselines.study(Time::ZERO, Group::REST, nanos, 1, true);
        baselines.establish(Time::MAX);
        baselines
    }

    /// Four times the baseline of 50 ms, and one each 10 ms.
    const SLOW: Slow =
        Slow { took: 200e6, expected: 50e6, completions: 100.0, span: 1_000.0 * 1e6 };

    /// The limit was 20, and the latency 200 ms.
    fn play(every: u64, latency: impl Fn(u64) -> u64) -> (ShiftTest, Verdict, u64) {
        let baselines = baselines(50e6);
        let mut test = ShiftTest::begin(at(0), 20.0, 20.0, 1.0, SLOW, 200e6).expect("it is large");
        let mut ends = std::collections::BTreeMap::<u64, Vec<u64>>::new();
        for now in 1..10_000 {
            if now % every == 0 {
                test.admitted(at(now));
                ends.entry(now + latency(now)).or_default().push(now);
            }
            for started in ends.remove(&now).unwrap_or_default() {
                if test.finished(at(now), at(started)) {
                    let nanos = (now - started) * MILLI;
                    test.add(Group::REST, Some(nanos as f64), false);
                }
                if let Some(verdict) = test.verdict(at(now), &baselines) {
                    return (test, verdict, now);
                }
            }
        }
        panic!("no verdict");
    }

    #[test]
    fn what_is_as_slow_as_before_has_shifted() {
        let (test, verdict, now) = play(20, |_| 200);
        assert!(matches!(verdict, Verdict::Shift(slowdown) if slowdown.ratio >= 4.0));
        assert_eq!((test.members, test.unfinished), (30, 0));
        assert_eq!(now, 800);
    }

    #[test]
    fn what_is_faster_was_overloaded() {
        let (test, verdict, _) = play(10, |_| 100);
        assert!(matches!(verdict, Verdict::Overload { is_saturated: true, .. }));
        assert_eq!(test.unfinished, 0);
        let (_, verdict, _) = play(13, |_| 130);
        assert!(matches!(verdict, Verdict::Overload { is_saturated: false, .. }));
        // Fast enough: there is nothing to get used to.
        let (_, verdict, _) = play(30, |_| 70);
        assert!(matches!(verdict, Verdict::Overload { is_saturated: false, .. }));
    }

    #[test]
    fn the_unfinished_count_as_at_least_so_long() {
        // Every third takes for ever: whoever looks at the others alone sees half the latency.
        let (test, verdict, now) = play(20, |now| if now % 60 == 0 { 100_000 } else { 100 });
        assert_eq!((test.members, test.unfinished), (30, 10));
        assert!(now >= 600 + 1_200, "it was not patient");
        assert!(matches!(verdict, Verdict::Shift(slowdown) if slowdown.ratio > 8.0));
    }

    #[test]
    fn with_too_few_it_stays_open() {
        let baselines = baselines(50e6);
        let mut test = ShiftTest::begin(at(0), 20.0, 20.0, 1.0, SLOW, 200e6).expect("it is large");
        test.admitted(at(1));
        assert_eq!(test.verdict(at(4_999), &baselines), None);
        assert_eq!(test.verdict(at(5_000), &baselines), Some(Verdict::Open));
        // Of a slow service, later.
        let test = ShiftTest::begin(at(0), 20.0, 20.0, 1.0, SLOW, 12e9).expect("it is large");
        assert_eq!(test.verdict(at(59_999), &baselines), None);
        assert_eq!(test.verdict(at(60_000), &baselines), Some(Verdict::Open));
    }

    #[test]
    fn whoever_was_there_before_is_no_member() {
        let mut test = ShiftTest::begin(at(5), 20.0, 20.0, 1.0, SLOW, 200e6).expect("it is large");
        assert!(!test.finished(at(6), at(1)));
        assert!(!test.finished(at(6), at(5)));
        test.admitted(at(5));
        assert_eq!(test.members, 0);
        test.admitted(at(6));
        assert!(test.finished(at(6), at(6)));
        assert!(!test.finished(at(6), at(6)));
    }

    #[test]
    fn what_is_too_small_to_halve_is_not_tested() {
        assert!(ShiftTest::begin(at(0), 1.3, 1.3, 1.0, SLOW, 1e6).is_none());
        assert!(ShiftTest::begin(at(0), 20.0, 20.0, 20.0, SLOW, 1e6).is_none());
        assert_eq!(
            ShiftTest::begin(at(0), 4.0, 4.0, 3.0, SLOW, 1e6).map(|test| test.trial),
            Some(3.0)
        );
    }
}
