//! What becomes of single requests at the servers, to the nanosecond.

use serde_json::{Value, json};

use crate::play::{assert_near, measure, play};

/// Requests at these moments, and what they meet.
fn scenario(times: &[f64], stage: &Value) -> Value {
    json!({ "seconds": 100, "arrivals": [{ "times": times }], "stage": [stage] })
}

/// The latencies of the answers, sorted, as far as they come: each arrival is a class
/// of its own.
fn latencies(times: &[f64], stage: &Value) -> Vec<f64> {
    let arrivals: Vec<Value> = times
        .iter()
        .enumerate()
        .map(|(n, at)| json!({ "times": [at], "class": n.to_string() }))
        .collect();
    let expect: Vec<Value> = (0..times.len())
        .map(|n| json!({ "class": n.to_string(), "slowest": { "min": 0 } }))
        .collect();
    let scenario =
        json!({ "seconds": 100, "arrivals": arrivals, "stage": [stage], "expect": expect });
    play(&scenario, 1).checks.iter().map(|check| check.value.unwrap_or(f64::INFINITY)).collect()
}

const NEVER: f64 = f64::INFINITY;

#[test]
fn work_waits_for_its_worker() {
    let stage = json!({ "workers": 2, "service": { "constant": 1 } });
    assert_eq!(latencies(&[0.0, 0.5, 0.6, 0.7, 5.0], &stage), [1.0, 1.0, 1.4, 1.8, 1.0]);
    let stage = json!({ "service": { "constant": 1e-9 } });
    assert_eq!(latencies(&[0.0, 1e-9, 1e-9], &stage), [1e-9; 3]);
}

#[test]
fn a_delay_is_no_work() {
    let stage = json!({ "workers": 1, "service": { "constant": 0.1 }, "delay": { "constant": 2 } });
    assert_eq!(latencies(&[0.0, 0.0, 0.0], &stage), [2.1, 2.2, 2.3]);
    let stage = json!({ "delay": { "constant": 1 }, "delay_per_in_flight": 0.5 });
    assert_eq!(latencies(&[0.0, 0.1, 0.2, 50.0], &stage), [1.5, 2.0, 2.5, 1.5]);
}

#[test]
fn a_slower_server_takes_as_much_longer() {
    let stage = json!({
        "service": { "constant": 1 },
        "speed": [[0, 0.5], [4, 1], [10.5, 0], [12, 2]],
    });
    let expected = [
        (1.0, 2.0),
        (3.0, 1.5), // half is done at 4
        (5.0, 1.0),
        (10.0, 2.25), // half at 10.5, the rest from 12 on
        (11.0, 1.5),
        (20.0, 0.5),
    ];
    let (times, spans): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    assert_eq!(latencies(&times, &stage), spans);
}

#[test]
fn what_stops_for_ever_is_never_done() {
    let stage = json!({ "service": { "constant": 1 }, "speed": [[0, 1], [5, 0]] });
    assert_eq!(latencies(&[0.0, 4.0, 4.5, 6.0], &stage), [1.0, 1.0, NEVER, NEVER]);
    let stage = json!({ "service": { "constant": 1 }, "workers": 0 });
    assert_eq!(latencies(&[0.0], &stage), [NEVER]);
    let mut scenario = scenario(&[0.0, 1.0], &stage);
    let [late, good] = measure(&scenario, 1, (0.0, 100.0), ["late", "good"]);
    assert_eq!([late, good], [1.0, 0.0]);
    scenario["client"] = json!({ "timeout": 1, "attempts": 3, "on_timeout": "cancel" });
    let [late, attempts] = measure(&scenario, 1, (0.0, 100.0), ["late", "attempts_per_request"]);
    assert_eq!([late, attempts], [1.0, 3.0]);
}

#[test]
fn stops_come_again_and_again() {
    let stage = json!({ "service": { "constant": 0.4 }, "stops": { "every": 10, "length": 0.5 } });
    let expected = [(0.1, 0.4), (9.6, 0.4), (9.8, 0.9), (10.2, 0.7), (19.8, 0.9), (89.9, 0.9)];
    let (times, spans): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    assert_close(&latencies(&times, &stage), &spans);
    // Work that is longer than what lies between two of them.
    let stage = json!({ "service": { "constant": 2 }, "stops": { "every": 1, "length": 0.5 } });
    assert_close(&latencies(&[0.0], &stage), &[3.0]);
}

