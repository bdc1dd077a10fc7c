use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::permit::Permit;
use crate::primitives::Outcome;

/// Until when a permit is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Work,
    Response,
    Headers,
}

impl Hold {
    pub(crate) fn new(hold: &str) -> PyResult<Self> {
        match hold {
            "work" => Ok(Self::Work),
            "response" => Ok(Self::Response),
            "headers" => Ok(Self::Headers),
            _ => Err(PyValueError::new_err(format!(
                "hold must be 'work', 'response' or 'headers', got {hold:?}"
            ))),
        }
    }
}

/// A permit that nobody else sees, or one that is an object of its own.
enum Held {
    Own(Permit),
    Shared(Py<Permit>),
}

impl Held {
    fn get(&self) -> &Permit {
        match self {
            Self::Own(permit) => permit,
            Self::Shared(permit) => permit.get(),
        }
    }
}

/// The `send()` of a request that holds a permit, which it gives back when it is time to.
// Here, and not in Python, since it is called for each message.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Answer {
    permit: Held,
    /// Only where the permit ends before the application: frameworks put into the scope what
    /// holds this one, and each request would be left to the collector.
    scope: Option<Py<PyAny>>,
    send: Py<PyAny>,
    hold: Hold,
    /// Whether a rule has said what kind of work it is.
    is_named: bool,
    /// Whether the client may still have to send a body, as far as the entrance has looked.
    #[pyo3(get)]
    has_body: bool,
    /// 0 until one is sent. Relaxed, both: one task sends.
    status: AtomicU16,
    /// Whether all of it was sent, or as much as is a sample.
    is_whole: AtomicBool,
    is_over: AtomicBool,
}

const START: &str = "http.response.start";
/// What a body is made of.
const PARTS: [&str; 3] =
    ["http.response.body", "http.response.pathsend", "http.response.zerocopysend"];
const EVENT_STREAM: &[u8] = b"text/event-stream";
const GATEWAY_TIMEOUT: u16 = 504;

impl Answer {
    /// Of a permit that nobody else sees.
    pub(crate) fn of(
        permit: Permit,
        scope: Py<PyAny>,
        send: Py<PyAny>,
        hold: Hold,
        has_body: bool,
    ) -> Self {
        Self { has_body, ..Self::with(Held::Own(permit), scope, send, hold, false) }
    }

