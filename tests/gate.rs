//! What a gate decides, by hand: each test is a fault that one could make.

#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp)]

use std::time::Duration;

use sluicegate::primitives::limits::{Aimd, AimdConfig, Algorithm};
use sluicegate::primitives::{
    Ask, Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, GateLimit, Home,
    LimitUpdate, Outcome, Permit, Rate, Reason, Rejecting, Reserve, Ticket, Time, Waitable,
};

const HERE: Home = Home(1);
const THERE: Home = Home(2);

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn gate(limit: f64) -> Gate<u32> {
    gate_with(GateConfig { limit: GateLimit::Fixed(limit), ..GateConfig::default() })
}

fn gate_with(config: GateConfig) -> Gate<u32> {
    Gate::new(config).expect("it is within its ranges")
}

fn ask(criticality: Criticality, home: Home) -> GateAsk<'static> {
    let mut ask = GateAsk::one();
    (ask.ask.criticality, ask.ask.home) = (criticality, Some(home));
    ask
}

fn critical() -> GateAsk<'static> {
    ask(Criticality::Critical, HERE)
}

/// Admitted now.
fn enter(gate: &mut Gate<u32>, now: Time, ask: &GateAsk<'_>) -> Permit {
    match gate.acquire(now, ask, &mut (), &mut Some(0)).0 {
        GateAdmission::Admitted(permit) => permit,
        other => panic!("{other:?}"),
    }
}

/// In line now.
fn wait(gate: &mut Gate<u32>, now: Time, ask: &GateAsk<'_>, waiter: u32) -> Ticket {
    match gate.acquire(now, ask, &mut (), &mut Some(waiter)).0 {
        GateAdmission::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// How much was taken.
#[derive(Default)]
struct Tokens(f64);

impl Rate for Tokens {
    fn take(&mut self, _now: Time, tokens: f64) -> Result<(), Duration> {
        self.0 += tokens;
        Ok(())
    }

    fn give_back(&mut self, _now: Time, tokens: f64) {
        self.0 -= tokens;
    }
}

fn rejected(gate: &mut Gate<u32>, now: Time, ask: &GateAsk<'_>) -> Reason {
    match gate.acquire(now, ask, &mut (), &mut Some(0)).0 {
        GateAdmission::Rejected(rejection) => rejection.reason,
        other => panic!("{other:?}"),
    }
}

fn claim(gate: &mut Gate<u32>, now: Time, ticket: Ticket) -> Permit {
    match gate.claim(now, ticket).0 {
        GateClaim::Admitted(permit) => permit,
        other => panic!("{other:?}"),
    }
}

fn refusal(gate: &mut Gate<u32>, now: Time, ticket: Ticket) -> Reason {
    match gate.claim(now, ticket).0 {
        GateClaim::Rejected(rejection) => rejection.reason,
        other => panic!("{other:?}"),
    }
}

fn done(gate: &mut Gate<u32>, now: Time, permit: Permit) -> Vec<u32> {
    let wakes = gate.release(now, permit, None, Outcome::Success);
    wakes.into_iter().map(|wake| wake.waiter).collect()
}

#[test]
fn whoever_waits_is_woken_by_a_release_and_claims() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let ticket = wait(&mut gate, at(1), &critical(), 7);
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 1));
    assert!(matches!(gate.claim(at(2), ticket).0, GateClaim::Waiting));
    assert_eq!(done(&mut gate, at(10), permit), [7]);
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 0), "granted is in flight");
    let permit = claim(&mut gate, at(11), ticket);
    assert_eq!(permit.waited(), Duration::from_millis(10));
    assert_eq!(permit.started(), at(11), "to be woken late is no work");
    assert!(done(&mut gate, at(20), permit).is_empty());
    assert_eq!(gate.in_flight(), 0);
    assert!(matches!(gate.claim(at(21), ticket).0, GateClaim::Unknown));
}

#[test]
fn who_never_waits_overtakes_nobody_who_could_answer() {
    let mut gate = gate(2.0);
    let first = enter(&mut gate, at(0), &critical());
    let second = enter(&mut gate, at(0), &critical());
    let mut both = critical();
    both.ask = Ask::new(2).expect("a cost");
    both.ask.home = Some(HERE);
    let ticket = wait(&mut gate, at(1), &both, 1);
    let _ = done(&mut gate, at(2), first);
    let (answer, _) = gate.try_acquire(at(3), &critical(), &mut ());
    assert_eq!(answer.expect_err("somebody waits").reason, Reason::Limit);
    let plus = ask(Criticality::CriticalPlus, HERE);
    let (answer, _) = gate.try_acquire(at(3), &plus, &mut ());
    let third = answer.expect("is more critical");
    let _ = done(&mut gate, at(4), third);
    assert_eq!(done(&mut gate, at(4), second), [1]);
    assert_eq!(claim(&mut gate, at(4), ticket).cost(), 2);
}

