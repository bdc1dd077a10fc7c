//! When requests come, and how long they take.

use serde_json::{Value, json};

use crate::play::{assert_near, load, measure, play};

fn offered(arrivals: &Value, seconds: f64) -> Vec<f64> {
    let scenario = json!({ "seconds": seconds, "arrivals": [arrivals], "stage": [{}] });
    play(&scenario, 1).series.offered
}

#[test]
fn counts_of_poisson_arrivals_vary_as_much_as_they_are() {
    let counts = offered(&json!({ "rate": 40 }), 20_000.0);
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    assert_near(mean, 40.0, 0.01);
    assert_near(squares / counts.len() as f64, 40.0, 0.05);
    // The probability of 40 in a second is 0.063.
    let forties = counts.iter().filter(|count| **count == 40.0).count();
    assert_near(forties as f64 / counts.len() as f64, 0.0630, 0.1);
}

#[test]
fn constant_arrivals_are_one_like_the_other() {
    let counts = offered(&json!({ "rate": 40, "process": "constant" }), 100.0);
    assert!(counts.iter().all(|count| (count - 40.0).abs() <= 1.0), "{counts:?}");
    assert_near(counts.iter().sum(), 4_000.0, 0.000_5);
}

#[test]
fn steps_begin_when_they_are_said_to() {
    let counts = offered(
        &json!({ "rate": [[0, 10], [5, 0], [7, 1000], [7.5, 20]], "process": "constant" }),
        10.0,
    );
    assert_eq!(counts[5..7], [0.0, 0.0]);
    for (count, expected) in counts.iter().zip([10, 10, 10, 10, 10, 0, 0, 510, 20, 20]) {
        assert!((count - f64::from(expected)).abs() <= 1.0, "{counts:?}");
    }
}

#[test]
fn ramps_integrate_to_what_is_between_their_points() {
    let ramp = json!({
        "ramp": [[2, 0], [12, 100], [12.000_001, 10], [15, 10], [20, 60]],
        "process": "constant",
    });
    let counts = offered(&ramp, 25.0);
    assert_eq!(counts[..2], [0.0, 0.0]);
    for (second, count) in counts.iter().enumerate() {
        let middle = second as f64 + 0.5;
        let expected = match middle {
            ..2.0 => 0.0,
            ..12.0 => 10.0 * (middle - 2.0),
            ..15.0 => 10.0,
            ..20.0 => 10.0 + 10.0 * (middle - 15.0),
            _ => 60.0,
        };
        assert!((count - expected).abs() <= 1.0, "{count} at {middle}, not {expected}");
    }
}

