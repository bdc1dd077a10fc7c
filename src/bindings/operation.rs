use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// What kind of work a permit is for; may be named until the release.
pub(crate) struct Operation {
    name: Mutex<Option<Py<PyString>>>,
}

impl Operation {
    pub(crate) fn new(name: Option<Py<PyString>>) -> Self {
        Self { name: Mutex::new(name) }
    }

    #[inline]
    pub(crate) fn get(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.name.lock().as_ref().map(|name| name.clone_ref(py))
    }

    pub(crate) fn set(&self, name: Option<Py<PyString>>) {
        // Dropped after the lock.
        let old = std::mem::replace(&mut *self.name.lock(), name);
        drop(old);
    }
}