#[test]
fn a_stuck_gate_refuses_each_within_its_bound() {
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        max_wait: Some(Duration::from_millis(100)),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let _stuck = enter(&mut gate, at(0), &critical());
    let soon = GateAsk { deadline: Some(at(50)), ..critical() };
    let (first, second) =
        (wait(&mut gate, at(0), &critical(), 1), wait(&mut gate, at(0), &soon, 2));
    assert_eq!(gate.next_expiry(), Some(at(50)));
    let wakes = gate.expire(at(50), Some(HERE));
    assert_eq!(wakes.into_iter().map(|wake| wake.waiter).collect::<Vec<_>>(), [2]);
    assert_eq!(refusal(&mut gate, at(50), second), Reason::Deadline);
    assert_eq!(gate.next_expiry(), Some(at(100)));
    let wakes = gate.expire(at(100), Some(HERE));
    assert_eq!(wakes.into_iter().map(|wake| wake.waiter).collect::<Vec<_>>(), [1]);
    assert_eq!(refusal(&mut gate, at(100), first), Reason::Wait);
    assert_eq!(gate.next_expiry(), None);
}

#[test]
fn the_order_of_decisions() {
    struct Empty;
    impl Rate for Empty {
        fn take(&mut self, _now: Time, _tokens: f64) -> Result<(), Duration> {
            Err(Duration::from_secs(9))
        }
        fn give_back(&mut self, _now: Time, _tokens: f64) {
            panic!("nothing was taken");
        }
    }
    let mut gate = gate(1.0);
    let late = GateAsk { deadline: Some(at(10)), ..critical() };
    let reason = |gate: &mut Gate<u32>, ask: &GateAsk<'_>| {
        let (answer, _) = gate.try_acquire(at(10), ask, &mut Empty);
        answer.expect_err("is rejected").reason
    };
    assert_eq!(reason(&mut gate, &late), Reason::Deadline);
    assert_eq!(reason(&mut gate, &critical()), Reason::Rate);
    let _ = gate.close(at(10));
    assert_eq!(reason(&mut gate, &late), Reason::Closed);
}

#[test]
fn what_was_taken_of_the_rate_goes_back_to_it() {
    let mut gate = gate(1.0);
    let mut rate = Tokens::default();
    let (permit, _) = gate.try_acquire(at(0), &critical(), &mut rate);
    let permit = permit.expect("there is room");
    assert_eq!(rate.0, 1.0);
    let (refused, _) = gate.try_acquire(at(0), &critical(), &mut rate);
    assert!(refused.is_err());
    assert_eq!(rate.0, 1.0, "a refusal costs nothing");
    let (waiting, _) = gate.acquire(at(0), &critical(), &mut rate, &mut Some(1));
    let GateAdmission::Waiting(ticket) = waiting else { panic!("{waiting:?}") };
    assert_eq!((rate.0, gate.is_owing()), (2.0, false));
    let _ = gate.cancel(at(1), ticket);
    assert_eq!(gate.take_owed(), 1.0, "who leaves the line gets it back");
    assert_eq!(gate.take_owed(), 0.0);
    let _ = done(&mut gate, at(2), permit);
}

#[test]
fn less_critical_waiters_make_room_in_a_full_line() {
    let config =
        GateConfig { limit: GateLimit::Fixed(1.0), max_waiting: Some(1), ..GateConfig::default() };
    let mut gate = gate_with(config);
    let _permit = enter(&mut gate, at(0), &critical());
    let low = wait(&mut gate, at(0), &ask(Criticality::Sheddable, HERE), 1);
    assert_eq!(rejected(&mut gate, at(0), &ask(Criticality::Sheddable, HERE)), Reason::Full);
    let _high = wait(&mut gate, at(0), &critical(), 2);
    assert_eq!(refusal(&mut gate, at(0), low), Reason::Evicted);
    assert_eq!(rejected(&mut gate, at(0), &critical()), Reason::Full);
}

#[test]
fn what_one_would_wait_with_is_left_to_who_may_not_wait() {
    let config =
        GateConfig { limit: GateLimit::Fixed(1.0), max_waiting: Some(1), ..GateConfig::default() };
    let mut gate = gate_with(config);
    let _permit = enter(&mut gate, at(0), &critical());
    let _first = wait(&mut gate, at(0), &critical(), 1);
    let mut waiter = Some(2);
    let (admission, _) = gate.acquire(at(0), &critical(), &mut (), &mut waiter);
    assert!(matches!(admission, GateAdmission::Rejected(_)), "it is full");
    assert_eq!(waiter, Some(2));
}