#[test]
fn moments_of_a_list_are_taken_as_they_are() {
    assert_eq!(offered(&json!({ "times": [0, 0, 1, 2.5, 2.5, 2.5] }), 4.0), [2.0, 1.0, 3.0, 0.0]);
    // What is past the end does not come.
    assert_eq!(offered(&json!({ "times": [0.5, 4, 5] }), 4.0), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(offered(&json!({ "times": [] }), 2.0), [0.0, 0.0]);
    assert_eq!(offered(&json!({ "rate": 0 }), 2.0), [0.0, 0.0]);
}

/// A file of that text, which is read as a trace of requests.
fn traced(name: &str, text: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    json!({
        "seconds": 10,
        "arrivals": [{ "trace": { "file": path, "time": "at" } }],
        "stage": [{ "service": { "columns": { "base": 0.25, "size": 0.5 } } }],
    })
}

#[test]
fn a_trace_says_when_and_how_much() {
    let text = "\u{feff}\"who, and where\",at,\"size\"\n\"a, b\", 0.5 ,1\nc,2,\"3\"\n";
    let scenario = traced("trace.csv", text);
    let report = play(&scenario, 1);
    assert_eq!(report.series.offered[..3], [1.0, 0.0, 1.0]);
    let quantiles = measure(&scenario, 1, (0.0, 10.0), ["p50", "slowest"]);
    assert_eq!(quantiles, [0.75, 1.75]);
    let mut scenario = scenario;
    scenario["arrivals"][0]["trace"]["speed"] = json!(0.25);
    assert_eq!(play(&scenario, 1).series.offered[2], 1.0);
    assert_eq!(play(&scenario, 1).series.offered[8], 1.0);
}

#[test]
fn an_empty_trace_is_no_fault() {
    assert_eq!(play(&traced("empty.csv", "at,size\n"), 1).requests, 0);
}

#[test]
fn faults_of_a_trace_are_named() {
    let faults = [
        ("at,size\n1,2\n2,many\n", "line 3: size must be a finite number, got \"many\""),
        ("at,size\n1,2\n2,nan\n", "size must be a finite number, got \"nan\""),
        ("at,size\n1,\n", "size must be a finite number, got \"\""),
        ("at,size\n2,2\n1,2\n", "at of the trace must be seconds from 0 on, in order, got 1"),
        ("at,size\n-1,2\n", "got -1"),
        ("when,size\n1,2\n", "no column \"at\", it has when, size"),
        ("at,length\n1,2\n", "service: no trace has a column \"size\""),
        ("at,size\n1,2,3\n", "found record with 3 fields"),
    ];
    for (text, expected) in faults {
        let error = load(&traced("fault.csv", text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} for {text:?}");
    }
    let mut scenario = traced("fault.csv", "at,size\n");
    scenario["arrivals"][0]["trace"]["file"] = json!("nowhere.csv");
    assert!(load(&scenario).unwrap_err().to_string().contains("nowhere.csv"));
}

#[test]
fn rates_of_a_file_are_followed() {
    let scenario = json!({
        "seconds": 600,
        "step": 60,
        "arrivals": [{ "rates": {
            "file": "autothrottle_bursty_rps_per_second.csv", "time": "second", "rate": "rps",
            "scale": 10,
        } }],
        "stage": [{}],
    });
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/autothrottle_bursty_rps_per_second.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let rates: Vec<f64> =
        text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    let offered = play(&scenario, 1).series.offered;
    for (minute, count) in rates.chunks(60).zip(offered) {
        assert_near(count, 10.0 * minute.iter().sum::<f64>() / 60.0, 0.03);
    }
}

#[test]
fn spans_are_distributed_as_they_are_said_to_be() {
    let quantiles = |service: &Value| {
        let scenario = json!({
            "seconds": 1000,
            "arrivals": [{ "rate": 300 }],
            "stage": [{ "service": service }],
        });
        measure(&scenario, 3, (0.0, 1e3), ["mean", "p50", "p95", "p99"])
    };
    let lognormal = |normal: f64| {
        let variance = (1.0_f64 + 4.0).ln();
        0.2 * (variance.sqrt() * normal - variance / 2.0).exp()
    };
    let pareto = |rest: f64| 0.2 * 1.5 / 2.5 * rest.powf(-1.0 / 2.5);
    let expected = [
        (json!({ "constant": 0.2 }), [0.2; 4]),
        (json!({ "exponential": 0.2 }), [0.2, 0.138_63, 0.599_15, 0.921_03]),
        (
            json!({ "lognormal": { "mean": 0.2, "cv": 2 } }),
            [0.2, lognormal(0.0), lognormal(1.644_85), lognormal(2.326_35)],
        ),
        (
            json!({ "pareto": { "mean": 0.2, "alpha": 2.5 } }),
            [0.2, pareto(0.5), pareto(0.05), pareto(0.01)],
        ),
        (
            json!({ "mix": [
                { "share": 0.9, "is": { "constant": 0.1 } }, { "share": 0.1, "is": { "constant": 1.1 } },
            ] }),
            [0.2, 0.1, 1.1, 1.1],
        ),
    ];
    for (service, expected) in expected {
        for (value, expected) in quantiles(&service).into_iter().zip(expected) {
            assert_near(value, expected, 0.03);
        }
    }
}
