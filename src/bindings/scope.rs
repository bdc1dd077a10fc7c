//! What travels with a request: a chain of links in one context variable.
//!
//! Tasks copy their context, and many outlive the request in which they were made. So a
//! link is closed when its block ends, and whoever still has it passes over it. The one
//! around it counts for as long as that is open itself.

use std::cell::RefCell;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::context_variable as variable;
use super::deadline::Deadline;
use super::{config, exit, imports};
use crate::primitives::Criticality;

/// How many links are open in this process: while there are none, nothing travels.
/// In a forked child it may be too high, which costs it a look at the variable.
///
/// Relaxed: who got a context from somebody else has heard of its links before.
static OPEN_LINKS: AtomicIsize = AtomicIsize::new(0);

const NEW: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// A block in which something is asked for all work; see `sluicegate.context`.
#[pyclass(frozen, weakref, module = "sluicegate._core")]
pub(crate) struct Scope {
    /// Relaxed: nothing else is published with it.
    stage: AtomicU8,
    /// The one around it, from when it is entered.
    parent: Mutex<Option<Py<Self>>>,
    deadline: Option<Py<Deadline>>,
    criticality: Option<Criticality>,
    key: Option<Py<PyString>>,
    operation: Option<Py<PyString>>,
    tokens: Option<f64>,
}

/// What is asked for all work at one moment.
#[derive(Default)]
pub(crate) struct Asked {
    /// The earliest of all.
    pub(crate) deadline: Option<Py<Deadline>>,
    pub(crate) criticality: Option<Criticality>,
    pub(crate) key: Option<Py<PyString>>,
    pub(crate) operation: Option<Py<PyString>>,
    pub(crate) tokens: Option<f64>,
}

/// What is asked here and now; `None` if nothing is.
///
/// # Errors
/// What the clocks of deadlines raise, where they differ.
#[inline]
pub(crate) fn asked(py: Python<'_>) -> PyResult<Option<Asked>> {
    if OPEN_LINKS.load(Ordering::Relaxed) == 0 { Ok(None) } else { look(py) }
}

fn look(py: Python<'_>) -> PyResult<Option<Asked>> {
    let mut asked = None;
    for link in Links::from_here(py)? {
        link.get().add_to(py, asked.get_or_insert_with(Asked::default))?;
    }
    Ok(asked)
}

/// The earliest deadline here and now.
///
/// # Errors
/// What their clocks raise, where they differ.
fn earliest(py: Python<'_>) -> PyResult<Option<Py<Deadline>>> {
    let mut earliest = None;
    if OPEN_LINKS.load(Ordering::Relaxed) != 0 {
        for link in Links::from_here(py)? {
            link.get().shorten(py, &mut earliest)?;
        }
    }
    Ok(earliest)
}

/// The open links from one on outwards.
struct Links<'py> {
    py: Python<'py>,
    next: Option<Py<Scope>>,
}

impl<'py> Links<'py> {
    fn from_here(py: Python<'py>) -> PyResult<Self> {
        Ok(Self { py, next: variable::get(py)? })
    }
}

impl Iterator for Links<'_> {
    type Item = Py<Scope>;

    fn next(&mut self) -> Option<Py<Scope>> {
        loop {
            let link = self.next.take()?;
            self.next = link.get().parent(self.py);
            if link.get().is_open() {
                return Some(link);
            }
        }
    }
}

impl Scope {
    fn is_open(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == OPEN
    }

    fn parent(&self, py: Python<'_>) -> Option<Py<Self>> {
        self.parent.lock().as_ref().map(|parent| parent.clone_ref(py))
    }

    fn put_under(&self, parent: Option<Py<Self>>) {
        // Dropped after the lock.
        let old = std::mem::replace(&mut *self.parent.lock(), parent);
        drop(old);
    }

    fn add_to(&self, py: Python<'_>, asked: &mut Asked) -> PyResult<()> {
        let text = |text: &Option<Py<PyString>>| text.as_ref().map(|text| text.clone_ref(py));
        asked.criticality = asked.criticality.or(self.criticality);
        asked.tokens = asked.tokens.or(self.tokens);
        if asked.key.is_none() {
            asked.key = text(&self.key);
        }
        if asked.operation.is_none() {
            asked.operation = text(&self.operation);
        }
        self.shorten(py, &mut asked.deadline)
    }

    fn shorten(&self, py: Python<'_>, earliest: &mut Option<Py<Deadline>>) -> PyResult<()> {
        let Some(own) = &self.deadline else { return Ok(()) };
        let is_earlier = match earliest {
            None => true,
            Some(other) => own.get().is_before(py, other.get())?,
        };
        if is_earlier {
            *earliest = Some(own.clone_ref(py));
        }
        Ok(())
    }

    /// Puts it inside the open links, which let go of the closed ones between them: work
    /// that begets work for ever, each piece in a link of its own, must not keep all that
    /// ever was.
    fn open_inside(slf: &Bound<'_, Self>) -> PyResult<Option<Py<Deadline>>> {
        let (py, this) = (slf.py(), slf.get());
        let mut earliest = this.deadline.as_ref().map(|own| own.clone_ref(py));
        let mut inner = slf.clone().unbind();
        for link in Links::from_here(py)? {
            if this.deadline.is_some() {
                link.get().shorten(py, &mut earliest)?;
            }
            inner.get().put_under(Some(link.clone_ref(py)));
            inner = link;
        }
        if !inner.is(slf) {
            inner.get().put_under(None);
        }
        OPEN_LINKS.fetch_add(1, Ordering::Relaxed);
        this.stage.store(OPEN, Ordering::Relaxed);
        if let Err(error) = variable::set(py, Some(slf)) {
            this.close();
            return Err(error);
        }
        Ok(earliest)
    }