#[test]
fn a_unit_is_kept_for_the_critical() {
    let config = GateConfig {
        limit: GateLimit::Fixed(5.0),
        reserve: Reserve::none().with(Criticality::Critical, 0.2),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let bulk = ask(Criticality::Sheddable, HERE);
    let held: Vec<Permit> = (0..4).map(|_| enter(&mut gate, at(0), &bulk)).collect();
    let waiting = wait(&mut gate, at(0), &bulk, 1);
    let critical_one = enter(&mut gate, at(0), &critical());
    assert_eq!(gate.in_flight(), 5);
    assert!(done(&mut gate, at(1), critical_one).is_empty(), "it is kept again");
    for permit in held.into_iter().take(1) {
        assert_eq!(done(&mut gate, at(2), permit), [1]);
    }
    let _ = claim(&mut gate, at(2), waiting);
}

#[test]
fn what_was_kept_for_somebody_who_came_is_there_for_those_in_line() {
    let reserve =
        Reserve::none().with(Criticality::Critical, 0.2).with(Criticality::CriticalPlus, 0.2);
    let config = GateConfig { limit: GateLimit::Fixed(5.0), reserve, ..GateConfig::default() };
    let mut gate = gate_with(config);
    let _one = enter(&mut gate, at(0), &ask(Criticality::Sheddable, HERE));
    let mut three = ask(Criticality::Sheddable, HERE);
    three.ask = Ask::new(3).expect("a cost");
    (three.ask.criticality, three.ask.home) = (Criticality::Sheddable, Some(HERE));
    let ticket = wait(&mut gate, at(0), &three, 1);
    // He is of both reserves: nothing is kept any more.
    let plus = ask(Criticality::CriticalPlus, HERE);
    let (answer, wakes) = gate.try_acquire(at(0), &plus, &mut ());
    let _plus = answer.expect("it was kept for him");
    assert_eq!(wakes.into_iter().map(|wake| wake.waiter).collect::<Vec<_>>(), [1]);
    let _three = claim(&mut gate, at(0), ticket);
    assert_eq!(gate.in_flight(), 5);
}

#[test]
fn a_blocked_home_does_not_hold_the_others_up() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let blocked = ask(Criticality::Critical, THERE);
    let tickets = [1, 2, 3].map(|name| wait(&mut gate, at(0), &blocked, name));
    let here = wait(&mut gate, at(0), &critical(), 4);
    assert_eq!(done(&mut gate, at(10), permit), [1], "the oldest");
    assert_eq!(gate.next_expiry(), Some(at(60)));
    let woken: Vec<u32> = gate.expire(at(60), Some(HERE)).into_iter().map(|w| w.waiter).collect();
    assert_eq!(woken, [4], "the neighbours wait until one of them moves");
    let permit = claim(&mut gate, at(61), here);
    assert_eq!(gate.waiting(), 3);
    // They come, and wait on in their places.
    assert!(matches!(gate.claim(at(62), tickets[1]).0, GateClaim::Waiting));
    assert!(gate.renew(tickets[1], 2).is_ok());
    assert!(matches!(gate.claim(at(62), tickets[0]).0, GateClaim::Waiting));
    assert!(gate.renew(tickets[0], 1).is_ok());
    assert_eq!(done(&mut gate, at(63), permit), [1]);
    let permit = claim(&mut gate, at(63), tickets[0]);
    assert_eq!(permit.waited(), Duration::from_millis(63));
    assert_eq!(gate.snapshot(at(63)).revoked, 1);
}

#[test]
fn who_comes_from_elsewhere_is_not_held_up_by_a_blocked_home() {
    let mut gate = gate(2.0);
    let first = enter(&mut gate, at(0), &critical());
    let _second = enter(&mut gate, at(0), &critical());
    let blocked = ask(Criticality::Critical, THERE);
    let mut both = blocked;
    both.ask = Ask::new(2).expect("a cost");
    both.ask.home = Some(THERE);
    let _granted = wait(&mut gate, at(0), &blocked, 1);
    let _behind = wait(&mut gate, at(0), &both, 2);
    assert_eq!(done(&mut gate, at(10), first), [1]);
    // It is stale by now, and he who is next in line is as blocked.
    let _permit = enter(&mut gate, at(60), &critical());
    assert_eq!((gate.in_flight(), gate.waiting()), (2, 2));
}

#[test]
fn a_late_claimer_does_not_take_from_who_goes_first_in_a_standing_line() {
    let mut gate = gate(1.0);
    let patient =
        |criticality, home| GateAsk { deadline: Some(at(90_000)), ..ask(criticality, home) };
    let permit = enter(&mut gate, at(0), &critical());
    let _low = wait(&mut gate, at(0), &patient(Criticality::Sheddable, HERE), 1);
    let _ = gate.expire(at(1_980), None);
    let late = wait(&mut gate, at(1_990), &patient(Criticality::Critical, HERE), 2);
    assert_eq!(done(&mut gate, at(2_000), permit), [2]);
    let newest = wait(&mut gate, at(2_010), &patient(Criticality::Critical, THERE), 3);
    let woken: Vec<u32> =
        gate.expire(at(2_050), Some(THERE)).into_iter().map(|w| w.waiter).collect();
    assert_eq!(woken, [3]);
    assert!(matches!(gate.claim(at(2_060), late).0, GateClaim::Waiting));
    let _permit = claim(&mut gate, at(2_070), newest);
}

