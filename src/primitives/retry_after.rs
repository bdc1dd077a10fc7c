use std::time::Duration;

use super::Time;

/// About how far back rejections and completions are counted: those of the current
/// half of a window of 10 s, and as much of those of the half before as is left of the
/// current one.
const HALF: u64 = 5_000_000_000;

/// How long what is rejected now is to be kept away, were it as much as drains.
const SPREAD: Duration = Duration::from_secs(5);

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// When a rejected caller should come back: the `Retry-After` that spreads the crowd.
///
/// It is uniform in [b, 2b], where b = 5 s × rejections per second ÷ completions per
/// second, from 1 s to 60 s; and b is 1 s while nothing completes, since then nobody
/// knows. The more is rejected, the later and the further apart it comes back, so that
/// what comes back stays near what can be served: a constant brings everybody back at
/// the same moment, and adds what was rejected to what is new.
///
/// Both rates are of about the last 5 s, and what is older than 10 s is forgotten. Moments
/// that stand still or go back count as the latest.
#[derive(Clone, Debug)]
pub struct RetryAfter {
    current: Counts,
    before: Counts,
    /// When the current half of the window began.
    began: u64,
    /// When it ends, so that noting needs no arithmetic.
    ends: u64,
    /// The latest moment seen.
    now: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    rejected: u64,
    done: u64,
}

