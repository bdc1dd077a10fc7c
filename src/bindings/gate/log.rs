use std::fmt::Write;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::bindings::{exit, imports};
use crate::primitives::{GateSnapshot, Reason, Rejecting, Tally};

const LOGGER: &str = "sluicegate.gate";

/// Writes to the log of gates that rejections began, go on, or have stopped: a line for an
/// episode and one every ten seconds of it, however many there are.
pub(super) fn write(
    py: Python<'_>,
    name: &Py<PyString>,
    event: &Rejecting,
    now: &GateSnapshot,
) -> PyResult<()> {
    let name = name.bind(py).to_string();
    let is_warning = !matches!(event, Rejecting::Stopped(_));
    let written = imports::log(py, LOGGER, is_warning, &text(&name, event, now));
    match written {
        // A handler that fails is no reason for a request to fail.
        Err(error) if error.is_instance_of::<PyException>(py) => {
            exit::report(py, error, None);
            Ok(())
        }
        written => written,
    }
}

fn text(name: &str, event: &Rejecting, now: &GateSnapshot) -> String {
    let dry = if now.is_dry_run { " (dry run: all are admitted)" } else { "" };
    match event {
        Rejecting::Began { reason, criticality, .. } => format!(
            "gate '{name}' began rejecting{dry}: reason={} up_to={} in_flight={} limit={:.1} \
             waiting={} oldest_wait={:.2}s",
            reason.as_str(),
            criticality.name(),
            now.in_flight,
            now.limit,
            now.waiting,
            now.oldest_wait.as_secs_f64(),
        ),
        Rejecting::Still(tally) => format!(
            "gate '{name}' still rejecting{dry} after {}, up_to={} in_flight={} limit={:.1} \
             waiting={} oldest_wait={:.2}s",
            counts(tally),
            tally.up_to.name(),
            now.in_flight,
            now.limit,
            now.waiting,
            now.oldest_wait.as_secs_f64(),
        ),
        Rejecting::Stopped(tally) => {
            format!("gate '{name}' stopped rejecting{dry} after {}", counts(tally))
        }
    }
}

fn counts(tally: &Tally) -> String {
    let lasted = tally.lasted.as_secs_f64();
    let mut text = format!("{lasted:.1}s: rejected={} of {} (", tally.rejected, tally.asked);
    let reasons = Reason::ALL.iter().zip(tally.by_reason).filter(|(_, count)| *count > 0);
    for (place, (reason, count)) in reasons.enumerate() {
        let comma = if place > 0 { ", " } else { "" };
        // To a string nothing fails.
        let _ = write!(text, "{comma}{} {count}", reason.as_str());
    }
    text.push(')');
    text
}