#[test]
fn who_comes_last_to_a_standing_line_begins_where_the_older_ones_do_not_fit() {
    let mut gate = gate(2.0);
    let patient = GateAsk { deadline: Some(at(90_000)), ..critical() };
    let mut both = patient;
    both.ask = Ask::new(2).expect("a cost");
    both.ask.home = Some(HERE);
    let first = enter(&mut gate, at(0), &critical());
    let _second = enter(&mut gate, at(0), &critical());
    let _old = wait(&mut gate, at(0), &both, 1);
    assert!(done(&mut gate, at(1_000), first).is_empty(), "he needs two");
    let mut waiter = Some(2);
    let (admission, _) = gate.acquire(at(2_000), &patient, &mut (), &mut waiter);
    assert!(matches!(admission, GateAdmission::Admitted(_)), "{admission:?}");
    assert_eq!((waiter, gate.in_flight(), gate.waiting()), (Some(2), 2, 1));
}

#[test]
fn a_closed_gate_refuses_who_waits_and_lets_go_on_what_runs() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let ticket = wait(&mut gate, at(0), &critical(), 1);
    let woken: Vec<u32> = gate.close(at(1)).into_iter().map(|wake| wake.waiter).collect();
    assert_eq!(woken, [1]);
    assert_eq!(refusal(&mut gate, at(1), ticket), Reason::Closed);
    let drain = gate.join_drain(at(1), HERE, Some(at(100)), &mut Some(2)).expect("one runs");
    assert_eq!(gate.next_expiry(), Some(at(100)));
    assert_eq!(gate.claim_drain(at(2), drain).0, None);
    assert_eq!(done(&mut gate, at(3), permit), [2]);
    assert_eq!(gate.claim_drain(at(3), drain).0, Some(true));
    assert!(gate.join_drain(at(3), HERE, None, &mut Some(3)).is_none());
}

#[test]
fn a_drain_ends_at_its_bound() {
    let mut gate = gate(1.0);
    let _permit = enter(&mut gate, at(0), &critical());
    let _ = gate.close(at(0));
    let drain = gate.join_drain(at(0), HERE, Some(at(100)), &mut Some(2)).expect("one runs");
    let woken: Vec<u32> = gate.expire(at(100), None).into_iter().map(|wake| wake.waiter).collect();
    assert_eq!(woken, [2]);
    assert_eq!(gate.claim_drain(at(100), drain).0, Some(false));
}

#[test]
fn who_waits_for_the_end_and_is_not_reached_is_told_later() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let drain = gate.join_drain(at(0), HERE, None, &mut Some(2)).expect("one runs");
    assert_eq!(done(&mut gate, at(3), permit), [2]);
    assert!(gate.unreached(at(4), drain, 2).is_empty(), "at once he is not reached either");
    assert_eq!(gate.next_expiry(), Some(at(54)));
    let woken: Vec<u32> = gate.expire(at(54), None).into_iter().map(|wake| wake.waiter).collect();
    assert_eq!(woken, [2]);
    assert_eq!(gate.claim_drain(at(54), drain).0, Some(true));
}

#[test]
fn who_is_let_in_unasked_is_in_flight_and_waited_for() {
    let mut gate = gate(1.0);
    let permits: Vec<Permit> = (0..3).map(|_| gate.admit_unasked(at(0), &GateAsk::one())).collect();
    assert_eq!((gate.in_flight(), gate.is_idle()), (3, false));
    assert!((gate.saturation() - 3.0).abs() < 1e-9);
    let drain = gate.join_drain(at(0), HERE, None, &mut Some(2)).expect("three run");
    let mut woken = Vec::new();
    for permit in permits {
        assert_eq!((gate.claim_drain(at(1), drain).0, woken.len()), (None, 0));
        woken = done(&mut gate, at(1), permit);
    }
    assert_eq!((woken, gate.claim_drain(at(1), drain).0), (vec![2], Some(true)));
    let permit = gate.admit_unasked(at(2), &GateAsk::one());
    let _ = gate.reset();
    assert!(gate.is_idle(), "nothing of the parent runs in the child of a fork");
    let next = gate.admit_unasked(at(2), &GateAsk::one());
    assert!(done(&mut gate, at(2), permit).is_empty());
    assert_eq!((gate.in_flight(), gate.is_idle()), (1, false));
    assert!(!gate.annul_paid(at(3), next).0, "nothing was paid");
    assert_eq!((gate.in_flight(), gate.is_idle()), (0, true));
}

