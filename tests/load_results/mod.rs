//! What came of scenarios, in short, to the last digit: `test_load_scenarios.py`
//! writes the same of what it gets.

use std::fmt::{Result, Write as _};

use sluicegate::sim::{Bound, Check, Report, Series};

/// JSON, a line for each number.
pub fn written(reports: &[Report]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let mut text = String::from("{\n");
    for (number, report) in reports.iter().enumerate() {
        let policy = &report.policy;
        writeln!(text, "  {}: {{", serde_json::to_string(&report.scenario)?)?;
        writeln!(text, "    \"policy\": {},", serde_json::to_string(policy)?)?;
        writeln!(text, "    \"requests\": {},", report.requests)?;
        writeln!(text, "    \"good\": {},", report.good)?;
        writeln!(text, "    \"attempts\": {},", report.attempts)?;
        let checks = report.checks.iter().map(line).collect::<std::result::Result<Vec<_>, _>>()?;
        list(&mut text, "checks", ('[', ']'), &checks)?;
        text.push_str(",\n");
        list(&mut text, "series", ('{', '}'), &series(&report.series)?)?;
        text.push_str(if number + 1 < reports.len() { "\n  },\n" } else { "\n  }\n" });
    }
    text.push_str("}\n");
    Ok(text)
}

fn list(text: &mut String, name: &str, (open, close): (char, char), lines: &[String]) -> Result {
    let lines: Vec<_> = lines.iter().map(|line| format!("\n      {line}")).collect();
    let end = if lines.is_empty() { "" } else { "\n    " };
    write!(text, "    \"{name}\": {open}{}{end}{close}", lines.join(","))
}

fn line(check: &Check) -> serde_json::Result<String> {
    let Bound { min, max } = check.bound;
    let words = (&check.measure, &check.class, check.from, check.to, min, max, check.value);
    serde_json::to_string(&words)
}

/// Of each that was measured its mean, for readers, and a hash of all its bits.
fn series(series: &Series) -> serde_json::Result<Vec<String>> {
    let count = |counts: &[u64]| counts.iter().map(|count| *count as f64).collect();
    let limit = series.limit.iter().map(|limit| limit.unwrap_or(-1.0)).collect();
    let all: [(&str, Vec<f64>); 13] = [
        ("time", series.time.clone()),
        ("offered", series.offered.clone()),
        ("attempts", series.attempts.clone()),
        ("goodput", series.goodput.clone()),
        ("throughput", series.throughput.clone()),
        ("rejected", series.rejected.clone()),
        ("throttled", series.throttled.clone()),
        ("p50", series.p50.clone()),
        ("p95", series.p95.clone()),
        ("p99", series.p99.clone()),
        ("limit", limit),
        ("in_flight", count(&series.in_flight)),
        ("waiting", count(&series.waiting)),
    ];
    let line = |(name, values): &(&str, Vec<f64>)| {
        let mean = values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64;
        Ok(format!("\"{name}\": [{}, \"{:016x}\"]", serde_json::to_string(&mean)?, hash(values)))
    };
    all.iter().map(line).collect()
}

/// FNV-1a of the bits, the least byte first.
fn hash(values: &[f64]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
