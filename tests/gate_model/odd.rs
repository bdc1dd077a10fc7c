//! A gate with a clock that shows anything.

use std::collections::BTreeMap;

use sluicegate::primitives::{
    Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, Home, LimitUpdate, Outcome,
    Permit, Ticket, Time, Waitable, Wakes,
};

use crate::steps::{HOMES, OddStep};

pub fn play(config: &GateConfig, steps: &[(u64, OddStep)]) {
    let mut gate: Gate<usize> = Gate::new(config.clone()).expect("it is within its ranges");
    let mut tickets: BTreeMap<usize, Ticket> = BTreeMap::new();
    let mut permits: Vec<Permit> = Vec::new();
    let mut had_shadows = false;
    for (name, &(now, step)) in steps.iter().enumerate() {
        let now = Time::from_nanos(now);
        match step {
            OddStep::Come { criticality, home, deadline } => {
                let mut ask = GateAsk::one();
                ask.ask.criticality = Criticality::ALL[criticality];
                ask.ask.home = Some(Home(home));
                ask.deadline = deadline.map(Time::from_nanos);
                if gate.is_dry_run() {
                    permits.push(gate.admit_in_dry_run(now, &ask, true, &mut ()).0);
                } else {
                    match gate.acquire(now, &ask, &mut (), &mut Some(name)).0 {
                        GateAdmission::Admitted(permit) => permits.push(permit),
                        GateAdmission::Waiting(ticket) => drop(tickets.insert(name, ticket)),
                        GateAdmission::Rejected(_) => {}
                    }
                }
            }
            OddStep::Claim(which) => {
                let names: Vec<usize> = tickets.keys().copied().collect();
                if !names.is_empty() {
                    claim(
                        &mut gate,
                        now,
                        names[which.index(names.len())],
                        &mut tickets,
                        &mut permits,
                    );
                }
            }
            OddStep::Cancel(which) => {
                let names: Vec<usize> = tickets.keys().copied().collect();
                if !names.is_empty() {
                    let ticket = tickets.remove(&names[which.index(names.len())]);
                    let _ = gate.cancel(now, ticket.expect("it is there"));
                }
            }
            OddStep::Release(which, outcome) => {
                if !permits.is_empty() {
                    let permit = permits.swap_remove(which.index(permits.len()));
                    let outcome = [Outcome::Success, Outcome::Ignored, Outcome::Overload][outcome];
                    let _ = gate.release(now, permit, None, outcome);
                }
            }
            OddStep::Expire(home) => drop(gate.expire(now, home.map(Home))),
            OddStep::Update(limit) => {
                drop(gate.update(now, Some(LimitUpdate::Hold(limit)), None, None));
            }
            OddStep::DryRun(is_dry_run) => {
                had_shadows |= is_dry_run;
                drop(gate.set_dry_run(now, is_dry_run));
            }
        }
        let held: u64 = permits.iter().map(|permit| u64::from(permit.cost())).sum();
        let most = held + tickets.len() as u64;
        let in_flight = gate.in_flight();
        assert!(held <= in_flight && (gate.is_dry_run() || in_flight <= most));
        assert!(gate.is_dry_run() || gate.waiting() <= tickets.len());
        assert!(gate.next_expiry().is_none_or(|next| next < Time::MAX));
        if !had_shadows {
            assert_eq!(gate.snapshot(now).admitted, admitted(&gate, permits.len()));
        }
    }
    // Everything is given back, and the end of all time is near.
    for permit in permits.drain(..) {
        drop(gate.release(Time::MAX, permit, None, Outcome::Success));
    }
    for home in 0..HOMES {
        drop(gate.expire(Time::MAX, Some(Home(home))));
    }
    while let Some((&name, _)) = tickets.iter().next() {
        assert!(claim(&mut gate, Time::MAX, name, &mut tickets, &mut permits), "it is the end");
        for permit in permits.drain(..) {
            drop(gate.release(Time::MAX, permit, None, Outcome::Success));
        }
    }
    let _: Wakes<usize> = gate.set_dry_run(Time::MAX, false);
    assert_eq!((gate.in_flight(), gate.waiting(), gate.next_expiry()), (0, 0, None));
    assert!(!gate.has_unclaimed(None));
}

/// All who were, are given back or are at work.
fn admitted(gate: &Gate<usize>, held: usize) -> u64 {
    let given_back: u64 = gate.snapshot(gate.latest()).outcomes.iter().sum();
    given_back + held as u64
}

/// Whether it is over.
fn claim(
    gate: &mut Gate<usize>,
    now: Time,
    name: usize,
    tickets: &mut BTreeMap<usize, Ticket>,
    permits: &mut Vec<Permit>,
) -> bool {
    match gate.claim(now, tickets[&name]).0 {
        GateClaim::Admitted(permit) => permits.push(permit),
        GateClaim::Waiting => return false,
        GateClaim::Rejected(_) => {}
        GateClaim::Unknown => panic!("{name} is known"),
    }
    tickets.remove(&name);
    true
}
