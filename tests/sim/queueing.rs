//! Waits, against the formulas of queueing theory.

use serde_json::{Value, json};

use crate::play::{assert_near, measure, play};

fn queue(rate: f64, workers: u32, service: &Value, requests: f64) -> Value {
    json!({
        "seconds": requests / rate,
        "step": 0.37,
        "arrivals": [{ "rate": rate }],
        "stage": [{ "workers": workers, "service": service }],
    })
}

/// The mean latency, and how many are there, on the mean.
fn latency(scenario: &Value) -> (f64, f64) {
    let seconds = scenario["seconds"].as_f64().unwrap();
    let [mean] = measure(scenario, 1, (0.0, seconds), ["mean"]);
    let in_flight = play(scenario, 1).series.in_flight;
    (mean, in_flight.iter().sum::<u64>() as f64 / in_flight.len() as f64)
}

/// Erlang's C: the share of those who wait.
fn waits(load: f64, workers: u32) -> f64 {
    let (mut term, mut sum) = (1.0, 0.0);
    for busy in 1..=workers {
        sum += term;
        term *= load / f64::from(busy);
    }
    let all_busy = term / (1.0 - load / f64::from(workers));
    all_busy / (sum + all_busy)
}

#[test]
fn mean_wait_before_exponential_service_is_by_erlang() {
    for (workers, utilisation) in [(1, 0.5), (1, 0.8), (4, 0.8), (10, 0.9), (100, 0.95)] {
        let service = 0.1;
        let rate = utilisation * f64::from(workers) / service;
        let wait =
            waits(rate * service, workers) * service / (f64::from(workers) * (1.0 - utilisation));
        let scenario = queue(rate, workers, &json!({ "exponential": service }), 400_000.0);
        let (mean, in_flight) = latency(&scenario);
        assert_near(mean, wait + service, 0.03);
        // Little's law.
        assert_near(in_flight, rate * mean, 0.03);
    }
}

#[test]
fn latency_of_one_exponential_worker_is_exponential() {
    let scenario = queue(50.0, 1, &json!({ "exponential": 0.01 }), 400_000.0);
    let quantiles = measure(&scenario, 2, (0.0, 8_000.0), ["p50", "p95", "p99"]);
    for (value, share) in quantiles.into_iter().zip([0.5_f64, 0.95, 0.99]) {
        assert_near(value, -(1.0 - share).ln() / 50.0, 0.03);
    }
}

#[test]
fn mean_wait_of_one_worker_is_by_pollaczek_and_khinchine() {
    let mixed = json!({ "mix": [
        { "share": 9, "is": { "constant": 0.05 } },
        { "share": 1, "is": { "constant": 0.55 } },
    ] });
    // With the squared coefficient of variation.
    let services = [
        (json!({ "constant": 0.1 }), 0.0),
        (json!({ "exponential": 0.1 }), 1.0),
        (json!({ "lognormal": { "mean": 0.1, "cv": 1.5 } }), 2.25),
        (json!({ "pareto": { "mean": 0.1, "alpha": 5.0 } }), 1.0 / 15.0),
        (mixed, 2.25),
    ];
    for (service, variation) in services {
        let utilisation = 0.7;
        let wait = utilisation / (1.0 - utilisation) * 0.1 * (1.0 + variation) / 2.0;
        let (mean, in_flight) = latency(&queue(7.0, 1, &service, 400_000.0));
        assert_near(mean, wait + 0.1, 0.04);
        assert_near(in_flight, 7.0 * mean, 0.03);
    }
}

#[test]
fn who_is_too_much_for_a_loss_system_is_lost_by_erlang() {
    // Erlang's B of 10 workers and a load of 8 is 0.1217.
    let mut scenario = queue(80.0, 10, &json!({ "exponential": 0.1 }), 200_000.0);
    scenario["stage"][0]["policy"] = json!({ "fixed": { "limit": 10 } });
    let [rejected] = measure(&scenario, 1, (0.0, 2_500.0), ["rejected"]);
    assert_near(rejected, 0.1217, 0.02);
}

#[test]
fn utilisation_is_load() {
    // Without a wait those in flight are those with a worker.
    let (mean, in_flight) = latency(&queue(70.0, 1_000, &json!({ "exponential": 0.1 }), 200_000.0));
    assert_near(mean, 0.1, 0.01);
    assert_near(in_flight, 7.0, 0.02);
}

#[test]
fn users_send_as_many_as_there_are_over_response_and_thought() {
    let users = |users: u32, think: &Value, workers: u32| {
        json!({
            "seconds": 2_000,
            "arrivals": [{ "users": users, "think": think }],
            "stage": [{ "workers": workers, "service": { "exponential": 0.1 } }],
        })
    };
    for (count, workers) in [(5, 100), (30, 4), (100, 10)] {
        let scenario = users(count, &json!({ "exponential": 0.9 }), workers);
        let [throughput, mean] = measure(&scenario, 1, (50.0, 2_000.0), ["throughput", "mean"]);
        assert_near(throughput, f64::from(count) / (mean + 0.9), 0.02);
    }
    // More than the workers can do is not done.
    let [throughput] =
        measure(&users(30, &json!({ "constant": 0 }), 4), 1, (0.0, 2e3), ["throughput"]);
    assert_near(throughput, 40.0, 0.02);
}