#[test]
fn who_is_called_to_look_goes_on_waiting() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let tickets = [1, 2].map(|waiter| wait(&mut gate, at(1), &critical(), waiter));
    let called: Vec<u32> = gate.call_all(at(3)).into_iter().map(|wake| wake.waiter).collect();
    assert_eq!((called, gate.waiting()), (vec![1, 2], 2));
    assert!(gate.call_all(at(3)).is_empty(), "they are on their way");
    assert!(matches!(gate.claim(at(3), tickets[0]).0, GateClaim::Waiting));
    assert_eq!(gate.renew(tickets[0], 3), Ok(None));
    // One who has not come yet is granted it all the same.
    assert!(gate.cancel(at(4), tickets[0]).is_empty());
    assert!(done(&mut gate, at(4), permit).is_empty());
    assert_eq!(gate.renew(tickets[1], 4), Err(4));
    assert!(matches!(gate.claim(at(4), tickets[1]).0, GateClaim::Admitted(_)));
}

#[test]
fn only_a_closed_gate_rejects_who_waits_elsewhere() {
    let mut gate = gate(1.0);
    let _permit = enter(&mut gate, at(0), &critical());
    assert!(gate.reject_if_closed(at(1), Criticality::Sheddable).is_none());
    let _ = gate.close(at(2));
    let rejection = gate.reject_if_closed(at(3), Criticality::Sheddable).expect("it is closed");
    assert_eq!((rejection.reason, rejection.retry_after), (Reason::Closed, None));
    assert_eq!(rejection.criticality, Criticality::Sheddable);
    assert_eq!(gate.snapshot(at(3)).rejected[Reason::Closed.index()], 1);
}

#[test]
fn who_waits_for_the_end_and_is_not_reached_at_his_bound_is_told_later() {
    let mut gate = gate(1.0);
    let _permit = enter(&mut gate, at(0), &critical());
    let drain = gate.join_drain(at(0), HERE, Some(at(100)), &mut Some(2)).expect("one runs");
    assert_eq!(gate.expire(at(100), None).len(), 1);
    assert!(gate.unreached(at(100), drain, 2).is_empty());
    assert_eq!(gate.next_expiry(), Some(at(150)), "at once he is not reached either");
    assert_eq!(gate.expire(at(150), None).len(), 1);
    assert_eq!(gate.claim_drain(at(150), drain).0, Some(false));
}

#[test]
fn who_waits_for_the_end_is_told_when_the_last_grant_is_taken_back() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let _blocked = wait(&mut gate, at(0), &ask(Criticality::Critical, THERE), 1);
    assert_eq!(done(&mut gate, at(1), permit), [1]);
    let _ = gate.update(at(1), Some(LimitUpdate::Hold(0.0)), None, None).expect("a limit");
    let _drain = gate.join_drain(at(1), HERE, None, &mut Some(2)).expect("one is granted");
    let (_, wakes) = gate.acquire(at(60), &critical(), &mut (), &mut Some(3));
    assert_eq!(wakes.into_iter().map(|wake| wake.waiter).collect::<Vec<_>>(), [2]);
    assert_eq!(gate.in_flight(), 0);
}

#[test]
fn a_limit_that_follows_is_held_and_follows_again() {
    let algorithm = Algorithm::from(Aimd::new(AimdConfig::default()).expect("the default"));
    for limit in [GateLimit::default(), GateLimit::Classic(Box::new(algorithm), None)] {
        let mut gate = gate_with(GateConfig { limit, ..GateConfig::default() });
        let mut held_at = |now: u64, update: LimitUpdate| {
            let _ = gate.update(at(now), Some(update), None, None).expect("a limit");
            gate.limit()
        };
        assert_eq!(held_at(1, LimitUpdate::Hold(0.0)), 0.0);
        assert_eq!(held_at(2, LimitUpdate::Follow), 20.0, "where it was");
        assert_eq!(held_at(3, LimitUpdate::Hold(30.0)), 30.0);
        assert_eq!(held_at(4, LimitUpdate::Hold(0.0)), 0.0);
        assert!(gate.try_acquire(at(5), &critical(), &mut ()).0.is_err());
        for _ in 0..2 {
            let update = gate.update(at(6), Some(LimitUpdate::Follow), None, None);
            assert!(update.is_ok_and(|wakes| wakes.is_empty()));
            assert_ne!(gate.because(), "held by update()");
            let _permit = enter(&mut gate, at(6), &critical());
        }
    }
}