    fn with(permit: Held, scope: Py<PyAny>, send: Py<PyAny>, hold: Hold, is_named: bool) -> Self {
        Self {
            permit,
            scope: (hold != Hold::Work).then_some(scope),
            send,
            hold,
            is_named,
            has_body: false,
            status: AtomicU16::new(0),
            is_whole: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    fn note(&self, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let kind = message.get_item(intern!(py, "type"))?;
        let kind = kind.cast::<PyString>()?.to_string_lossy();
        if kind == START {
            return self.note_start(message);
        }
        if PARTS.contains(&&*kind) {
            let more = match message.cast::<PyDict>() {
                Ok(message) => message.get_item(intern!(py, "more_body"))?,
                Err(_) => Some(message.call_method1("get", (intern!(py, "more_body"),))?),
            };
            if !more.map_or(Ok(false), |more| more.is_truthy())? {
                self.is_whole.store(true, Ordering::Relaxed);
                return match self.hold {
                    Hold::Response => self.end(py, None),
                    Hold::Work | Hold::Headers => self.permit.get().answered(py),
                };
            }
        }
        Ok(())
    }

    fn note_start(&self, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let status = message.get_item(intern!(py, "status"))?.extract()?;
        self.status.store(status, Ordering::Relaxed);
        if self.hold == Hold::Headers {
            self.is_whole.store(true, Ordering::Relaxed);
            return self.end(py, None);
        }
        if is_event_stream(message)? {
            self.is_whole.store(true, Ordering::Relaxed);
            return self.permit.get().answered(py);
        }
        Ok(())
    }

    /// The first call counts.
    fn is_first(&self) -> bool {
        !self.is_over.swap(true, Ordering::Relaxed)
    }

    /// Names the work by the route that a framework has found; never by the path, of
    /// which there is no end.
    fn name(&self, py: Python<'_>, scope: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let own = self.scope.as_ref().map(|scope| scope.bind(py));
        let Some(scope) = scope.or(own).filter(|_| !self.is_named) else { return Ok(()) };
        let Ok(scope) = scope.cast::<PyDict>() else { return Ok(()) };
        let template = match scope.get_item(intern!(py, "route"))? {
            Some(route) => route.getattr(intern!(py, "path")).ok(),
            None => scope.get_item(intern!(py, "path_template"))?,
        };
        let template = template.and_then(|template| template.cast_into::<PyString>().ok());
        if let (Some(template), Some(method)) = (template, scope.get_item(intern!(py, "method"))?) {
            let name = PyString::new(py, &format!("{method} {template}"));
            self.permit.get().name(name.unbind());
        }
        Ok(())
    }
}

/// Of these the first byte is what is waited for.
fn is_event_stream(message: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = message.py();
    let headers = match message.cast::<PyDict>() {
        Ok(message) => message.get_item(intern!(py, "headers"))?,
        Err(_) => Some(message.call_method1("get", (intern!(py, "headers"), ()))?),
    };
    let Some(headers) = headers else { return Ok(false) };
    if let Ok(headers) = headers.cast::<PyList>() {
        // Where nearly all are: as fast as can be.
        for pair in headers.iter() {
            if let Some(answer) = is_event_stream_by(&pair)? {
                return Ok(answer);
            }
        }
        return Ok(false);
    }
    // What is iterated once may not be iterated twice: it is for the server.
    if headers.is_instance_of::<PyTuple>() {
        for pair in headers.try_iter()? {
            if let Some(answer) = is_event_stream_by(&pair?)? {
                return Ok(answer);
            }
        }
    }
    Ok(false)
}

/// What a header says of it, if it is the one that does.
fn is_event_stream_by(pair: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    let (name, value) = match pair.cast::<PyTuple>() {
        Ok(pair) => (pair.get_item(0)?, pair.get_item(1)?),
        Err(_) => (pair.get_item(0)?, pair.get_item(1)?),
    };
    // What is no bytes is for the server to refuse.
    let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>()) else {
        return Ok(None);
    };
    if !name.as_bytes().eq_ignore_ascii_case(b"content-type") {
        return Ok(None);
    }
    let begin = value.as_bytes().get(..EVENT_STREAM.len());
    Ok(Some(begin.is_some_and(|begin| begin.eq_ignore_ascii_case(EVENT_STREAM))))
}

#[pymethods]
impl Answer {
    #[new]
    #[pyo3(signature = (permit, scope, send, hold, is_named, /))]
    fn new(
        permit: Py<Permit>,
        scope: Py<PyAny>,
        send: Py<PyAny>,
        hold: &str,
        is_named: bool,
    ) -> PyResult<Self> {
        Ok(Self::with(Held::Shared(permit), scope, send, Hold::new(hold)?, is_named))
    }

    /// Take note of a message, and send it on.
    #[pyo3(signature = (message, /))]
    fn send(&self, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.note(message)?;
        self.send.call1(message.py(), (message,))
    }

    /// Give the permit back; what the status says is the outcome.
    #[pyo3(signature = (scope, /))]
    fn end(&self, py: Python<'_>, scope: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        if !self.is_first() {
            return Ok(());
        }
        let named = self.name(py, scope);
        let outcome = match self.status.load(Ordering::Relaxed) {
            // What a client has cut off took less time than the work does.
            1..400 if self.is_whole.load(Ordering::Relaxed) => Outcome::Success,
            GATEWAY_TIMEOUT => Outcome::Overload,
            _ => Outcome::Ignored,
        };
        self.permit.get().end_with(py, outcome).and(named)
    }

    /// Give the permit back; what the exception says is the outcome.
    #[pyo3(signature = (exception, scope, /))]
    fn fail(&self, exception: &Bound<'_, PyAny>, scope: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.is_first() {
            return Ok(());
        }
        let named = self.name(exception.py(), Some(scope));
        self.permit.get().exit(exception.py(), exception).and(named)
    }

    /// Give the permit back; what was done says nothing of how loaded anybody is.
    #[pyo3(signature = (scope, /))]
    fn ignore(&self, scope: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.is_first() {
            return Ok(());
        }
        let named = self.name(scope.py(), Some(scope));
        self.permit.get().end_with(scope.py(), Outcome::Ignored).and(named)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.permit {
            Held::Own(permit) => permit.traverse(&visit)?,
            Held::Shared(permit) => visit.call(permit)?,
        }
        if let Some(scope) = &self.scope {
            visit.call(scope)?;
        }
        visit.call(&self.send)
    }
}
