//! What one sample costs each of the published limit algorithms, a limiter that follows one,
//! and the one that follows latency by our own.

#![allow(clippy::panic)]

use std::time::Duration;

use divan::{Bencher, black_box};
use sluicegate::primitives::limits::{
    Aimd, AimdConfig, Fixed, FixedConfig, Gradient, Gradient2, Gradient2Config,
    GradientConfig as ClassicConfig, LimitAlgorithm, Sample, Vegas, VegasConfig, Window,
    WindowConfig,
};
use sluicegate::primitives::{
    Ask, ClassicLimiter, ConfigError, GradientConfig, GradientLimiter, Outcome, Time,
};

fn main() {
    divan::main();
}

fn made<T>(made: Result<T, ConfigError>) -> T {
    made.unwrap_or_else(|error| panic!("{error}"))
}

/// Latencies that vary, with the limit in flight and now and then an overload.
fn samples() -> Vec<Sample> {
    let mut random = 1_u32;
    let mut sample = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Sample {
            rtt: Duration::from_nanos(5_000_000 + u64::from(random >> 8)),
            in_flight: 1_000,
            is_overload: random.is_multiple_of(1_021),
        }
    };
    (0..1_024).map(|_| sample()).collect()
}

fn update(bencher: Bencher<'_, '_>, mut algorithm: impl LimitAlgorithm) {
    let (samples, mut turn) = (samples(), 0);
    bencher.bench_local(|| {
        turn = (turn + 1) % samples.len();
        algorithm.update(black_box(&samples[turn]))
    });
}

#[divan::bench]
fn fixed(bencher: Bencher<'_, '_>) {
    update(bencher, made(Fixed::new(FixedConfig { limit: 20 })));
}

#[divan::bench]
fn aimd(bencher: Bencher<'_, '_>) {
    update(bencher, made(Aimd::new(AimdConfig::default())));
}

#[divan::bench]
fn vegas(bencher: Bencher<'_, '_>) {
    update(bencher, made(Vegas::new(VegasConfig::default())));
}

#[divan::bench]
fn gradient(bencher: Bencher<'_, '_>) {
    update(bencher, made(Gradient::new(ClassicConfig::default())));
}

#[divan::bench]
fn gradient2(bencher: Bencher<'_, '_>) {
    update(bencher, made(Gradient2::new(Gradient2Config::default())));
}

#[divan::bench]
fn window(bencher: Bencher<'_, '_>) {
    let mut window = made(Window::new(WindowConfig::default()));
    let (samples, mut turn, mut now) = (samples(), 0, 0);
    bencher.bench_local(|| {
        turn = (turn + 1) % samples.len();
        now += 1_000_000;
        window.add(Time::from_nanos(now), black_box(&samples[turn]))
    });
}

#[divan::bench(args = [false, true])]
fn try_acquire_and_release(bencher: Bencher<'_, '_>, is_windowed: bool) {
    let gradient = made(Gradient::new(ClassicConfig::default()));
    let window = is_windowed.then(WindowConfig::default);
    let mut limiter: ClassicLimiter<()> = made(ClassicLimiter::new(gradient, window));
    let (ask, mut now) = (Ask::one(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        let permit = limiter.try_acquire(Time::from_nanos(now), black_box(&ask));
        let end = Time::from_nanos(now + 500_000);
        permit.map(|permit| limiter.release(end, permit, Outcome::Success).len())
    });
}

#[divan::bench(args = [None, Some("GET /")], name = "acquire+release with sample", sample_size = 1000)]
fn acquire_and_release_with_sample(bencher: Bencher<'_, '_>, operation: Option<&str>) {
    let mut limiter: GradientLimiter<()> = made(GradientLimiter::new(GradientConfig::default()));
    let (ask, mut now) = (Ask::one(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        let permit = limiter.try_acquire(Time::from_nanos(now), black_box(&ask));
        let end = Time::from_nanos(now + 500_000);
        permit.map(|permit| limiter.release(end, permit, operation, Outcome::Success).len())
    });
}