#[test]
fn a_dry_run_admits_all_and_counts_what_would_have_been() {
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        max_waiting: Some(1),
        max_wait: Some(Duration::from_millis(50)),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let _ = gate.set_dry_run(at(0), true);
    let permits: Vec<Permit> =
        (0..3).map(|_| gate.admit_in_dry_run(at(0), &critical(), true, &mut ()).0).collect();
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 1), "one runs, one would wait");
    let rejected =
        |gate: &Gate<u32>, reason: Reason| gate.snapshot(gate.latest()).rejected[reason.index()];
    assert_eq!(rejected(&gate, Reason::Full), 1);
    let [first, second, third]: [Permit; 3] = permits.try_into().expect("three");
    // It all takes 40 ms: the second would have begun then, and ended at 80.
    let _ = gate.release(at(40), third, None, Outcome::Success);
    let _ = gate.release(at(40), second, None, Outcome::Success);
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 1));
    let _ = gate.release(at(40), first, None, Outcome::Success);
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 0));
    assert_eq!(gate.next_expiry(), Some(at(80)));
    let _ = gate.expire(at(80), None);
    assert_eq!((gate.in_flight(), gate.waiting()), (0, 0));
    assert_eq!(rejected(&gate, Reason::Wait), 0);
    assert_eq!(gate.snapshot(at(80)).admitted, 3);
}

#[test]
fn a_shadow_that_waits_too_long_is_counted_and_holds_nothing() {
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        max_wait: Some(Duration::from_millis(50)),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let _ = gate.set_dry_run(at(0), true);
    let (first, _) = gate.admit_in_dry_run(at(0), &critical(), true, &mut ());
    let (second, _) = gate.admit_in_dry_run(at(0), &critical(), true, &mut ());
    let _ = gate.expire(at(50), None);
    let counts = gate.snapshot(at(50));
    assert_eq!((counts.rejected[Reason::Wait.index()], counts.waiting), (1, 0));
    let _ = gate.release(at(60), second, None, Outcome::Success);
    assert_eq!(gate.in_flight(), 1);
    let _ = gate.release(at(60), first, None, Outcome::Success);
    assert_eq!((gate.in_flight(), gate.next_expiry()), (0, None));
}

#[test]
fn the_end_of_a_dry_run_gives_back_what_nobody_would_have_used() {
    let mut gate = gate(1.0);
    let mut rate = Tokens::default();
    let _ = gate.set_dry_run(at(0), true);
    let permits = [0, 0, 0].map(|_| gate.admit_in_dry_run(at(0), &critical(), true, &mut rate).0);
    let [first, _second, _third] = permits;
    assert_eq!(rate.0, 3.0);
    // The second would be in flight, and the third would wait.
    let _ = gate.release(at(10), first, None, Outcome::Success);
    assert_eq!((gate.in_flight(), gate.waiting()), (1, 1));
    let _ = gate.set_dry_run(at(20), false);
    assert_eq!((gate.in_flight(), gate.waiting()), (0, 0));
    assert_eq!(gate.take_owed(), 1.0);
}

#[test]
fn what_falls_due_at_the_end_of_a_dry_run_leaves_nothing_behind() {
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        max_wait: Some(Duration::from_millis(50)),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let permit = enter(&mut gate, at(0), &critical());
    let _ = gate.set_dry_run(at(0), true);
    let (_shadow, _) = gate.admit_in_dry_run(at(0), &critical(), true, &mut ());
    let _ = gate.set_dry_run(at(50), false);
    assert_eq!(gate.snapshot(at(50)).rejected[Reason::Wait.index()], 1);
    let _granted = wait(&mut gate, at(50), &critical(), 1);
    assert_eq!(done(&mut gate, at(60), permit), [1]);
    assert_eq!(gate.next_expiry(), None, "nobody waits who could have it instead");
}

#[test]
fn who_is_annulled_in_a_dry_run_gets_back_what_he_paid_and_no_more() {
    let config = GateConfig {
        limit: GateLimit::Fixed(1.0),
        max_waiting: Some(1),
        max_wait: Some(Duration::from_millis(100)),
        ..GateConfig::default()
    };
    let mut gate = gate_with(config);
    let _ = gate.set_dry_run(at(0), true);
    let mut tokens = Tokens::default();
    let mut come =
        |gate: &mut Gate<u32>| gate.admit_in_dry_run(at(0), &critical(), true, &mut tokens).0;
    let (runs, waits, is_rejected) = (come(&mut gate), come(&mut gate), come(&mut gate));
    assert_eq!(gate.take_owed(), 1.0, "who would be rejected is to have his back");
    assert!(!gate.annul_paid(at(1), is_rejected).0);
    assert!(gate.annul_paid(at(1), waits).0, "he would have paid, and waits no more");
    assert_eq!((gate.in_flight(), gate.waiting(), gate.take_owed()), (1, 0, 0.0));
    let late = gate.admit_in_dry_run(at(1), &critical(), true, &mut tokens).0;
    assert!(!gate.annul_paid(at(101), late).0, "his wait was over: it is owed to him already");
    assert_eq!(gate.take_owed(), 1.0);
    assert!(gate.annul_paid(at(101), runs).0);
    assert_eq!((gate.in_flight(), gate.snapshot(at(101)).admitted), (0, 0));
    assert!(gate.next_expiry().is_none());
}

