//! The same comers at two gates, one of which only counts: it counts what is done at the
//! other one.

use std::collections::BTreeMap;

use sluicegate::primitives::{
    Ask, Criticality, Gate, GateAdmission, GateAsk, GateClaim, GateConfig, Home, Outcome, Permit,
    Ticket, Time, Waitable, Wakes,
};

use crate::steps::{Job, OPERATIONS};

const OUTCOMES: [Outcome; 3] = [Outcome::Success, Outcome::Ignored, Outcome::Overload];

struct Twin {
    gate: Gate<usize>,
    is_dry: bool,
    tickets: BTreeMap<usize, Ticket>,
    /// Of whom work ends then; the number tells apart who ends at the same time.
    ends: BTreeMap<(Time, usize), Permit>,
}

pub fn compare(config: &GateConfig, jobs: &[Job]) {
    let [mut real, mut dry] = [false, true].map(|is_dry| {
        let mut gate = Gate::new(config.clone()).expect("it is within its ranges");
        let _ = gate.set_dry_run(Time::ZERO, is_dry);
        Twin { gate, is_dry, tickets: BTreeMap::new(), ends: BTreeMap::new() }
    });
    let mut now = 0;
    for (name, job) in jobs.iter().enumerate() {
        // So that hardly anything happens at the same time.
        now += job.later * 1_000 + 1 + name as u64 % 7;
        for twin in [&mut real, &mut dry] {
            twin.go_on_until(Time::from_nanos(now), jobs);
            twin.come(Time::from_nanos(now), name, jobs);
        }
        same(&real, &dry);
        let [one, other] = [&real, &dry].map(|twin| twin.gate.snapshot(twin.gate.latest()));
        assert_eq!((one.wait_bound, one.oldest_wait), (other.wait_bound, other.oldest_wait));
    }
    for twin in [&mut real, &mut dry] {
        twin.go_on_until(Time::MAX, jobs);
        assert_eq!((twin.gate.in_flight(), twin.gate.waiting()), (0, 0));
    }
    same(&real, &dry);
}

fn same(real: &Twin, dry: &Twin) {
    let [one, other] = [real, dry].map(|twin| twin.gate.snapshot(twin.gate.latest()));
    assert_eq!(one.rejected, other.rejected, "rejected");
    assert_eq!((one.in_flight, one.waiting), (other.in_flight, other.waiting), "in flight");
    assert_eq!(
        (one.service_mean, one.service_p95),
        (other.service_mean, other.service_p95),
        "service"
    );
    assert_eq!(one.limit.to_bits(), other.limit.to_bits(), "the limit");
}

impl Twin {
    fn come(&mut self, now: Time, name: usize, jobs: &[Job]) {
        let job = &jobs[name];
        let mut ask = Ask::new(job.cost).expect("it is in its range");
        ask.criticality = Criticality::ALL[job.criticality];
        ask.home = Some(Home(1));
        let ask = GateAsk {
            ask,
            deadline: job.deadline.map(|later| Time::from_nanos(now.as_nanos() + later * 1_000)),
            tokens: 0.0,
            operation: OPERATIONS[job.operation],
            ..GateAsk::one()
        };
        if self.is_dry {
            let (permit, wakes) = self.gate.admit_in_dry_run(now, &ask, job.may_wait, &mut ());
            assert!(wakes.is_empty());
            self.work(now, name, permit, job);
            return;
        }
        let mut waiter = job.may_wait.then_some(name);
        let (admission, wakes) = self.gate.acquire(now, &ask, &mut (), &mut waiter);
        match admission {
            GateAdmission::Admitted(permit) => self.work(now, name, permit, job),
            GateAdmission::Waiting(ticket) => drop(self.tickets.insert(name, ticket)),
            GateAdmission::Rejected(_) => {}
        }
        self.wake(now, wakes, jobs);
    }

    fn work(&mut self, now: Time, name: usize, permit: Permit, job: &Job) {
        let end = Time::from_nanos(now.as_nanos() + job.service * 1_000);
        self.ends.insert((end, name), permit);
    }

    fn wake(&mut self, now: Time, wakes: Wakes<usize>, jobs: &[Job]) {
        for wake in wakes {
            let name = wake.waiter;
            self.tickets.remove(&name);
            let (claim, more) = self.gate.claim(now, wake.ticket);
            match claim {
                GateClaim::Admitted(permit) => self.work(now, name, permit, &jobs[name]),
                GateClaim::Rejected(_) => {}
                other => panic!("{other:?}"),
            }
            self.wake(now, more, jobs);
        }
    }

    /// Lets all happen that happens before then.
    fn go_on_until(&mut self, until: Time, jobs: &[Job]) {
        loop {
            let end = self.ends.keys().next().map(|&(at, _)| at);
            let due = self.gate.next_expiry();
            let Some(next) = end.into_iter().chain(due).min().filter(|&next| next < until) else {
                return;
            };
            let wakes = if due == Some(next) {
                self.gate.expire(next, Some(Home(1)))
            } else {
                let ((now, name), permit) = self.ends.pop_first().expect("it is there");
                let job = &jobs[name];
                let operation = OPERATIONS[job.operation];
                self.gate.release(now, permit, operation, OUTCOMES[job.outcome])
            };
            self.wake(next, wakes, jobs);
        }
    }
}
