//! What is known of a service, against what is computed from all that it did.

#![allow(clippy::expect_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate::primitives::{Certainty, ServiceEstimate, Time};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// As long as a sample counts at most.
const LONGEST: u64 = 4_000 * SECOND;

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system allocator does it; a counter without a destructor is no obstacle.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn time(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span of this test")
}

/// All samples, and what they come to.
#[derive(Default)]
struct History {
    samples: Vec<(u64, u64)>,
    recent: usize,
    baseline: Option<f64>,
    batch: Vec<(u64, u64, bool)>,
}

impl History {
    fn record(&mut self, at: u64, service: u64, is_loaded: bool, recent: usize) {
        let service = service.min(LONGEST);
        self.samples.push((at, service));
        self.recent = recent;
        self.batch.push((at, service, is_loaded));
        self.learn();
    }

    fn learn(&mut self) {
        let count = self.batch.len() as f64;
        let mean = self.batch.iter().map(|&(_, service, _)| service as f64).sum::<f64>() / count;
        let (first, last) = (self.batch[0].0, self.batch[self.batch.len() - 1].0);
        let is_long = (last - first) as f64 >= (2.0 * mean).max(100.0 * MS as f64);
        if self.batch.len() < 20 || (self.baseline.is_some() && !is_long) {
            return;
        }
        let is_loaded = self.batch.iter().any(|&(_, _, is_loaded)| is_loaded);
        let baseline = match self.baseline {
            None => mean,
            Some(baseline) if mean < baseline => 0.8 * baseline + 0.2 * mean,
            Some(baseline) if is_loaded => baseline,
            Some(baseline) => 0.95 * baseline + 0.05 * mean.min(4.0 * baseline),
        };
        self.baseline = Some(baseline.max(US as f64));
        self.batch.clear();
    }

    fn recent(&self) -> Vec<u64> {
        self.samples[self.samples.len() - self.recent..].iter().map(|&(_, took)| took).collect()
    }

    fn check(&self, estimate: &ServiceEstimate) {
        let recent = self.recent();
        let count = recent.len() as f64;
        let mean = recent.iter().map(|&service| service as f64).sum::<f64>() / count;
        let is_near = |ours: Duration, exact: f64, slack: f64| {
            let error = (ours.as_secs_f64() * 1e9 - exact).abs();
            assert!(error <= slack, "{ours:?} instead of {exact} ns");
        };
        is_near(estimate.mean(), mean, 1.0 + 1e-9 * mean);
        let squares: f64 = recent.iter().map(|&service| (service as f64 - mean).powi(2)).sum();
        let error = if recent.len() < 2 { 0.0 } else { (squares / (count - 1.0) / count).sqrt() };
        // A difference of squares has an error of its own.
        is_near(estimate.standard_error(), error, 1.0 + 1e-6 * (error + mean));
        let baseline = self.baseline.map(|baseline| (baseline, 2.0 + 1e-9 * baseline));
        match (estimate.baseline(), baseline) {
            (Some(ours), Some((baseline, slack))) => is_near(ours, baseline, slack),
            (ours, baseline) => assert_eq!((ours, baseline), (None, None)),
        }
    }

    fn check_quantile(&self, estimate: &ServiceEstimate) {
        let quantile = nanos(estimate.quantile());
        if self.recent < 20 {
            assert_eq!(quantile, 0);
            return;
        }
        // It was looked up when at least four fifths of them were there.
        let is_right = ((4 * self.recent).div_ceil(5).max(20)..=self.recent).any(|count| {
            let mut seen = self.recent();
            seen.truncate(count);
            seen.sort_unstable();
            let exact = seen[(95 * count).div_ceil(100) - 1];
            (exact..=exact + US.max(exact / 16)).contains(&quantile)
        });
        assert!(is_right, "{quantile}");
    }

    /// At least 500, or those of the last 5 s; never less than 20.
    fn check_window(&self) {
        let (count, all) = (self.recent, self.samples.len());
        assert!(count <= 1_000 && count >= all.min(20));
        let now = self.samples[all - 1].0;
        let within =
            |span: u64| self.samples.iter().rev().take_while(|&&(at, _)| now - at < span).count();
        assert!(count >= within(5 * SECOND).min(500), "{count}");
    }
}

fn sample() -> impl Strategy<Value = (u64, u64, bool)> {
    let gap = prop_oneof![
        4 => Just(0),
        8 => 0..20 * MS,
        4 => 0..300 * MS,
        1 => 0..4 * SECOND,
    ];
    let service = prop_oneof![
        1 => 0..2 * US,
        8 => MS..3 * MS,
        4 => MS..300 * MS,
        1 => 0..100 * SECOND,
    ];
    (gap, service, prop::bool::weighted(0.02))
}