#[test]
fn who_has_to_wait_and_cannot_be_in_time_does_not_come_into_the_line() {
    let mut gate = gate(1.0);
    for turn in 0..20 {
        let permit = enter(&mut gate, at(100 * turn), &critical());
        done(&mut gate, at(100 * turn + 100), permit);
    }
    let now = at(2_000);
    let _running = enter(&mut gate, now, &critical());
    let hasty = GateAsk { deadline: Some(at(2_050)), ..critical() };
    assert_eq!(rejected(&mut gate, now, &hasty), Reason::Deadline, "with nobody before him");
    wait(&mut gate, now, &GateAsk { deadline: Some(at(2_200)), ..critical() }, 1);
}

/// What comes of many who come to a line under pressure, asked for in one step or two.
fn under_pressure(has_attempt: bool) -> Vec<Option<Reason>> {
    let mut gate = gate_with(GateConfig {
        limit: GateLimit::Fixed(1.0),
        has_pressure: true,
        sheds_by_line: true,
        ..GateConfig::default()
    });
    let _running = enter(&mut gate, at(0), &critical());
    gate.note_pressure(2.0);
    let come = |turn: u64| {
        let (now, ask) = (at(10 * turn), critical());
        if has_attempt && let (Some(answer), _) = gate.attempt(now, &ask, &mut ()) {
            return Some(answer.expect_err("there is no room").reason);
        }
        match gate.acquire(now, &ask, &mut (), &mut Some(0)).0 {
            GateAdmission::Admitted(permit) => panic!("there is no room: {permit:?}"),
            GateAdmission::Rejected(rejection) => Some(rejection.reason),
            GateAdmission::Waiting(ticket) => {
                let _ = gate.cancel(now, ticket);
                None
            }
        }
    };
    (0..200).map(come).collect()
}

#[test]
fn who_is_asked_for_a_place_to_wait_at_is_judged_once() {
    let answers = under_pressure(true);
    assert_eq!(answers, under_pressure(false));
    let waiting = answers.iter().filter(|answer| answer.is_none()).count();
    assert!((20..180).contains(&waiting), "{waiting} of 200");
}

#[test]
fn the_end_of_what_runs_in_a_dry_run_is_that_of_what_runs_in_truth() {
    let mut gate = gate(1.0);
    let _ = gate.set_dry_run(at(0), true);
    let come = |gate: &mut Gate<u32>| gate.admit_in_dry_run(at(0), &critical(), true, &mut ()).0;
    let (first, second) = (come(&mut gate), come(&mut gate));
    let _ = gate.close(at(0));
    let drain = gate.join_drain(at(0), HERE, None, &mut Some(9)).expect("two are at work");
    assert!(done(&mut gate, at(1), first).is_empty());
    assert_eq!(gate.claim_drain(at(1), drain).0, None);
    assert_eq!(done(&mut gate, at(2), second), [9]);
    assert_eq!(gate.claim_drain(at(2), drain).0, Some(true));
}

#[test]
fn shadows_leave_the_line_when_a_gate_is_closed_in_a_dry_run() {
    let mut gate = gate(1.0);
    let running = enter(&mut gate, at(0), &critical());
    let _granted = wait(&mut gate, at(0), &critical(), 1);
    let _ = gate.set_dry_run(at(0), true);
    let (waits, _) = gate.admit_in_dry_run(at(0), &critical(), true, &mut ());
    let _ = gate.close(at(0));
    let _ = gate.expire(at(50), Some(HERE));
    assert!(gate.next_expiry().is_none_or(|next| next > at(50)), "it is due at once again");
    for permit in [running, waits] {
        let _ = done(&mut gate, at(50), permit);
    }
}

#[test]
fn pressure_spares_what_matters_most_and_what_comes_to_an_idle_gate() {
    let config =
        GateConfig { limit: GateLimit::Fixed(10.0), has_pressure: true, ..GateConfig::default() };
    let mut gate = gate_with(config);
    gate.note_pressure(4.0);
    let busy = enter(&mut gate, at(0), &critical());
    let mut rejected = [0; 4];
    for turn in 1..1_000 {
        for criticality in Criticality::ALL {
            let now = at(10 * turn);
            let (answer, _) = gate.try_acquire(now, &ask(criticality, HERE), &mut ());
            match answer {
                Ok(permit) => drop(done(&mut gate, now, permit)),
                Err(rejection) => {
                    assert_eq!(rejection.reason, Reason::Priority);
                    rejected[criticality.index()] += 1;
                }
            }
        }
    }
    let [sheddable, _, critical_ones, plus] = rejected;
    assert!(sheddable > 900 && critical_ones > 500, "{rejected:?}");
    assert_eq!(plus, 0, "whatever the pressure is");
    let _ = done(&mut gate, at(9_999), busy);
    let (answer, _) = gate.try_acquire(at(9_999), &ask(Criticality::Sheddable, HERE), &mut ());
    assert!(answer.is_ok(), "nothing is in flight");
}

