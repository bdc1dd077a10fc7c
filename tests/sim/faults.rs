//! What is wrong with a scenario is said by name, value and range.

use std::path::Path;

use serde_json::{Value, json};
use sluicegate::sim::{Policy, Scenario};

use crate::play::load;

fn valid() -> Value {
    json!({
        "seconds": 10,
        "arrivals": [{ "rate": 10 }],
        "client": {},
        "stage": [{}],
        "expect": [{ "goodput": { "min": 0 } }],
    })
}

/// A valid scenario with this instead at that place.
fn with(place: &str, value: Value) -> Value {
    let mut scenario = valid();
    let (parent, key) = place.rsplit_once('/').unwrap();
    let parent = scenario.pointer_mut(parent).unwrap();
    if let (Some(list), Ok(position)) = (parent.as_array_mut(), key.parse::<usize>()) {
        list[position] = value;
    } else {
        parent[key] = value;
    }
    scenario
}

#[test]
fn faults_are_named() {
    load(&valid()).unwrap();
    let faults = [
        ("/seconds", json!(0), "seconds must be a number from 0.001 to 1000000, got 0"),
        ("/seconds", json!(-1), "got -1"),
        ("/seconds", json!("ten"), "seconds: invalid type: string \"ten\", expected a number"),
        ("/seconds", json!(null), "seconds: invalid type: null"),
        ("/seeds", json!(0), "seeds must be an integer from 1 to 1000, got 0"),
        ("/seeds", json!(1.5), "seeds: invalid type: number `1.5`, expected an integer"),
        ("/step", json!(0), "step must be"),
        ("/colour", json!("red"), "colour: unknown field `colour`, expected one of"),
        (
            "/arrivals",
            json!([]),
            "arrivals must be a list of tables, in number from 1 to 100, got 0",
        ),
        ("/stage", json!([]), "stage must be a list of tables, in number from 1 to 100, got 0"),
        ("/variants", json!([]), "variants must be a list of tables, of one at least"),
        ("/variants", json!(3), "variants must be a list of tables, of one at least"),
        ("/variants", json!([{ "seconds": 0 }]), "seconds must be"),
        ("/arrivals/0", json!({}), "one of rate, ramp, rates, trace, times and users"),
        ("/arrivals/0/users", json!(3), "one of rate, ramp, rates, trace, times and users"),
        ("/arrivals/0", json!({ "users": 0 }), "users must be an integer from 1 to 1000000, got 0"),
        ("/arrivals/0", json!({ "users": 1, "think": { "constant": -1 } }), "think must be"),
        (
            "/arrivals/0/rate",
            json!(-1),
            "rate must be a number per second from 0 to 10000000, got -1",
        ),
        ("/arrivals/0/rate", json!("1"), "arrivals[0].rate: invalid type: string \"1\""),
        ("/arrivals/0/rate", json!([]), "arrivals[0].rate: steps must be [[0, value], [seconds"),
        ("/arrivals/0/rate", json!([[1, 5]]), "got [1.0]"),
        ("/arrivals/0/rate", json!([[0, 5], [0, 6]]), "got [0.0, 0.0]"),
        ("/arrivals/0/rate", json!([[0, 5], [3]]), "arrivals[0].rate: invalid length 1"),
        (
            "/arrivals/0",
            json!({ "ramp": [] }),
            "ramp must be [[seconds, rate], …] in order of time",
        ),
        ("/arrivals/0", json!({ "ramp": [[1, 1], [1, 2]] }), "ramp must be"),
        ("/arrivals/0", json!({ "ramp": [[-1, 1]] }), "ramp must be a number of seconds"),
        ("/arrivals/0", json!({ "times": [1, 0.5] }), "times must be in order, got 0.5 after 1"),
        ("/arrivals/0", json!({ "times": [-1] }), "times must be a number of seconds"),
        ("/arrivals/0/process", json!("even"), "arrivals[0].process: unknown variant `even`"),
        ("/arrivals/0/criticality", json!("high"), "unknown variant `high`, expected one of"),
        ("/arrivals/0/client", json!({ "timeout": 0 }), "timeout must be a number of seconds"),
        ("/client/timeout", json!(0), "timeout must be a number of seconds from 0.000000001 to"),
        ("/client/deadline", json!(-2), "deadline must be"),
        ("/client/attempts", json!(0), "attempts must be an integer from 1 to 1000, got 0"),
        ("/client/attempts", json!(-1), "client.attempts: invalid value: integer `-1`"),
        ("/client/processes", json!(0), "processes must be an integer from 1 to 10000, got 0"),
        ("/client/retry", json!({ "wait": -1 }), "retry.wait must be"),
        ("/client/retry", json!({ "factor": 0.5 }), "retry.factor must be a number from 1 to 1000"),
        ("/client/retry", json!({ "max_wait": -1 }), "retry.max_wait must be"),
        ("/client/retry", json!({ "on": ["rain"] }), "client.retry.on[0]: unknown variant `rain`"),
        ("/client/budget", json!({ "ratio": 2 }), "ratio must be a number from 0 to 1, got 2"),
        ("/client/budget", json!({ "window": -1 }), "budget.window must be a number of seconds"),
        ("/client/throttle", json!({ "k": 0 }), "k must be"),
        ("/client/throttle", json!({ "window": 1e300 }), "throttle.window must be a number of"),
        ("/client/network", json!({ "constant": -1 }), "network must be a number of seconds"),
        ("/stage/0/policy", json!("magic"), "stage[0].policy: policy must be none or links"),
        ("/stage/0/policy", json!({ "fifo": { "estimate": -1 } }), "fifo.estimate must be"),
        (
            "/stage/0/policy",
            json!({ "fifo": { "capacity": -1 } }),
            "stage[0].policy: invalid value",
        ),
        ("/stage/0/policy", json!({ "fixed": { "limit": -1 } }), "limit must be"),
        ("/stage/0/policy", json!({ "fixed": { "wait": -1 } }), "fixed.wait must be"),
        ("/stage/0/policy", json!({ "vegas": { "wait": -1 } }), "vegas.wait must be"),
        ("/stage/0/policy", json!({ "vegas": { "limit": 3 } }), "unknown field `limit`"),
        ("/stage/0/policy", json!({ "codel": { "target": -1 } }), "codel.target must be"),
        ("/stage/0/policy", json!({ "codel": { "target": 1, "interval": 1 } }), "interval must be"),
        (
            "/stage/0/policy",
            json!({ "adaptive": { "latency_target": -1 } }),
            "adaptive.latency_target must be a number of seconds from 0.000000001 to 3600, got -1",
        ),
        ("/stage/0/workers", json!(-1), "stage[0].workers: invalid value: integer `-1`"),
        ("/stage/0/workers", json!(2_000_000), "workers must be an integer from 0 to 1000000"),
        ("/stage/0/service", json!({ "constant": -1 }), "service must be a number of seconds"),
        ("/stage/0/service", json!({ "gamma": 1 }), "stage[0].service: unknown variant `gamma`"),
        (
            "/stage/0/service",
            json!(0.1),
            "stage[0].service: invalid type: number `0.1`, expected a name or a table",
        ),
        ("/stage/0/service", json!({ "lognormal": { "mean": 1, "cv": -1 } }), "service.cv must be"),
        (
            "/stage/0/service",
            json!({ "pareto": { "mean": 1, "alpha": 1 } }),
            "service.alpha must be",
        ),
        ("/stage/0/service", json!({ "mix": [] }), "100000000000, got 0"),
        ("/stage/0/service", json!({ "columns": { "size": 1 } }), "no trace has a column \"size\""),
        ("/stage/0/operations", json!({ "a": { "constant": -1 } }), "operations.a must be"),
        ("/stage/0/delay", json!({ "constant": -1 }), "delay must be"),
        ("/stage/0/delay_per_in_flight", json!(-1), "delay_per_in_flight must be"),
        ("/stage/0/speed", json!(-1), "speed must be"),
        ("/stage/0/stops", json!({ "every": 1, "length": 2 }), "stops.every must be"),
        ("/stage/0/stops", json!({ "every": 0, "length": 0 }), "stops.every must be"),
        ("/stage/0/rejection_cost", json!(-1), "rejection_cost must be"),
        ("/stage/0/outcome", json!("error"), "stage[0].outcome: unknown variant `error`"),
        ("/expect/0", json!({}), "expect must bound a measure"),
        (
            "/expect/0",
            json!({ "speed": { "min": 1 } }),
            "expect[0]: measure: unknown variant `speed`",
        ),
        ("/expect/0", json!({ "goodput": {} }), "expect.goodput must have min or max"),
        (
            "/expect/0",
            json!({ "goodput": { "min": 2, "max": 1 } }),
            "expect.goodput: min must be at",
        ),
        ("/expect/0", json!({ "goodput": { "min": "2" } }), "expect[0]: goodput: invalid type"),
        ("/expect/0", json!({ "goodput": 2 }), "expect[0]: goodput: invalid type"),
        ("/expect/0", json!({ "goodput": { "least": 2 } }), "expect[0]: goodput: unknown field"),
        ("/expect/0/from", json!(-1), "expect.from must be a number of seconds"),
        ("/expect/0/from", json!(10), "expect.to must be later than from, 10, got 10"),
        ("/expect/0/to", json!("end"), "expect[0]: to: invalid type"),
        (
            "/expect/0/class",
            json!("nobody"),
            "expect.class must be one of requests, got \"nobody\"",
        ),
        ("/expect/0/reference", json!(-1), "expect.reference must be"),
    ];
    for (place, value, expected) in faults {
        let scenario = with(place, value.clone());
        match load(&scenario) {
            Ok(_) => panic!("{place} = {value} is taken"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{place} = {value}: {error:?}, not {expected:?}");
            }
        }
    }
}

