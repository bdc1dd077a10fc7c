//! What a decision of a gate costs.

#![allow(clippy::panic)]

use std::time::Duration;

use divan::{Bencher, black_box};
use sluicegate::primitives::{
    ConfigError, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home, Outcome,
    Time,
};

fn main() {
    divan::main();
}

fn made<T>(made: Result<T, ConfigError>) -> T {
    made.unwrap_or_else(|error| panic!("{error}"))
}

fn fixed(limit: f64) -> Gate<u32> {
    made(Gate::new(GateConfig { limit: GateLimit::Fixed(limit), ..GateConfig::default() }))
}

fn clock() -> impl FnMut() -> Time {
    let mut now = Time::ZERO;
    move || {
        now = now.after(Duration::from_nanos(500));
        now
    }
}

fn cycle(bencher: Bencher<'_, '_>, mut gate: Gate<u32>, ask: &GateAsk<'_>) {
    let mut clock = clock();
    bencher.bench_local(|| {
        let permit = gate.admit(clock(), black_box(ask), &mut ());
        let permit = permit.unwrap_or_else(|| panic!("there is room"));
        gate.release(clock(), permit, None, Outcome::Success)
    });
}

#[divan::bench]
fn admit_and_release(bencher: Bencher<'_, '_>) {
    cycle(bencher, made(Gate::new(GateConfig::default())), &GateAsk::one());
}

#[divan::bench]
fn admit_and_release_at_a_fixed_limit(bencher: Bencher<'_, '_>) {
    cycle(bencher, fixed(10.0), &GateAsk::one());
}

#[divan::bench]
fn admit_and_release_by_name(bencher: Bencher<'_, '_>) {
    let ask = GateAsk { operation: Some("GET /users/{id}"), ..GateAsk::one() };
    cycle(bencher, fixed(10.0), &ask);
}

#[divan::bench]
fn reject(bencher: Bencher<'_, '_>) {
    let mut gate = fixed(1.0);
    let mut clock = clock();
    let _permit = gate.admit(clock(), &GateAsk::one(), &mut ());
    bencher.bench_local(|| gate.try_acquire(clock(), black_box(&GateAsk::one()), &mut ()));
}

#[divan::bench]
fn wait_hand_over_and_claim(bencher: Bencher<'_, '_>) {
    let mut gate = fixed(1.0);
    let mut clock = clock();
    let mut ask = GateAsk::one();
    ask.ask.home = Some(Home(1));
    let mut permit = gate.admit(clock(), &ask, &mut ());
    bencher.bench_local(|| {
        let (waiting, _) = gate.acquire(clock(), &ask, &mut (), &mut Some(1));
        let GateAdmission::Waiting(ticket) = waiting else { panic!("{waiting:?}") };
        if let Some(permit) = permit.take() {
            let _ = gate.release(clock(), permit, None, Outcome::Success);
        }
        match gate.claim(clock(), ticket).0 {
            GateClaim::Admitted(granted) => permit = Some(granted),
            other => panic!("{other:?}"),
        }
    });
}