#[track_caller]
fn assert_close(values: &[f64], expected: &[f64]) {
    let is_close = |(value, expected): (&f64, &f64)| (value - expected).abs() < 1e-8;
    assert!(values.iter().zip(expected).all(is_close), "{values:?}, not {expected:?}");
}

#[test]
fn workers_come_and_go() {
    let stage = json!({ "service": { "constant": 1 }, "workers": [[0, 2], [2, 1], [6, 3]] });
    // Two at 0; one at a time from 2 on, where a second one is finished by 2.5; all at 6.
    let times = [0.0, 0.0, 1.5, 1.5, 1.6, 1.6, 1.6, 1.6, 5.6];
    let spans = [1.0, 1.0, 1.0, 1.0, 1.9, 2.9, 3.9, 4.9, 1.4];
    assert_close(&latencies(&times, &stage), &spans);
}

#[test]
fn a_refusal_takes_a_workers_time() {
    let stage = json!({
        "policy": { "fixed": { "limit": 1 } },
        "workers": 1,
        "service": { "constant": 0.1 },
        "rejection_cost": 0.05,
    });
    let times = [0.0, 0.01, 0.02, 0.15];
    assert_close(&latencies(&times, &stage)[3..], &[0.15]);
    assert_eq!(latencies(&times, &stage)[1..3], [NEVER; 2]);
}

#[test]
fn operations_have_their_own_times() {
    let scenario = json!({
        "seconds": 10,
        "arrivals": [
            { "times": [0, 1], "class": "plain" },
            { "times": [0, 1], "class": "slow", "operation": "slow" },
            { "times": [0], "class": "other", "operation": "other" },
        ],
        "stage": [{
            "service": { "constant": 0.1 },
            "operations": { "slow": [[0, { "constant": 3 }], [1, { "constant": 4 }]] },
        }],
        "expect": [
            { "class": "plain", "mean": { "min": 0.1, "max": 0.1 } },
            { "class": "slow", "mean": { "min": 3.5, "max": 3.5 } },
            { "class": "other", "mean": { "min": 0.1, "max": 0.1 } },
        ],
    });
    assert!(play(&scenario, 1).holds());
}

#[test]
fn the_more_critical_is_first() {
    let scenario = |policy: &Value| {
        json!({
            "seconds": 10,
            "arrivals": [
                { "times": [0, 0.1], "class": "low", "criticality": "sheddable" },
                { "times": [0.2], "class": "high", "criticality": "critical_plus" },
            ],
            "stage": [{ "policy": policy, "workers": 1, "service": { "constant": 1 } }],
            "expect": [
                { "class": "low", "slowest": { "min": 2.9, "max": 2.9 } },
                { "class": "high", "slowest": { "min": 1.8, "max": 1.8 } },
            ],
        })
    };
    let long = json!({ "codel": { "target": 10, "interval": 20 } });
    for policy in [json!({ "fixed": { "limit": 1, "wait": 10 } }), long] {
        let report = play(&scenario(&policy), 1);
        assert!(report.holds(), "{:?}", report.checks);
    }
}

#[test]
fn plain_queues_have_an_order_a_capacity_and_an_estimate() {
    let latencies = |policy: &Value| {
        let stage = json!({ "policy": policy, "workers": 1, "service": { "constant": 1 } });
        latencies(&[0.0, 0.1, 0.2, 0.3], &stage)
    };
    assert_close(&latencies(&json!("fifo")), &[1.0, 1.9, 2.8, 3.7]);
    assert_close(&latencies(&json!("lifo")), &[1.0, 3.9, 2.8, 1.7]);
    assert_eq!(latencies(&json!({ "fifo": { "capacity": 2 } }))[3], NEVER);
    assert_eq!(latencies(&json!({ "fifo": { "capacity": 0 } })), [NEVER; 4]);
    let mut scenario = scenario(
        &[0.0, 0.1, 0.2, 0.3],
        &json!({ "policy": { "fifo": { "estimate": 1 } }, "workers": 1, "service": { "constant": 1 } }),
    );
    scenario["client"] = json!({ "deadline": 2.8 });
    let [good, rejected] = measure(&scenario, 1, (0.0, 100.0), ["good", "rejected"]);
    assert_eq!([good, rejected], [0.75, 0.25]);
}