#[test]
fn numbers_of_a_file_are_finite() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario.toml");
    for number in ["nan", "inf", "-inf"] {
        let text = format!(
            "seconds = 10\narrivals = [{{ rate = 1 }}]\nclient.timeout = {number}\nstage = [{{}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let error = Scenario::load(&path).unwrap_err().to_string();
        assert!(error.contains("scenario.toml: client.timeout must be a finite number"), "{error}");
    }
    std::fs::write(&path, "seconds = ").unwrap();
    assert!(Scenario::load(&path).unwrap_err().to_string().contains("scenario.toml"));
    assert!(Scenario::load(Path::new("nowhere.toml")).unwrap_err().to_string().contains("nowhere"));
    assert!(Scenario::from_json("{", Path::new("")).is_err());
    assert!(Scenario::from_json("[]", Path::new("")).is_err());
}

#[test]
fn policies_are_read_as_they_are_written() {
    for text in
        ["none", "fifo", "lifo", "codel", "codel+gradient2", "adaptive", "fixed+vegas/windowed"]
    {
        assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
    }
    for text in ["", "+", "codel+", "none+codel", "codel/windowed", "Codel", " codel"] {
        let error = text.parse::<Policy>().unwrap_err().to_string();
        assert!(error.starts_with("policy must be none or links"), "{text:?}: {error}");
    }
}

