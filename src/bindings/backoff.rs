use pyo3::prelude::*;

use super::config;
use crate::primitives::Backoff as Primitive;

/// For how long to wait before a retry.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Backoff {
    backoff: Primitive,
}

#[pymethods]
impl Backoff {
    #[new]
    #[pyo3(signature = (first, /))]
    fn new(first: &Bound<'_, PyAny>) -> PyResult<Self> {
        let span = config::seconds("backoff", "a number of seconds from 0 to 3600", first)?;
        Ok(Self { backoff: Primitive::new(span)? })
    }

    /// Draw the wait after so many attempts, in seconds.
    #[pyo3(signature = (attempts, /))]
    fn after(&self, attempts: u32) -> f64 {
        self.backoff.after(attempts, fastrand::f64()).as_secs_f64()
    }
}