/// Two stages, of which the first has a limit that overload brings down.
fn limit_before(second: &Value) -> f64 {
    let scenario = json!({
        "seconds": 20,
        "arrivals": [{ "rate": 100 }],
        "stage": [
            { "policy": { "aimd": { "initial": 50 } }, "service": { "constant": 0.1 } },
            second,
        ],
    });
    measure(&scenario, 1, (0.0, 20.0), ["limit_min"])[0]
}

#[test]
fn what_a_stage_below_refuses_is_no_overload_above() {
    assert_eq!(limit_before(&json!({ "policy": { "fifo": { "capacity": 0 } } })), 50.0);
    assert_eq!(limit_before(&json!({ "outcome": "overload" })), 50.0);
    // The same of its own.
    let scenario = json!({
        "seconds": 20,
        "arrivals": [{ "rate": 100 }],
        "stage": [{ "policy": { "aimd": { "initial": 50 } }, "outcome": "overload" }],
    });
    let [limit, failed] = measure(&scenario, 1, (0.0, 20.0), ["limit_min", "failed"]);
    assert!(limit < 50.0, "{limit}");
    assert_eq!(failed, 1.0);
}

#[test]
fn stages_come_one_after_the_other() {
    let scenario = json!({
        "seconds": 10,
        "arrivals": [{ "times": [0, 1] }],
        "stage": [
            { "policy": { "fixed": { "limit": 1 } }, "service": { "constant": 0.3 } },
            { "workers": 1, "service": { "constant": 0.9 }, "outcome": [[0, "success"], [1, "ignored"]] },
        ],
    });
    // The limit of the first is held until the second is done.
    let [good, rejected, mean] = measure(&scenario, 1, (0.0, 10.0), ["good", "rejected", "mean"]);
    assert_eq!([good, rejected, mean], [0.5, 0.5, 1.2]);
    let mut scenario = scenario;
    scenario["arrivals"][0]["times"] = json!([0, 1.5]);
    let [good, failed] = measure(&scenario, 1, (0.0, 10.0), ["good", "failed"]);
    assert_eq!([good, failed], [0.5, 0.5]);
}

#[test]
fn work_that_nobody_waits_for_goes_on_unless_it_is_cancelled() {
    let answers = |on_timeout: &str, policy: &str| {
        let mut scenario = scenario(
            &[0.0, 0.1],
            &json!({ "policy": policy, "workers": 1, "service": { "constant": 2 } }),
        );
        scenario["client"] = json!({ "timeout": 1, "on_timeout": on_timeout });
        let [throughput, late] = measure(&scenario, 1, (0.0, 100.0), ["throughput", "late"]);
        assert_eq!(late, 1.0);
        (throughput * 100.0).round()
    };
    // What waits before the workers is theirs; in a queue it can be taken back.
    assert_eq!(["go_on", "release", "cancel"].map(|how| answers(how, "none")), [2.0, 2.0, 0.0]);
    assert_eq!(["go_on", "release", "cancel"].map(|how| answers(how, "fifo")), [2.0, 1.0, 0.0]);
    assert_eq!(["go_on", "release", "cancel"].map(|how| answers(how, "codel"))[1..], [1.0, 0.0]);
}

#[test]
fn a_billion_stops_take_no_memory() {
    let scenario = json!({
        "seconds": 1e6,
        "step": 1000,
        "arrivals": [{ "rate": 0.01 }],
        "stage": [{
            "service": { "constant": 100_000 },
            "stops": { "every": 0.001, "length": 0.0005 },
        }],
    });
    let [least, most] = measure(&scenario, 1, (300_000.0, 1e6), ["p50", "slowest"]);
    assert_near(least, 200_000.0, 1e-6);
    assert_near(most, 200_000.0, 1e-6);
}

#[test]
fn the_last_step_may_be_short() {
    for (seconds, step, times) in
        [(2.5, 1.0, vec![1.0, 2.0, 2.5]), (2.0, 1.0, vec![1.0, 2.0]), (2.0, 60.0, vec![2.0])]
    {
        let scenario = json!({
            "seconds": seconds,
            "step": step,
            "arrivals": [{ "rate": 100, "process": "constant" }],
            "stage": [{}],
        });
        let report = play(&scenario, 1);
        let series = report.series;
        assert_eq!(series.time, times);
        let spans = times.iter().scan(0.0, |from, to| Some(to - std::mem::replace(from, *to)));
        let came: f64 = spans.zip(&series.offered).map(|(span, rate)| span * rate).sum();
        assert_near(came, report.requests as f64, 1e-9);
    }
}
