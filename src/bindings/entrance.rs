use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::answer::{Answer, Hold};
use super::gate::{Begun, Gate};

/// Where most requests come in: those that no rule is about, and whose headers tell nothing.
// Here, and not in Python, since each request pays for it.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Entrance {
    gate: Py<Gate>,
    /// The paths that a rule is about.
    paths: Py<PyDict>,
    /// The names of the headers that tell something.
    telling: Vec<Vec<u8>>,
    hold: Hold,
}

impl Entrance {
    /// What there is to see of a request, if nothing else is to be looked at.
    fn look(&self, scope: &Bound<'_, PyDict>) -> PyResult<Option<Plain>> {
        let py = scope.py();
        let Some(kind) = scope.get_item(intern!(py, "type"))? else { return Ok(None) };
        let Ok(kind) = kind.cast::<PyString>() else { return Ok(None) };
        if kind.to_string_lossy() != "http" {
            return Ok(None);
        }
        if let Some(root) = scope.get_item(intern!(py, "root_path"))?
            && root.is_truthy()?
        {
            return Ok(None);
        }
        let Some(path) = scope.get_item(intern!(py, "path"))? else { return Ok(None) };
        let Ok(text) = path.cast::<PyString>() else { return Ok(None) };
        if is_odd(&text.to_string_lossy()) || self.paths.bind(py).contains(text)? {
            return Ok(None);
        }
        let Some(headers) = scope.get_item(intern!(py, "headers"))? else { return Ok(None) };
        // Else it is iterated once, and may not be twice.
        let Ok(headers) = headers.cast::<PyList>() else { return Ok(None) };
        let mut is_announced = false;
        for pair in headers.iter() {
            let Ok(pair) = pair.cast::<PyTuple>() else { return Ok(None) };
            let name = pair.get_item(0)?;
            let Ok(name) = name.cast::<PyBytes>() else { return Ok(None) };
            let name = name.as_bytes();
            if self.telling.iter().any(|known| known == name) {
                return Ok(None);
            }
            if name == b"content-length" || name == b"transfer-encoding" {
                let value = pair.get_item(1)?;
                is_announced |=
                    !value.cast::<PyBytes>().is_ok_and(|value| value.as_bytes() == b"0");
            }
        }
        let has_body = is_announced || may_have_body_unannounced(scope)?;
        Ok(Some(Plain { has_body }))
    }
}

struct Plain {
    /// Whether the client may still have to send a body.
    has_body: bool,
}

/// Before HTTP/2 a body is announced.
fn may_have_body_unannounced(scope: &Bound<'_, PyDict>) -> PyResult<bool> {
    let py = scope.py();
    let Some(version) = scope.get_item(intern!(py, "http_version"))? else { return Ok(false) };
    let Ok(version) = version.cast::<PyString>() else { return Ok(false) };
    if version.to_string_lossy().starts_with('1') {
        return Ok(false);
    }
    let Some(method) = scope.get_item(intern!(py, "method"))? else { return Ok(true) };
    let Ok(method) = method.cast::<PyString>() else { return Ok(true) };
    Ok(!matches!(&*method.to_string_lossy(), "GET" | "HEAD" | "DELETE" | "OPTIONS"))
}

/// Whether a framework may take a path for another one.
fn is_odd(path: &str) -> bool {
    let is_odd_at_the_end = path.len() > 1 && path.ends_with('/') || path.ends_with('\n');
    is_odd_at_the_end || path.contains("//")
}

#[pymethods]
impl Entrance {
    #[new]
    #[pyo3(signature = (gate, paths, telling, hold, /))]
    fn new(gate: Py<Gate>, paths: Py<PyDict>, telling: Vec<Vec<u8>>, hold: &str) -> PyResult<Self> {
        Ok(Self { gate, paths, telling, hold: Hold::new(hold)? })
    }

    /// Admit it, refuse it, or say that it has to wait; `None` if more is to be looked at.
    #[pyo3(signature = (scope, send, /))]
    fn begin(
        &self,
        scope: &Bound<'_, PyAny>,
        send: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = scope.py();
        let Ok(dict) = scope.cast::<PyDict>() else { return Ok(None) };
        let Some(Plain { has_body }) = self.look(dict)? else { return Ok(None) };
        Ok(Some(match Gate::begin_one(self.gate.bind(py))? {
            Begun::Admitted(permit) => {
                let (scope, send) = (scope.clone().unbind(), send.clone().unbind());
                Py::new(py, Answer::of(permit, scope, send, self.hold, has_body))?.into_any()
            }
            Begun::Rejected(rejection) => Py::new(py, rejection)?.into_any(),
            Begun::Waiting(wish) => wish.into_any(),
        }))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)?;
        visit.call(&self.paths)
    }
}
