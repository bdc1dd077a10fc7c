//! What was published of services without control, and has to come out here too.

use serde_json::{Value, json};

use crate::play::{assert_near, measure};

/// The mean over a few seeds.
fn mean<const N: usize>(scenario: &Value, window: (f64, f64), measures: [&str; N]) -> [f64; N] {
    let seeds = 1..=3;
    let all: Vec<_> = seeds.map(|seed| measure(scenario, seed, window, measures)).collect();
    std::array::from_fn(|position| {
        all.iter().map(|values| values[position]).sum::<f64>() / all.len() as f64
    })
}

fn ten_slots(policy: &Value, rate: u32) -> Value {
    json!({
        "seconds": 120,
        "arrivals": [{ "rate": rate }],
        "client": { "timeout": 1, "deadline": 1 },
        "stage": [{ "policy": policy, "workers": 10, "service": { "exponential": 0.1 } }],
    })
}

#[test]
fn a_queue_in_order_serves_nobody_in_time_once_it_stands() {
    for policy in [json!("none"), json!("fifo"), json!({ "fifo": { "capacity": 200 } })] {
        let [goodput] = mean(&ten_slots(&policy, 80), (20.0, 120.0), ["goodput"]);
        assert_near(goodput, 79.0, 0.02);
        for rate in [110, 200, 500] {
            let [goodput] = mean(&ten_slots(&policy, rate), (20.0, 120.0), ["goodput"]);
            assert!(goodput < 0.5, "{goodput} at {rate} a second");
        }
    }
}

#[test]
fn to_drop_what_has_expired_is_too_late() {
    for (rate, expected, share) in
        [(80, 79.0, 0.02), (110, 54.0, 0.1), (200, 9.0, 0.1), (500, 2.6, 0.2)]
    {
        let policy = json!({ "fifo": { "estimate": 0 } });
        let [goodput] = mean(&ten_slots(&policy, rate), (20.0, 120.0), ["goodput"]);
        assert_near(goodput, expected, share);
    }
}

#[test]
fn the_newest_first_keeps_the_dead() {
    let mut scenario = ten_slots(&json!({ "lifo": { "estimate": 0 } }), 500);
    scenario["seconds"] = json!(60);
    let [goodput, waiting] = mean(&scenario, (0.0, 60.0), ["goodput", "waiting_max"]);
    assert_near(waiting, 23_744.0, 0.03);
    assert!(goodput > 95.0, "{goodput}");
}

/// A service at a fifth of its speed for 20 s, whose callers send four times more.
fn resends(policy: &str, rate: u32, client: &Value) -> [f64; 1] {
    let mut scenario = json!({
        "seconds": 300,
        "arrivals": [{ "rate": rate }],
        "client": { "timeout": 3, "deadline": 3, "attempts": 5 },
        "stage": [{
            "policy": policy,
            "workers": 10,
            "service": { "exponential": 0.1 },
            "speed": [[0, 1], [60, 0.2], [80, 1]],
        }],
    });
    for (key, value) in client.as_object().unwrap() {
        scenario["client"][key] = value.clone();
    }
    mean(&scenario, (200.0, 300.0), ["goodput"])
}

#[test]
fn resends_keep_a_service_down_for_ever() {
    for rate in [70, 90] {
        let [goodput] = resends("none", rate, &json!({}));
        assert_eq!(goodput, 0.0);
        let back_off = json!({ "retry": { "wait": 1, "jitter": "full" } });
        assert_eq!(resends("none", rate, &back_off), [0.0]);
        let [goodput] = resends("fifo", rate, &json!({ "on_timeout": "release" }));
        assert!((2.0..5.0).contains(&goodput), "{goodput}");
    }
}

#[test]
fn a_budget_alone_helps_where_there_is_room() {
    assert_near(resends("none", 70, &json!({ "budget": {} }))[0], 70.0, 0.02);
    assert_eq!(resends("none", 90, &json!({ "budget": {} })), [0.0]);
}

#[test]
fn a_spike_outlasts_itself() {
    let scenario = json!({
        "seconds": 80,
        "arrivals": [{ "rate": [[0, 40], [20, 80], [25, 40]] }],
        "client": { "timeout": 3, "attempts": 3, "network": { "exponential": 0.1 } },
        "stage": [{ "delay": { "constant": 1 }, "delay_per_in_flight": 0.01 }],
    });
    let [goodput, in_flight] = mean(&scenario, (25.0, 80.0), ["goodput", "in_flight_max"]);
    assert!(goodput < 8.0, "{goodput}");
    assert_near(in_flight, 1_759.0, 0.1);
}

/// A thousand a second are served, the rest comes back in about a second.
fn comebacks(rate: u32, cost: f64) -> Value {
    json!({
        "seconds": 700,
        "arrivals": [{ "rate": rate }],
        "client": { "attempts": 10, "retry": { "wait": 2, "factor": 1, "jitter": "full" } },
        "stage": [{
            "policy": { "fifo": { "capacity": 10 } },
            "workers": 10,
            "service": { "constant": 0.01 },
            "rejection_cost": cost,
        }],
    })
}

#[test]
fn attempts_grow_while_all_are_refused_as_often_as_they_may() {
    let [attempts, goodput] =
        measure(&comebacks(1_010, 0.0), 1, (650.0, 700.0), ["attempts", "goodput"]);
    // Each is tried until it is served, or ten times: 1 - (1 - p)¹⁰ of them are served
    // if p of the attempts are.
    let served = goodput / attempts;
    assert_near(goodput, 1_010.0 * (1.0 - (1.0 - served).powi(10)), 0.01);
    assert!(attempts > 2_000.0, "{attempts}");
}

#[test]
fn to_say_no_costs_what_it_costs() {
    let goodput = |cost: f64| measure(&comebacks(1_010, cost), 1, (600.0, 700.0), ["goodput"])[0];
    assert_near(goodput(0.000_5), 736.0, 0.015);
    assert!(goodput(0.001) < 1.0);
}

#[test]
fn prefetching_starves_users() {
    let mut scenario = ten_slots(&json!("none"), 0);
    scenario["seconds"] = json!(180);
    scenario["arrivals"] = json!([
        { "class": "user", "rate": 70 },
        { "class": "prefetch", "rate": [[0, 30], [30, 360], [150, 30]] },
    ]);
    scenario["stage"][0]["workers"] = json!(14);
    let [good] = mean(&scenario, (30.0, 150.0), ["good"]);
    assert_near(good, 0.004, 0.3);
}

#[test]
fn a_real_trace_overwhelms_a_queue_in_order() {
    let good = |policy: &Value| {
        let scenario = json!({
            "seconds": 3_440,
            "arrivals": [{ "trace": { "file": "azure_llm_2023_code.csv", "time": "t_s" } }],
            "client": { "timeout": 10, "deadline": 10 },
            "stage": [{
                "policy": policy,
                "workers": 3,
                "service": { "columns": {
                    "base": 0.05, "context_tokens": 0.000_12, "generated_tokens": 0.02,
                } },
            }],
        });
        measure(&scenario, 1, (0.0, 3_440.0), ["good"])[0]
    };
    assert_near(good(&json!("none")), 0.123, 0.01);
    assert_near(good(&json!({ "fifo": { "estimate": 0 } })), 0.399, 0.01);
    assert_near(good(&json!({ "fifo": { "capacity": 3 } })), 0.40, 0.01);
}