fn cases(many: u32) -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    let cases = if full { 20 * many } else { many };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn it_knows_what_was_recent(
        samples in prop::collection::vec((1..40usize, sample()), 1..100),
    ) {
        let (mut estimate, mut history, mut now) = (ServiceEstimate::new(), History::default(), 0);
        for (times, (gap, service, is_loaded)) in samples {
            for _ in 0..times {
                now += gap;
                estimate.record(time(now), Duration::from_nanos(service), is_loaded);
                let recent = usize::try_from(estimate.samples()).expect("it is small");
                history.record(now, service, is_loaded, recent);
            }
            history.check(&estimate);
            history.check_quantile(&estimate);
            history.check_window();
        }
    }

    #[test]
    fn no_span_and_no_clock_spoils_it(
        samples in prop::collection::vec(
            (
                prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..SECOND],
                prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..SECOND],
                any::<bool>(),
            ),
            1..300,
        ),
        later in any::<u64>(),
    ) {
        let mut estimate = ServiceEstimate::new();
        for (now, service, is_loaded) in samples {
            estimate.record(time(now), Duration::from_nanos(service), is_loaded);
        }
        let longest = Duration::from_nanos(LONGEST + LONGEST / 8);
        prop_assert!(estimate.mean() <= longest);
        prop_assert!(estimate.standard_error() <= longest);
        prop_assert!(estimate.quantile() <= longest);
        prop_assert!(estimate.baseline().is_none_or(|baseline| baseline <= longest));
        for certainty in [Certainty::High, Certainty::Fair] {
            prop_assert!(estimate.estimate(time(later), certainty) <= longest);
            prop_assert!(estimate.too_late_at(time(later), certainty) <= time(later));
        }
    }

    /// The moment from which on less is left than it takes.
    #[test]
    fn it_knows_when_it_is_too_late(
        samples in prop::collection::vec(0..40 * SECOND, 20..40),
        spans in prop::collection::vec(0..200 * SECOND, 1..20),
    ) {
        let mut estimate = ServiceEstimate::new();
        for service in samples {
            estimate.record(time(SECOND), Duration::from_nanos(service), false);
        }
        for span in spans {
            let deadline = SECOND + span;
            let too_late = estimate.too_late_at(time(deadline), Certainty::High).as_nanos();
            let is_left = |at: u64| deadline - at >= nanos(estimate.estimate(time(at), Certainty::High));
            prop_assert!(too_late <= deadline);
            prop_assert!(too_late == deadline || !is_left(too_late));
            // It is asked of moments to come.
            prop_assert!(too_late <= SECOND || is_left(too_late - 1));
        }
    }
}

fn known(service: u64) -> (ServiceEstimate, u64) {
    let (mut estimate, mut now) = (ServiceEstimate::new(), 0);
    for _ in 0..100 {
        now += 10 * MS;
        estimate.record(time(now), Duration::from_nanos(service), false);
    }
    (estimate, now)
}

#[test]
fn recent_is_what_was_within_ten_seconds() {
    for per_second in [1, 2, 3, 5, 10, 40, 90, 100, 1_000] {
        let mut estimate = ServiceEstimate::new();
        for count in 0..60 * per_second {
            let now = count * SECOND / per_second;
            estimate.record(time(now), Duration::from_millis(1), false);
            let least = count.min(20).max((5 * per_second).min(500).min(count));
            let most = (10 * per_second + 1).clamp(40, 1_000);
            let recent = estimate.samples();
            assert!((least..=most).contains(&recent), "{recent} at {per_second}/s");
        }
    }
}

/// One of ten takes 5.5 s, of which nobody has any use who gives 2 s: when the others
/// have to begin does not depend on it.
#[test]
fn what_is_in_vain_says_nothing_about_the_others() {
    for (useful, fair, high) in [(2, 500, 500), (10, 500, 5_500)] {
        let mut estimate = ServiceEstimate::new();
        estimate.set_useful(Duration::from_secs(useful));
        for sample in 0..200 {
            let service = if sample % 10 == 9 { 5_500 } else { 500 };
            estimate.record(time(SECOND), Duration::from_millis(service), false);
        }
        // A histogram rounds up to one significant digit.
        let is_about = |known: u64, ms: u64| (ms * MS..=ms * MS * 11 / 10).contains(&known);
        let known = |certainty| nanos(estimate.estimate(time(SECOND), certainty));
        assert!(is_about(known(Certainty::Fair), fair));
        assert!(is_about(known(Certainty::High), high));
        assert!(is_about(nanos(estimate.quantile()), 5_500));
    }
}

