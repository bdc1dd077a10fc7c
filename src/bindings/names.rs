use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Names for what was given none: "limiter", "limiter-2", …
pub(crate) struct Names {
    word: &'static str,
    made: AtomicU64,
}

impl Names {
    pub(crate) const fn new(word: &'static str) -> Self {
        Self { word, made: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self, py: Python<'_>) -> Py<PyString> {
        let word = self.word;
        let name = match self.made.fetch_add(1, Ordering::Relaxed) + 1 {
            1 => word.to_string(),
            number => format!("{word}-{number}"),
        };
        PyString::new(py, &name).unbind()
    }
}
