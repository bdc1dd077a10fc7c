//! What holds of every simulation, whatever is simulated.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::engine::Simulation;
use super::scenario::Scenario;

fn span() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0.0..0.2).prop_map(|mean| json!({ "constant": mean })),
        (0.0..0.2).prop_map(|mean| json!({ "exponential": mean })),
        (0.0..0.2, 0.0..2.0)
            .prop_map(|(mean, cv)| json!({ "lognormal": { "mean": mean, "cv": cv } })),
    ]
}

fn policy() -> impl Strategy<Value = Value> {
    let link = prop_oneof![
        Just(json!("fifo")),
        Just(json!("codel")),
        Just(json!({ "codel": { "capacity": 3 } })),
        Just(json!({ "fifo": { "capacity": 2, "estimate": 0.1 } })),
        Just(json!({ "lifo": { "capacity": 5, "estimate": 0.1 } })),
        Just(json!({ "fixed": { "limit": 3, "wait": 0.2 } })),
        Just(json!({ "fixed": { "limit": 2 } })),
        Just(json!({ "aimd": { "initial": 4, "min_limit": 1, "wait": 0.1 } })),
        Just(json!({ "vegas": { "initial": 4, "min_limit": 1, "wait": 0.05, "windowed": true } })),
        Just(json!("gradient2")),
        Just(json!({ "adaptive": { "wait": 0.1 } })),
        Just(json!({ "bucket": { "rate": 20, "burst": 3 } })),
        Just(json!("gate")),
        Just(json!({ "gate": { "limit": 2.5, "max_waiting": 3, "max_wait": 0.2 } })),
        Just(json!({ "gate": {
            "limit": { "aimd": { "initial": 6, "min_limit": 2 } }, "max_wait": 0.1,
            "reserve": { "critical": 0.4 }, "rate": { "rate": 20, "burst": 3 },
        } })),
        Just(json!({ "gate": { "limit": 2, "max_wait": 0.1, "dry_run": true } })),
    ];
    prop::collection::vec(link, 0..4).prop_map(Value::Array)
}

fn stage() -> impl Strategy<Value = Value> {
    let workers = prop_oneof![
        Just(json!(null)),
        (1..4_u32).prop_map(|workers| json!(workers)),
        (1..4_u32).prop_map(|workers| json!([[0, workers], [2, 0], [3, 1]])),
    ];
    let speed = prop_oneof![Just(json!(1)), Just(json!([[0, 1], [1, 0], [3, 0.5]]))];
    let outcome = prop_oneof![
        Just(json!("success")),
        Just(json!([[0, "success"], [2, "overload"], [3, "ignored"]]))
    ];
    let cost = prop_oneof![Just(0.0), Just(0.01)];
    (policy(), workers, span(), span(), speed, outcome, cost).prop_map(
        |(policy, workers, service, delay, speed, outcome, cost)| {
            json!({
                "policy": policy, "workers": workers, "service": service, "delay": delay,
                "speed": speed, "outcome": outcome, "rejection_cost": cost,
                "stops": { "every": 1.7, "length": 0.3 },
            })
        },
    )
}

fn client() -> impl Strategy<Value = Value> {
    let some_span = || prop_oneof![Just(json!(null)), (0.01..1.0).prop_map(|span| json!(span))];
    let on_timeout = prop_oneof![Just("go_on"), Just("release"), Just("cancel")];
    let table = || prop_oneof![Just(json!(null)), Just(json!({}))];
    let wait = prop_oneof![Just(0.0), Just(0.3)];
    let network = prop_oneof![Just(json!(null)), span()];
    (some_span(), some_span(), on_timeout, 1..5_u32, wait, network, table(), table()).prop_map(
        |(timeout, deadline, on_timeout, attempts, wait, network, throttle, budget)| {
            json!({
                "timeout": timeout, "deadline": deadline, "on_timeout": on_timeout,
                "attempts": attempts, "network": network, "throttle": throttle, "budget": budget,
                "retry": { "wait": wait, "jitter": "full" }, "processes": 2,
            })
        },
    )
}

fn scenario() -> impl Strategy<Value = Value> {
    let arrivals = prop_oneof![
        (0.0..80.0).prop_map(|rate| json!({ "rate": [[0, rate], [5, 0]] })),
        Just(json!({ "times": [0, 0, 0, 0.5, 0.500_000_001, 4] })),
        Just(json!({ "ramp": [[0, 0], [5, 50], [5.1, 0]], "criticality": "sheddable" })),
        (1..6_u32, span()).prop_map(|(users, think)| json!({ "users": users, "think": think })),
    ];
    (prop::collection::vec(arrivals, 1..4), client(), prop::collection::vec(stage(), 1..4)).prop_map(
        |(arrivals, client, stages)| {
            json!({ "seconds": 6, "arrivals": arrivals, "client": client, "stage": stages })
        },
    )
}

fn read(scenario: &Value) -> Scenario {
    Scenario::from_json(&scenario.to_string(), Path::new("")).unwrap().remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_ends_once_and_is_given_back(scenario in scenario(), seed in 0..1000_u64) {
        let scenario = read(&scenario);
        let mut simulation = Simulation::new(&scenario, seed).unwrap();
        // As long as it takes: without an end.
        simulation.run_until(crate::primitives::Time::MAX).unwrap();
        simulation.assert_at_rest();
    }
}
