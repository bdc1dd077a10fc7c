//! What clients do: how long they wait, how often they try, and what holds them back.

use serde_json::{Value, json};

use crate::play::{assert_near, measure, play};

/// One request at 0 that is refused again and again.
fn refused(client: &Value) -> Value {
    json!({
        "seconds": 40,
        "arrivals": [{ "times": [0] }],
        "client": client,
        "stage": [{ "policy": { "fifo": { "capacity": 0 } } }],
    })
}

/// In which seconds attempts were sent.
fn seconds_of_attempts(client: &Value) -> Vec<usize> {
    let attempts = play(&refused(client), 1).series.attempts;
    (0..attempts.len()).filter(|second| attempts[*second] > 0.0).collect()
}

#[test]
fn retries_back_off() {
    let retry = |retry: Value| json!({ "attempts": 5, "retry": retry });
    assert_eq!(seconds_of_attempts(&retry(json!({ "wait": 1 }))), [0, 1, 3, 7, 15]);
    assert_eq!(seconds_of_attempts(&retry(json!({ "wait": 2, "factor": 1 }))), [0, 2, 4, 6, 8]);
    let retries = retry(json!({ "wait": 1, "factor": 3, "max_wait": 5 }));
    assert_eq!(seconds_of_attempts(&retries), [0, 1, 4, 9, 14]);
    assert_eq!(seconds_of_attempts(&json!({ "attempts": 5, "retry": { "on": ["timeout"] } })), [0]);
    assert_eq!(play(&refused(&json!({ "attempts": 4 })), 1).series.attempts[0], 4.0);
}

#[test]
fn nothing_to_wait_is_nothing_however_often() {
    // Of 1000 to the power of 998 there is no number.
    let retry = json!({ "attempts": 1000, "retry": { "wait": 0, "factor": 1000 } });
    assert_eq!(play(&refused(&retry), 1).series.attempts[0], 1000.0);
}

#[test]
fn those_who_leave_a_long_queue_do_so_in_time() {
    // Wherever in the queue they are.
    for policy in ["none", "fifo", "lifo"] {
        let scenario = json!({
            "seconds": 20,
            "arrivals": [{ "rate": 2_000 }],
            "client": { "timeout": 10, "on_timeout": "cancel" },
            "stage": [{ "policy": policy, "workers": 1, "service": { "constant": 0.1 } }],
        });
        let report = play(&scenario, 1);
        let waiting = report.series.waiting[19];
        assert!((19_500..20_500).contains(&waiting), "{policy}: {waiting}");
    }
}

#[test]
fn jitter_is_within_its_bounds() {
    for (jitter, least, mean) in [("full", 0.0, 5.0), ("equal", 5.0, 7.5)] {
        let scenario = json!({
            "seconds": 12,
            "arrivals": [{ "times": vec![0.0; 2_000] }],
            "client": { "attempts": 2, "retry": { "wait": 10, "jitter": jitter } },
            "stage": [{ "policy": { "fifo": { "capacity": 0 } } }],
        });
        let attempts = play(&scenario, 1).series.attempts;
        let retries: Vec<(f64, f64)> = { attempts.iter().enumerate() }
            .map(|(second, count)| {
                (second as f64, if second == 0 { count - 2_000.0 } else { *count })
            })
            .filter(|(_, count)| *count > 0.0)
            .collect();
        assert!(retries.iter().all(|(second, _)| (least..10.0).contains(second)), "{retries:?}");
        let sum: f64 = retries.iter().map(|(second, count)| (second + 0.5) * count).sum();
        assert_near(sum / 2_000.0, mean, 0.03);
    }
}

#[test]
fn messages_take_their_time() {
    let mut scenario = json!({
        "seconds": 10,
        "arrivals": [{ "times": [0] }],
        "client": { "network": { "constant": 0.1 }, "timeout": 0.5 },
        "stage": [{ "workers": 1, "service": { "constant": 0.3 } }],
    });
    let measured = |scenario: &Value| measure(scenario, 1, (0.0, 10.0), ["good", "mean"]);
    assert_eq!(measured(&scenario), [0.0, 0.5], "the time-out is at 0.5, and was planned before");
    scenario["client"]["timeout"] = json!(0.51);
    assert_eq!(measured(&scenario), [1.0, 0.5]);
    // The way to the server comes off what the deadline leaves there.
    scenario["arrivals"][0]["times"] = json!([0, 0]);
    scenario["client"] = json!({ "network": { "constant": 0.1 }, "deadline": 0.65 });
    scenario["stage"][0]["policy"] = json!({ "fifo": { "estimate": 0.3 } });
    assert_eq!(measured(&scenario)[0], 0.5);
    scenario["client"]["deadline"] = json!(0.71);
    assert_eq!(measured(&scenario)[0], 1.0);
}

