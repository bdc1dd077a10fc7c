//! Plays every load scenario of `tests/scenarios/load/` with all its seeds, but those
//! that wait in `pending/`, and holds what comes of the first seed to `results/`, where
//! it is written for Python to compare.

mod load_results;

use std::fmt::{self, Write as _};
use std::fs;

use datatest_stable::{Result, Utf8Path};
use sluicegate::sim::{Report, Scenario, simulate};

fn play(path: &Utf8Path) -> Result<()> {
    let mut faults = String::new();
    let mut firsts = Vec::new();
    for scenario in Scenario::load(path.as_std_path())? {
        for seed in 1..=scenario.seeds {
            let report = simulate(&scenario, seed)?;
            complain(&mut faults, &report)?;
            if seed == 1 {
                firsts.push(report);
            }
        }
    }
    compare(&mut faults, path, &load_results::written(&firsts)?)?;
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults).into()) }
}

/// As text where the harness debugs it.
struct Faults(String);

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Faults {}

fn complain(faults: &mut String, report: &Report) -> fmt::Result {
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

/// Line by line with what was written before; or writes it, if the environment says so.
fn compare(faults: &mut String, path: &Utf8Path, results: &str) -> Result<()> {
    let folder = path.with_file_name("results");
    let file = folder.join(path.file_name().unwrap_or_default()).with_extension("json");
    if std::env::var_os("SLUICEGATE_WRITE_RESULTS").is_some_and(|value| value == "1") {
        fs::create_dir_all(&folder)?;
        return Ok(fs::write(&file, results)?);
    }
    let before = fs::read_to_string(&file).unwrap_or_default();
    if before == results {
        return Ok(());
    }
    writeln!(faults, "{file} says something else; `make results` writes it anew:")?;
    let (mut before, mut now) = (before.lines(), results.lines());
    let mut shown = 0;
    loop {
        let pair = (before.next(), now.next());
        if pair == (None, None) || shown == 10 {
            return Ok(());
        }
        if pair.0 != pair.1 {
            shown += 1;
            for (sign, line) in [("-", pair.0), ("+", pair.1)] {
                line.map_or(Ok(()), |line| writeln!(faults, "{sign} {line}"))?;
            }
        }
    }
}

datatest_stable::harness! {
    { test = play, root = "tests/scenarios/load", pattern = r"^[^/]*\.toml$" },
}
