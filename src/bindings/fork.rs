//! After a fork the child begins anew: the waiters and the permits it has
//! copied belong to the parent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::exit;
use super::waiter::Station;

// Locked only while attached and never across Python, so that no other thread
// can hold it at the moment of a fork.
static STATIONS: Mutex<Registry> = Mutex::new(Registry { stations: Vec::new(), prune_at: 64 });

/// How often this process has been forked off.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Differs in the child from what it was in the parent.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

struct Registry {
    stations: Vec<Weak<dyn Station>>,
    prune_at: usize,
}

pub(crate) fn register(station: Weak<dyn Station>) {
    let mut registry = STATIONS.lock();
    if registry.stations.len() >= registry.prune_at {
        registry.stations.retain(|station| station.strong_count() > 0);
        registry.prune_at = (registry.stations.len() * 2).max(64);
    }
    registry.stations.push(station);
}

/// All that are there.
pub(crate) fn stations() -> Vec<Arc<dyn Station>> {
    STATIONS.lock().stations.iter().filter_map(Weak::upgrade).collect()
}

pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    // Not on Windows, where nothing forks.
    let Ok(register) = os.getattr("register_at_fork") else {
        return Ok(());
    };
    let options = PyDict::new(py);
    options.set_item("after_in_child", wrap_pyfunction!(begin_anew, py)?)?;
    register.call((), Some(&options))?;
    Ok(())
}

#[pyfunction]
fn begin_anew() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // Children of one parent would all draw the same numbers.
    fastrand::seed(fastrand::u64(..) ^ u64::from(std::process::id()));
    exit::begin_anew();
    for station in stations() {
        station.begin_anew();
    }
}
