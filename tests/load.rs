//! Plays every load scenario of `tests/scenarios/load/` with all its seeds.

use std::fmt::Write as _;

use sluicegate::sim::{Report, Scenario, simulate};

fn play(path: &datatest_stable::Utf8Path) -> datatest_stable::Result<()> {
    let mut faults = String::new();
    for scenario in Scenario::load(path.as_std_path())? {
        for seed in 1..=scenario.seeds {
            complain(&mut faults, &simulate(&scenario, seed)?)?;
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.into()) }
}

fn complain(faults: &mut String, report: &Report) -> std::fmt::Result {
    for check in report.checks.iter().filter(|check| !check.holds) {
        let class = check.class.as_deref().unwrap_or("all");
        writeln!(
            faults,
            "{}, seed {}: {:?} of {class} from {} to {} s is {:?}, not {}",
            report.scenario,
            report.seed,
            check.measure,
            check.from,
            check.to,
            check.value,
            check.bound
        )?;
    }
    Ok(())
}

datatest_stable::harness! {
    { test = play, root = "tests/scenarios/load", pattern = r".*\.toml$" },
}