#[test]
fn the_readme_knows_every_key_and_measure() {
    let readme = include_str!("../scenarios/load/README.md");
    let places = [
        "/unknown",
        "/arrivals/0/unknown",
        "/arrivals/0/process",
        "/arrivals/0/criticality",
        "/client/unknown",
        "/client/on_timeout",
        "/stage/0/unknown",
        "/stage/0/outcome",
        "/stage/0/service",
        "/stage/0/policy",
        "/expect/0/unknown",
    ];
    for place in places {
        let value = match place.rsplit_once('/').unwrap().1 {
            "service" | "policy" => json!({ "unknown": 1 }),
            _ => json!("unknown"),
        };
        let error = load(&with(place, value)).unwrap_err().to_string();
        let (_, names) = error.split_once("expected ").unwrap();
        let mut names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
        names.retain(|name| !readme.contains(&format!("`{name}`")));
        // Those that have no cell of their own.
        names.retain(|name| {
            let forms = [
                format!("`[[{name}]]`"),
                format!("`[{name}]`"),
                format!("`\"{name}\"`"),
                format!("{{ {name} ="),
            ];
            !forms.iter().any(|form| readme.contains(form))
                && !readme.contains(&format!("`{name}."))
        });
        assert!(names.is_empty(), "{place}: {names:?}");
    }
}