    /// Whether it was open.
    fn close(&self) -> bool {
        let was_open = self.stage.swap(CLOSED, Ordering::Relaxed) == OPEN;
        if was_open {
            OPEN_LINKS.fetch_sub(1, Ordering::Relaxed);
        }
        was_open
    }
}

#[pymethods]
impl Scope {
    #[new]
    #[pyo3(signature = (*, deadline = None, criticality = None, key = None, operation = None, tokens = None))]
    fn new(
        deadline: Option<&Bound<'_, PyAny>>,
        criticality: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        operation: Option<&Bound<'_, PyAny>>,
        tokens: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            stage: AtomicU8::new(NEW),
            parent: Mutex::new(None),
            deadline: config::deadline_object(deadline)?,
            criticality: config::criticality_or_none(criticality)?,
            key: config::text("key", key)?,
            operation: config::text("operation", operation)?,
            tokens: config::tokens_or_none(tokens)?,
        })
    }

    /// Open it; return the earliest deadline, if it has one itself.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<Deadline>>> {
        // Closed until it stands where it belongs.
        let new =
            slf.get().stage.compare_exchange(NEW, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        if new.is_err() {
            let text = "this block was entered already; make another one";
            return Err(PyRuntimeError::new_err(text));
        }
        Self::open_inside(slf)
    }

    /// Close it, wherever that is.
    fn __exit__(
        slf: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        let (py, this) = (slf.py(), slf.get());
        if !this.close() {
            return;
        }
        // In the context of somebody else, where an async generator may end, and under
        // links that were opened later, there is nothing to put back: what is closed is
        // passed over.
        let restored = variable::get(py).and_then(|current| match current {
            Some(current) if current.is(slf) => {
                let outer = Links { py, next: this.parent(py) }.next();
                variable::set(py, outer.as_ref().map(|outer| outer.bind(py)))
            }
            _ => Ok(()),
        });
        if let Err(error) = restored {
            exit::report(py, error, None);
        }
    }

    fn __repr__(&self) -> String {
        let state = match self.stage.load(Ordering::Relaxed) {
            NEW => "not entered yet",
            OPEN => "open",
            _ => "closed",
        };
        format!("<Scope ({state})>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.deadline)?;
        let Some(parent) = self.parent.try_lock() else {
            return Ok(());
        };
        visit.call(&*parent)
    }

    fn __clear__(&self) {
        self.put_under(None);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Left open: by a generator that is collected in another context, say.
        self.close();
        if let Some(parent) = self.parent.get_mut().take() {
            let_go(parent);
        }
    }
}

thread_local! {
    /// What is still to be let go by whoever has begun to.
    static LET_GO: RefCell<Option<Vec<Py<Scope>>>> = const { RefCell::new(None) };
}

/// Lets go of one after the other, since a chain may be longer than the stack.
fn let_go(link: Py<Scope>) {
    let mut next = LET_GO.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        if let Some(waiting) = &mut *waiting {
            waiting.push(link);
            return None;
        }
        *waiting = Some(Vec::new());
        Some(link)
    });
    // At the end of a thread there is nothing left to note it in; it was dropped then.
    while let Ok(Some(link)) = next {
        drop(link);
        next = LET_GO.try_with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            let more = waiting.as_mut().and_then(Vec::pop);
            if more.is_none() {
                *waiting = None;
            }
            more
        });
    }
}

/// A block in which nothing travels; see `sluicegate.context.detached`.
#[pyclass(frozen, module = "sluicegate._core")]
pub(crate) struct Detached {
    stage: AtomicU8,
    token: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl Detached {
    #[new]
    fn new() -> Self {
        Self { stage: AtomicU8::new(NEW), token: Mutex::new(None) }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let new = self.stage.compare_exchange(NEW, OPEN, Ordering::Relaxed, Ordering::Relaxed);
        if new.is_err() {
            let text = "this block was entered already; make another one";
            return Err(PyRuntimeError::new_err(text));
        }
        let token = variable::set_with_token(py, None)?;
        *self.token.lock() = Some(token);
        Ok(())
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        let token = self.token.lock().take();
        let Some(token) = token else { return };
        match variable::reset(py, token) {
            // In another context there is nothing to put back.
            Err(error) if !error.is_instance_of::<PyValueError>(py) => {
                exit::report(py, error, None);
            }
            _ => {}
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(token) = self.token.try_lock() else {
            return Ok(());
        };
        visit.call(&*token)
    }
}

type Values<'py> = (
    Option<Py<Deadline>>,
    Option<Bound<'py, PyAny>>,
    Option<Py<PyString>>,
    Option<Py<PyString>>,
    Option<f64>,
);

/// Return what is asked here and now: deadline, criticality, key, operation, tokens.
#[pyfunction]
pub(crate) fn current(py: Python<'_>) -> PyResult<Values<'_>> {
    let asked = asked(py)?.unwrap_or_default();
    let criticality = asked.criticality.map(|class| imports::criticality(py, class)).transpose()?;
    Ok((asked.deadline, criticality, asked.key, asked.operation, asked.tokens))
}

/// Return how many seconds are left until the earliest deadline, if there is one.
#[pyfunction]
pub(crate) fn remaining(py: Python<'_>) -> PyResult<Option<f64>> {
    let left = earliest(py)?.map(|deadline| deadline.get().left(py)).transpose()?;
    Ok(left.map(|left| left.as_secs_f64()))
}
