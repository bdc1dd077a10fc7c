//! The gate under random programs: nobody is admitted too many, overtaken or forgotten,
//! and the simple case is what a list would make of it.

#![allow(clippy::expect_used, clippy::panic)]

mod naive;
mod odd;
mod play;
mod steps;
mod twins;

use std::time::Duration;

use naive::Pair;
use play::{Fault, Play};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner};
use sluicegate::primitives::{
    Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home, Outcome,
    Reason, Time, Waitable,
};
use steps::{config, jobs, odd_steps, simple_step, step, steps_in_line};

fn cases(few: u32) -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig {
        cases: if full { 10_000 } else { few },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/proptest-regressions/gate_model.txt",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn nobody_is_forgotten_whoever_comes(
        config in config(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        Play::new(config, false, Fault::None).through(&steps);
    }

    #[test]
    fn those_who_come_at_once_are_served_in_order(
        config in config(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        Play::new(config, true, Fault::None).through(&steps);
    }

    #[test]
    fn the_simple_case_is_that_of_a_list(
        limit in 1..5u64,
        max_waiting in 0..6usize,
        max_wait in prop::option::of(0..40u64),
        steps in prop::collection::vec(simple_step(), 1..120),
    ) {
        let mut pair = Pair::new(limit, max_waiting, max_wait);
        for step in &steps {
            pair.play(step);
        }
    }

    #[test]
    fn a_stuck_gate_refuses_everybody_at_his_bound_exactly(
        max_wait in prop::option::of(1..300u64),
        comers in steps_in_line(),
    ) {
        stuck(max_wait, &comers);
    }

    #[test]
    fn odd_clocks_lose_nobody(config in config(), steps in odd_steps()) {
        odd::play(&config, &steps);
    }

    #[test]
    fn a_dry_run_counts_what_is_done_otherwise(config in config(), jobs in jobs()) {
        twins::compare(&config, &jobs);
    }
}

/// All permits are stuck, and one looks only when it is said to be time.
fn stuck(max_wait: Option<u64>, comers: &[(u64, usize, Option<u64>)]) {
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        sheds_by_line: false,
        max_wait: max_wait.map(Duration::from_millis),
        ..GateConfig::default()
    };
    let mut gate: Gate<usize> = Gate::new(config).expect("it is within its ranges");
    let (stuck, _) = gate.try_acquire(ms(0), &GateAsk::one(), &mut ());
    let stuck = stuck.expect("nobody is there");
    let mut now = 0;
    let mut waiting = Vec::new();
    let mut later_ones = comers.iter();
    let mut next = later_ones.next();
    while next.is_some() || !waiting.is_empty() {
        let due = gate.next_expiry();
        let next_at = next.map(|&(later, ..)| ms(now + later));
        if let Some((&(later, criticality, deadline), at)) = next.zip(next_at)
            && due.is_none_or(|due| at < due)
        {
            now += later;
            let mut ask = GateAsk::one();
            ask.ask.criticality = Criticality::ALL[criticality];
            ask.ask.home = Some(Home(1));
            ask.deadline = deadline.map(|deadline| ms(now + 1 + deadline));
            let unsaid = if deadline.is_some() { 1_000_000 } else { 1_000 };
            let until = ms(now + max_wait.unwrap_or(unsaid));
            let bound = ask.deadline.unwrap_or(Time::MAX).min(until);
            match gate.acquire(at, &ask, &mut (), &mut Some(waiting.len())).0 {
                GateAdmission::Waiting(ticket) => waiting.push((ticket, bound, ask.deadline)),
                other => panic!("{other:?}"),
            }
            next = later_ones.next();
            continue;
        }
        let due = due.expect("somebody waits");
        let woken = gate.expire(due, None).into_iter().map(|wake| wake.ticket);
        let woken: Vec<_> = woken.collect();
        for ticket in woken {
            let place = waiting.iter().position(|&(other, ..)| other == ticket);
            let (_, bound, deadline) = waiting.swap_remove(place.expect("he waits"));
            assert_eq!(due, bound, "refused too early or too late");
            match gate.claim(due, ticket).0 {
                GateClaim::Rejected(rejection) => {
                    let is_late = deadline == Some(bound);
                    let reason = if is_late { Reason::Deadline } else { Reason::Wait };
                    assert_eq!(rejection.reason, reason);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(waiting.iter().all(|&(_, bound, _)| bound > due), "forgotten");
    }
    let _ = gate.release(gate.latest(), stuck, None, Outcome::Success);
    assert_eq!((gate.in_flight(), gate.next_expiry()), (0, None));
}

/// What the harness says of a gate with that fault.
fn found(fault: Fault, is_prompt: bool) -> String {
    let config = ProptestConfig { cases: 500, max_shrink_iters: 0, ..ProptestConfig::default() };
    let config = ProptestConfig { failure_persistence: None, ..config };
    let programs = (steps::config(), prop::collection::vec(step(), 1..160));
    // The same ones always.
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let answer = TestRunner::new_with_rng(config, chance).run(&programs, |(config, steps)| {
        Play::new(config, is_prompt, fault).through(&steps);
        Ok(())
    });
    match answer {
        Err(TestError::Fail(reason, _)) => reason.message().to_owned(),
        other => panic!("{fault:?} was not found: {other:?}"),
    }
}

#[test]
fn one_who_is_admitted_too_many_is_found() {
    assert!(found(Fault::AdmitsOneTooMany, true).contains("may be in flight"));
    assert!(found(Fault::AdmitsOneTooMany, false).contains("may be in flight"));
}

#[test]
fn what_is_given_back_twice_is_found() {
    assert!(found(Fault::ReleasesTwice, true).contains("in flight is not"));
    assert!(found(Fault::ReleasesTwice, false).contains("in flight is not"));
}

#[test]
fn a_wake_that_is_lost_is_found() {
    assert!(found(Fault::LosesAWake, true).contains("woken"));
    assert!(found(Fault::LosesAWake, false).contains("woken"));
}

#[test]
fn tokens_that_are_lost_are_found() {
    assert!(found(Fault::LosesTokens, true).contains("tokens"));
}