#[test]
fn a_budget_bounds_the_retries() {
    let scenario = |budget: Value| {
        let mut scenario = refused(&json!({ "attempts": 10, "budget": budget }));
        scenario["arrivals"] = json!([{ "rate": 100 }]);
        scenario["seconds"] = json!(200);
        scenario
    };
    for ratio in [0.0, 0.1, 0.5] {
        let scenario = scenario(json!({ "ratio": ratio, "floor": 0 }));
        let [attempts] = measure(&scenario, 1, (20.0, 200.0), ["attempts_per_request"]);
        assert_near(attempts, 1.0 + ratio, 0.02);
    }
    // Each process has the floor for itself.
    let mut many = scenario(json!({ "ratio": 0, "floor": 2 }));
    many["client"]["processes"] = json!(10);
    let [attempts] = measure(&many, 1, (20.0, 200.0), ["attempts"]);
    assert_near(attempts, 120.0, 0.02);
}

#[test]
fn a_throttle_sends_no_more_than_it_has_to() {
    let mut scenario = refused(&json!({ "throttle": {} }));
    scenario["arrivals"] = json!([{ "rate": 100 }]);
    scenario["seconds"] = json!(300);
    let [attempts, throttled, offered] =
        measure(&scenario, 1, (150.0, 300.0), ["attempts", "throttled", "offered"]);
    assert!(attempts < 0.1 * offered, "{attempts}");
    assert_near(attempts + throttled, offered, 1e-9);
}

#[test]
fn retries_that_the_throttle_stops_are_given_back_to_the_budget() {
    let scenario = json!({
        "seconds": 600,
        "arrivals": [{ "rate": 100 }],
        "client": { "timeout": 1, "attempts": 3, "throttle": {}, "budget": {} },
        "stage": [{
            "service": { "mix": [
                { "share": 95, "is": { "constant": 0.01 } }, { "share": 5, "is": { "constant": 2 } },
            ] },
            "outcome": [[0, "success"], [50, "overload"], [150, "success"]],
        }],
    });
    let [before] = measure(&scenario, 1, (0.0, 50.0), ["attempts_per_request"]);
    let [after] = measure(&scenario, 1, (400.0, 600.0), ["attempts_per_request"]);
    assert_near(after, before, 0.01);
    assert_near(after, 1.05, 0.01);
}

#[test]
fn overload_below_is_overload_to_the_throttle() {
    let throttled = |outcome: &str| {
        let scenario = json!({
            "seconds": 100,
            "arrivals": [{ "rate": 100 }],
            "client": { "throttle": {} },
            "stage": [{ "outcome": outcome }],
        });
        measure(&scenario, 1, (0.0, 100.0), ["throttled"])[0]
    };
    assert_eq!(["success", "ignored"].map(throttled), [0.0, 0.0]);
    assert!(throttled("overload") > 50.0);
}

#[test]
fn the_same_seed_is_the_same_and_another_is_not() {
    let scenario = json!({
        "seconds": 30,
        "arrivals": [{ "rate": 50 }, { "users": 5, "think": { "exponential": 0.2 }, "class": "users" }],
        "client": {
            "timeout": 0.5, "deadline": 0.5, "attempts": 3,
            "network": { "exponential": 0.01 },
            "retry": { "wait": 0.1, "jitter": "full" }, "throttle": {}, "budget": {},
        },
        "stage": [
            { "policy": "codel+vegas", "workers": 4, "service": { "lognormal": { "mean": 0.1, "cv": 2 } } },
            { "policy": { "gradient": { "wait": 0.1 } }, "delay": { "pareto": { "mean": 0.05, "alpha": 2 } } },
        ],
    });
    assert_eq!(play(&scenario, 7), play(&scenario, 7));
    assert_ne!(play(&scenario, 7), play(&scenario, 8));
}

#[test]
fn a_policy_changes_neither_arrivals_nor_services() {
    let scenario = |policy: &str| {
        json!({
            "seconds": 60,
            "arrivals": [{ "rate": 50 }, { "ramp": [[0, 0], [60, 50]], "class": "more" }],
            "client": { "network": { "exponential": 0.01 } },
            "stage": [{
                "policy": policy, "workers": 50, "service": { "exponential": 0.05 },
                "delay": { "exponential": 0.01 },
            }],
        })
    };
    // None of these has a reason to reject or to delay anybody.
    let plain = play(&scenario("none"), 3).series;
    for policy in ["fifo", "lifo", "codel", "codel+fifo"] {
        let series = play(&scenario(policy), 3).series;
        assert_eq!((&series.offered, &series.p99), (&plain.offered, &plain.p99), "{policy}");
    }
    // This one has.
    let series = play(&scenario("fixed"), 3).series;
    assert_eq!(series.offered, plain.offered);
    assert!(play(&scenario("aimd"), 3).series.offered == plain.offered);
}