#[test]
fn an_estimate_ages_to_zero() {
    for (service, ageing) in [(MS, 10 * SECOND), (SECOND, 10 * SECOND), (10 * SECOND, 42 * SECOND)]
    {
        let (estimate, now) = known(service);
        let after = |span: u64| nanos(estimate.estimate(time(now + span), Certainty::High));
        assert!(after(0) >= service);
        assert!(after(0) <= service + service / 16);
        let half = after(ageing / 2);
        assert!(half > after(0) / 3 && half < after(0) * 2 / 3, "{half}");
        assert_eq!(after(ageing), 0);
        assert_eq!(after(u64::MAX - now), 0);
    }
}

#[test]
fn what_was_long_ago_does_not_come_back() {
    let (mut estimate, mut now) = known(SECOND);
    now += 3_600 * SECOND;
    for count in 0..40 {
        let expected = if count < 20 { 0 } else { 10 * MS };
        let quantile = nanos(estimate.estimate(time(now), Certainty::High));
        assert!((expected..=expected + expected / 16).contains(&quantile), "{count}: {quantile}");
        now += 10 * MS;
        estimate.record(time(now), Duration::from_nanos(10 * MS), false);
    }
    assert!(nanos(estimate.mean()) < 11 * MS);
    assert_eq!(estimate.samples(), 40);
}

#[test]
fn a_service_that_takes_long_is_known_as_well() {
    let (mut estimate, mut now) = (ServiceEstimate::new(), 0);
    for count in 0..60 {
        assert_eq!(estimate.quantile().is_zero(), count < 20, "{count}");
        now += 12 * SECOND;
        estimate.record(time(now), Duration::from_secs(12), false);
    }
    assert!(estimate.samples() <= 40);
}

/// The baseline after so many seconds, 100 samples each.
fn baseline_after(estimate: &mut ServiceEstimate, seconds: u64, service: u64, loaded: bool) -> u64 {
    let mut now = 1_000 * SECOND;
    for _ in 0..100 * seconds {
        now += 10 * MS;
        estimate.record(time(now), Duration::from_nanos(service), loaded);
    }
    nanos(estimate.baseline().expect("it was recorded often"))
}

#[test]
fn a_baseline_falls_quickly_and_rises_slowly() {
    let is_about = |ours: u64, exact: u64| ours.abs_diff(exact) < exact / 10;
    let (mut estimate, _) = known(50 * MS);
    assert!(is_about(baseline_after(&mut estimate, 10, 5 * MS, false), 5 * MS));
    let (mut estimate, _) = known(50 * MS);
    assert!(is_about(baseline_after(&mut estimate, 10, 5 * MS, true), 5 * MS));
    let (mut estimate, _) = known(50 * MS);
    let slow = baseline_after(&mut estimate, 2, 100 * MS, false);
    assert!((52 * MS..80 * MS).contains(&slow), "{slow}");
    let (mut estimate, _) = known(50 * MS);
    assert!(is_about(baseline_after(&mut estimate, 60, 100 * MS, false), 100 * MS));
    // Overload makes a service slower, and says nothing about it.
    let (mut estimate, _) = known(50 * MS);
    assert_eq!(baseline_after(&mut estimate, 60, 100 * MS, true), 50 * MS);
}

#[test]
fn nothing_holds_a_baseline_for_ever() {
    // A clock that stood still, and one that jumped over a hundred years.
    for odd in [0, u64::MAX / 8] {
        let mut estimate = ServiceEstimate::new();
        for _ in 0..20 {
            estimate.record(time(SECOND), Duration::from_nanos(odd), false);
        }
        baseline_after(&mut estimate, 300, 50 * MS, false);
        estimate.record(time(1_300 * SECOND), Duration::from_nanos(odd), false);
        let baseline = baseline_after(&mut estimate, 600, 50 * MS, false);
        assert!((45 * MS..55 * MS).contains(&baseline), "{baseline} after {odd}");
    }
}

#[test]
fn what_it_knows_takes_the_same_room_for_ever() {
    let mut estimate = ServiceEstimate::new();
    let mut now = 0;
    let mut record = |count: u64, random: &mut u64| {
        for _ in 0..count {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += *random >> 38;
            estimate.record(time(now), Duration::from_nanos(*random), false);
        }
    };
    let mut random = 1;
    record(1_000, &mut random);
    let before = ALLOCATIONS.get();
    record(100_000, &mut random);
    assert_eq!(ALLOCATIONS.get(), before);
}