impl RetryAfter {
    /// One that has seen nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = Counts { rejected: 0, done: 0 };
        Self { current: nothing, before: nothing, began: 0, ends: HALF, now: 0 }
    }

    /// Notes that somebody is rejected.
    #[inline]
    pub fn note_rejection(&mut self, now: Time) {
        self.advance(now);
        self.current.rejected = self.current.rejected.saturating_add(1);
    }

    /// Notes that work has completed.
    #[inline]
    pub fn note_done(&mut self, now: Time) {
        self.advance(now);
        self.current.done = self.current.done.saturating_add(1);
    }

    /// After what time somebody who is rejected now should come back, from 1 s to 120 s.
    ///
    /// # Arguments
    /// `draw` is where in [b, 2b]: a random number from 0 up to and without 1. Anything
    /// else counts as the nearest end of that, and not-a-number as 0.
    #[must_use]
    pub fn span(&mut self, now: Time, draw: f64) -> Duration {
        let shortest = self.shortest_span(now);
        let draw = if draw.is_nan() { 0.0 } else { draw.clamp(0.0, 1.0) };
        shortest + shortest.mul_f64(draw)
    }

    /// The b of [`span`](Self::span).
    #[must_use]
    pub fn shortest_span(&mut self, now: Time) -> Duration {
        self.advance(now);
        let done = self.recent(|counts| counts.done);
        if done <= 0.0 {
            return SHORTEST;
        }
        let seconds = SPREAD.as_secs_f64() * self.recent(|counts| counts.rejected) / done;
        let bounds = (SHORTEST.as_secs_f64(), LONGEST.as_secs_f64());
        Duration::from_secs_f64(seconds.clamp(bounds.0, bounds.1))
    }

    /// A count of the recent past; of two of them the ratio is that of the rates.
    fn recent(&self, count: impl Fn(&Counts) -> u64) -> f64 {
        let gone = (self.now - self.began) as f64 / HALF as f64;
        count(&self.current) as f64 + count(&self.before) as f64 * (1.0 - gone.min(1.0))
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now.as_nanos());
        if self.now >= self.ends {
            self.turn();
        }
    }

    #[cold]
    fn turn(&mut self) {
        let is_next = self.now - self.ends < HALF;
        self.before = if is_next { self.current } else { Counts::default() };
        self.current = Counts::default();
        self.began = self.now - self.now % HALF;
        self.ends = self.began.saturating_add(HALF);
    }
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;
    use crate::primitives::random::Random;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    /// After `seconds` of so many a second.
    fn steady(seconds: u32, rejected: u32, done: u32) -> RetryAfter {
        let mut retry_after = RetryAfter::new();
        for second in 0..seconds {
            for n in 0..rejected {
                retry_after.note_rejection(at(f64::from(second) + f64::from(n) / 1e3));
            }
            for n in 0..done {
                retry_after.note_done(at(f64::from(second) + f64::from(n) / 1e3));
            }
        }
        retry_after
    }

    #[test]
    fn it_is_five_seconds_times_rejections_over_completions() {
        for seconds in [1, 7, 60] {
            let mut retry_after = steady(seconds, 200, 100);
            let now = at(f64::from(seconds));
            assert_eq!(retry_after.span(now, 0.0), Duration::from_secs(10));
            assert_eq!(retry_after.span(now, 0.5), Duration::from_secs(15));
            assert_eq!(retry_after.span(now, 1.0), Duration::from_secs(20));
        }
    }

    #[test]
    fn it_is_bounded() {
        assert_eq!(steady(20, 1, 100).shortest_span(at(20.0)), SHORTEST);
        assert_eq!(steady(20, 900, 1).shortest_span(at(20.0)), LONGEST);
        assert_eq!(steady(20, 0, 100).shortest_span(at(20.0)), SHORTEST);
    }

    #[test]
    fn it_is_a_second_while_nothing_completes() {
        assert_eq!(RetryAfter::new().shortest_span(Time::ZERO), SHORTEST);
        assert_eq!(steady(20, 900, 0).shortest_span(at(20.0)), SHORTEST);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut retry_after = steady(30, 200, 100);
        for n in 0..1000 {
            retry_after.note_done(at(40.0 + f64::from(n) / 100.0));
        }
        assert_eq!(retry_after.shortest_span(at(50.0)), SHORTEST);

        let mut retry_after = steady(30, 200, 1);
        assert_eq!(retry_after.shortest_span(at(3630.0)), SHORTEST);
        retry_after.note_rejection(at(3630.0));
        assert_eq!(retry_after.shortest_span(at(3630.0)), SHORTEST);
    }

    #[test]
    fn it_follows_a_change_within_a_window() {
        let mut retry_after = steady(30, 400, 100);
        for n in 0..1000 {
            let now = at(30.0 + f64::from(n) / 100.0);
            retry_after.note_rejection(now);
            retry_after.note_done(now);
        }
        let span = retry_after.shortest_span(at(39.999));
        assert!((span.as_secs_f64() - 5.0).abs() < 0.1, "{span:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_clock_and_no_draw_leads_out_of_the_range(
            steps in prop::collection::vec((0..3, any_time(), any_draw()), 1..200),
        ) {
            let mut retry_after = RetryAfter::new();
            for (what, now, draw) in steps {
                match what {
                    0 => retry_after.note_rejection(now),
                    1 => retry_after.note_done(now),
                    _ => {}
                }
                let shortest = retry_after.shortest_span(now);
                prop_assert!((SHORTEST..=LONGEST).contains(&shortest));
                let span = retry_after.span(now, draw);
                prop_assert!((shortest..=2 * shortest).contains(&span), "{span:?}");
            }
        }

        #[test]
        fn it_is_that_of_a_list_of_all_that_happened(
            mut events in prop::collection::vec((0_u64..40_000_000_000, any::<bool>()), 1..300),
        ) {
            events.sort_unstable();
            let mut retry_after = RetryAfter::new();
            for &(now, is_done) in &events {
                let now = Time::from_nanos(now);
                if is_done { retry_after.note_done(now) } else { retry_after.note_rejection(now) }
            }
            let now = events[events.len() - 1].0;
            let gone = (now % HALF) as f64 / HALF as f64;
            let count = |wanted: bool| -> f64 {
                let weights = events.iter().filter(|event| event.1 == wanted).map(|event| {
                    match now / HALF - event.0 / HALF {
                        0 => 1.0,
                        1 => 1.0 - gone,
                        _ => 0.0,
                    }
                });
                weights.sum()
            };
            let (rejected, done) = (count(false), count(true));
            let seconds = if done > 0.0 { (5.0 * rejected / done).clamp(1.0, 60.0) } else { 1.0 };
            let span = retry_after.shortest_span(Time::from_nanos(now)).as_secs_f64();
            prop_assert!((span - seconds).abs() < 1e-6, "{span} instead of {seconds}");
        }
    }

    fn any_time() -> impl Strategy<Value = Time> {
        prop_oneof![
            any::<u64>().prop_map(Time::from_nanos),
            (0_u64..100_000_000_000).prop_map(Time::from_nanos),
            Just(Time::ZERO),
            Just(Time::MAX),
        ]
    }

    fn any_draw() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..1.0, any::<f64>(), Just(f64::NAN)]
    }

    /// A server that does ten at a time in 0.1 s each, with room for ten that wait.
    #[derive(Default)]
    struct Server {
        running: usize,
        waiting: usize,
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        Done,
        Attempt { tries: u32 },
    }

    const SURGE: f64 = 20.0;

    /// What comes of a surge of 300 a second for 20 s upon such a server: the attempts
    /// in each second, and when the last one was rejected.
    fn play(
        seed: u64,
        mut told: impl FnMut(&mut RetryAfter, Time, f64) -> Duration,
    ) -> (Vec<u32>, f64) {
        let mut random = Random::new(seed);
        let mut events = BinaryHeap::new();
        let mut now = 0.0;
        while now < SURGE {
            events.push(Reverse((at(now), Event::Attempt { tries: 1 })));
            now += 1.0 / 300.0;
        }
        let mut server = Server::default();
        let mut retry_after = RetryAfter::new();
        let mut attempts = vec![0; 2000];
        let mut last_rejection = 0.0;
        let work = Duration::from_millis(100);
        while let Some(Reverse((now, event))) = events.pop() {
            match event {
                Event::Done => {
                    retry_after.note_done(now);
                    if server.waiting > 0 {
                        server.waiting -= 1;
                        events.push(Reverse((now.after(work), Event::Done)));
                    } else {
                        server.running -= 1;
                    }
                }
                Event::Attempt { tries } => {
                    attempts[usize::try_from(now.as_nanos() / 1_000_000_000).unwrap()] += 1;
                    if server.running < 10 {
                        server.running += 1;
                        events.push(Reverse((now.after(work), Event::Done)));
                    } else if server.waiting < 10 {
                        server.waiting += 1;
                    } else {
                        retry_after.note_rejection(now);
                        last_rejection = now.as_secs_f64();
                        let span = told(&mut retry_after, now, random.unit());
                        if tries < 10 {
                            let again = Event::Attempt { tries: tries + 1 };
                            events.push(Reverse((now.after(span), again)));
                        }
                    }
                }
            }
        }
        (attempts, last_rejection)
    }

    /// The most attempts a second, over five of them, during the surge.
    fn most(attempts: &[u32]) -> f64 {
        let sums = attempts[..20].windows(5).map(|seconds| seconds.iter().sum::<u32>());
        f64::from(sums.max().unwrap()) / 5.0
    }

    #[test]
    fn a_surge_does_not_come_back_as_another() {
        for seed in 0..20 {
            let (attempts, last_rejection) = play(seed, RetryAfter::span);
            let most = most(&attempts);
            assert!(most <= 500.0, "seed {seed}: {most} attempts a second");
            assert!(last_rejection < SURGE + 60.0, "seed {seed}: rejected at {last_rejection} s");
        }
    }

    /// So the test above sees it.
    #[test]
    fn after_a_constant_time_it_would() {
        let (attempts, _) = play(1, |_, _, _| Duration::from_secs(1));
        assert!(most(&attempts) > 1000.0);
    }
}