#[test]
fn who_waits_is_admitted_when_a_dry_run_begins() {
    let mut gate = gate(1.0);
    let permit = enter(&mut gate, at(0), &critical());
    let tickets = [1, 2].map(|name| wait(&mut gate, at(0), &critical(), name));
    let woken: Vec<u32> =
        gate.set_dry_run(at(1), true).into_iter().map(|wake| wake.waiter).collect();
    assert_eq!((woken.as_slice(), gate.waiting(), gate.in_flight()), (&[1, 2][..], 0, 1));
    let mut held: Vec<Permit> =
        tickets.map(|ticket| claim(&mut gate, at(1), ticket)).into_iter().collect();
    held.push(permit);
    for permit in held {
        assert!(!gate.is_idle());
        assert!(done(&mut gate, at(2), permit).is_empty());
    }
    assert!(gate.is_idle());
    assert_eq!((gate.in_flight(), gate.next_expiry()), (0, None));
}

#[test]
fn who_is_rejected_is_one_who_asked() {
    let config =
        GateConfig { limit: GateLimit::Fixed(1.0), max_waiting: Some(0), ..GateConfig::default() };
    let mut gate = gate_with(config);
    for _ in 0..5 {
        let permit = enter(&mut gate, at(0), &critical());
        assert_eq!(rejected(&mut gate, at(0), &critical()), Reason::Limit);
        let _ = done(&mut gate, at(0), permit);
    }
    let tally = |event| match event {
        Some(Rejecting::Stopped(tally)) => tally,
        other => panic!("{other:?}"),
    };
    assert!(matches!(gate.news(), Some(Rejecting::Began { .. })));
    let _ = gate.expire(at(6_000), None);
    let tally = tally(gate.news());
    assert_eq!((tally.rejected, tally.asked), (5, 9), "of 10, the first came before it began");
}

#[test]
fn shadows_that_would_end_at_the_same_moment_end_in_the_order_in_which_they_came() {
    let aimd = Algorithm::Aimd(
        Aimd::new(AimdConfig { initial: 1, min_limit: 1, ..AimdConfig::default() })
            .expect("it is in its range"),
    );
    let config =
        GateConfig { limit: GateLimit::Classic(Box::new(aimd), None), ..GateConfig::default() };
    let mut dry = gate_with(config.clone());
    let _ = dry.set_dry_run(at(0), true);
    let first = dry.admit_in_dry_run(at(0), &critical(), true, &mut ()).0;
    // So that the places of those who come next are not in the order in which they come.
    for permit in [(); 2].map(|()| dry.admit_in_dry_run(at(0), &critical(), true, &mut ()).0) {
        let _ = dry.annul(at(0), permit);
    }
    for permit in [(); 3].map(|()| dry.admit_in_dry_run(at(0), &critical(), true, &mut ()).0) {
        let _ = dry.release(at(10), permit, None, Outcome::Success);
    }
    let _ = dry.release(at(20), first, None, Outcome::Success);
    let _ = dry.expire(at(30), None);

    let mut real = gate_with(config);
    let first = enter(&mut real, at(0), &critical());
    let tickets = [1, 2, 3].map(|name| wait(&mut real, at(0), &critical(), name));
    assert_eq!(done(&mut real, at(20), first), [1, 2]);
    let [second, third] = [tickets[0], tickets[1]].map(|ticket| claim(&mut real, at(20), ticket));
    assert_eq!(done(&mut real, at(30), second), [3]);
    let _ = done(&mut real, at(30), third);
    assert_eq!((dry.limit(), dry.in_flight()), (real.limit(), real.in_flight()));
}

#[test]
fn who_is_over_when_he_comes_tells_nobody_else_to_come_back_later() {
    let mut gate = gate(1.0);
    let _permit = enter(&mut gate, at(0), &critical());
    let over = GateAsk { deadline: Some(at(0)), ..critical() };
    for ms in 0..5_000 {
        let rejection = gate.try_acquire(at(ms), &over, &mut ()).0.expect_err("it is over");
        assert_eq!(rejection.reason, Reason::Deadline);
    }
    let rejection = gate.try_acquire(at(5_000), &critical(), &mut ()).0.expect_err("it is full");
    assert!(rejection.retry_after.is_some_and(|span| span <= Duration::from_secs(2)));
    assert_eq!(gate.snapshot(at(5_000)).rejected[Reason::Deadline.index()], 5_000);
    assert!(gate.news().is_none_or(|news| !format!("{news:?}").contains("Deadline")));
}
