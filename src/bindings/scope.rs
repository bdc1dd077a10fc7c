//! What travels with a request: a chain of links in one context variable.
//!
//! Tasks copy their context, and many outlive the request in which they were made. So a
//! link is closed when its block ends, and whoever still has it passes over it. The one
//! around it counts for as long as that is open itself.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::context_variable as variable;
use super::deadline::Deadline;
use super::permit::outcome_from;
use super::{config, exit, imports};
use crate::primitives::{Criticality, Outcome};

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
    stage: Arc<AtomicU8>,
    /// What is around it, from when it is entered.
    outside: Mutex<Outside>,
    deadline: Option<Py<Deadline>>,
    criticality: Option<Criticality>,
    key: Option<Py<PyString>>,
    operation: Option<Py<PyString>>,
    tokens: Option<f64>,
}

/// What is around a link.
#[derive(Default)]
struct Outside {
    parent: Option<Py<Scope>>,
    earliest: Earliest,
    /// How many were open around it when the closed ones among them were let go of last.
    open: usize,
    /// How many were put between them and it since.
    since: usize,
}

/// The earliest deadline of a link and those around it.
///
/// Nothing comes between a link and those that it was opened in, so that it is the earliest
/// for as long as the link that told it is open, which is known without that link: to keep
/// it would keep what it was in.
#[derive(Default)]
enum Earliest {
    /// They are to be asked: their clocks differ, so that it depends on when.
    #[default]
    Unknown,
    Nothing,
    Told {
        by: Arc<AtomicU8>,
        deadline: Py<Deadline>,
    },
}

/// So many are looked at each time that one is put inside them, which keeps no closed one.
const FEW: usize = 8;

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

/// What an outcome says about load here: a time-out that comes of a deadline which a stranger
/// chose says nothing. With it comes what the clocks of deadlines raise.
#[inline]
pub(crate) fn outcome_here(py: Python<'_>, outcome: Outcome) -> (Outcome, PyResult<()>) {
    if outcome != Outcome::Overload {
        return (outcome, Ok(()));
    }
    match earliest(py) {
        Ok(None) => (outcome, Ok(())),
        Ok(Some(deadline)) => {
            let (is_a_strangers_fault, told) = deadline.get().is_a_strangers_fault(py);
            (if is_a_strangers_fault { Outcome::Ignored } else { outcome }, told)
        }
        Err(error) => (outcome, Err(error)),
    }
}

/// The earliest deadline here and now.
///
/// # Errors
/// What their clocks raise, where they differ.
fn earliest(py: Python<'_>) -> PyResult<Option<Py<Deadline>>> {
    if OPEN_LINKS.load(Ordering::Relaxed) == 0 {
        return Ok(None);
    }
    earliest_of(py, Links::from_here(py)?)
}

fn earliest_of(py: Python<'_>, links: Links<'_>) -> PyResult<Option<Py<Deadline>>> {
    let mut earliest = None;
    match Earliest::Nothing.or_of(py, links.copy())? {
        Earliest::Nothing => {}
        Earliest::Told { deadline, .. } => earliest = Some(deadline),
        Earliest::Unknown => {
            for link in links {
                link.get().shorten(py, &mut earliest)?;
            }
        }
    }
    Ok(earliest)
}

impl Earliest {
    /// The same with those around, as far as that is known without their clocks.
    fn or_of(mut self, py: Python<'_>, links: Links<'_>) -> PyResult<Self> {
        for link in links {
            let (other, is_all) = link.get().known_earliest(py);
            self = self.or(py, other)?;
            if is_all || matches!(self, Self::Unknown) {
                break;
            }
        }
        Ok(self)
    }

    fn or(self, py: Python<'_>, other: Self) -> PyResult<Self> {
        Ok(match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (Self::Told { deadline: one, by }, Self::Told { deadline: other, by: other_by }) => {
                if !one.get().is_on_the_clock_of(other.get()) {
                    Self::Unknown
                } else if other.get().is_before(py, one.get())? {
                    Self::Told { deadline: other, by: other_by }
                } else {
                    Self::Told { deadline: one, by }
                }
            }
        })
    }
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

    fn copy(&self) -> Self {
        Self { py: self.py, next: self.next.as_ref().map(|next| next.clone_ref(self.py)) }
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
        self.outside.lock().parent.as_ref().map(|parent| parent.clone_ref(py))
    }

    /// Puts it inside that one, around which so many are open, and none is closed.
    fn put_under(&self, parent: Option<Py<Self>>, open: usize) {
        // Dropped after the lock.
        let old = {
            let mut outside = self.outside.lock();
            (outside.open, outside.since) = (open, 0);
            std::mem::replace(&mut outside.parent, parent)
        };
        drop(old);
    }

    fn own_earliest(&self, py: Python<'_>) -> Earliest {
        match &self.deadline {
            None => Earliest::Nothing,
            Some(own) => Earliest::Told { by: self.stage.clone(), deadline: own.clone_ref(py) },
        }
    }

    /// The earliest deadline of it and those around it, and whether it is of all of them: if
    /// not, it is its own.
    fn known_earliest(&self, py: Python<'_>) -> (Earliest, bool) {
        match &self.outside.lock().earliest {
            Earliest::Nothing => return (Earliest::Nothing, true),
            Earliest::Told { by, deadline } if by.load(Ordering::Relaxed) == OPEN => {
                return (Earliest::Told { by: by.clone(), deadline: deadline.clone_ref(py) }, true);
            }
            Earliest::Told { .. } | Earliest::Unknown => {}
        }
        (self.own_earliest(py), false)
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

    /// Puts it inside the open links.
    fn open_inside(slf: &Bound<'_, Self>) -> PyResult<Option<Py<Deadline>>> {
        let (py, this) = (slf.py(), slf.get());
        let links = Links::from_here(py)?;
        let known = this.own_earliest(py).or_of(py, links.copy())?;
        let earliest = match (&this.deadline, &known) {
            (None, _) => None,
            (_, Earliest::Told { deadline, .. }) => Some(deadline.clone_ref(py)),
            (Some(own), _) => match earliest_of(py, links.copy())? {
                Some(around) if around.get().is_before(py, own.get())? => Some(around),
                _ => Some(own.clone_ref(py)),
            },
        };
        this.put_inside(py, links);
        this.outside.lock().earliest = known;
        OPEN_LINKS.fetch_add(1, Ordering::Relaxed);
        this.stage.store(OPEN, Ordering::Relaxed);
        if let Err(error) = variable::set(py, Some(slf)) {
            this.close();
            return Err(error);
        }
        Ok(earliest)
    }

    /// Puts it under the first of them. They let go of the closed ones between them, each time
    /// that they have doubled in number: work that begets work for ever, each piece in a link of
    /// its own, must not keep all that ever was.
    fn put_inside(&self, py: Python<'_>, mut links: Links<'_>) {
        let Some(first) = links.next() else { return };
        let (open, since) = {
            let outside = first.get().outside.lock();
            (outside.open, outside.since)
        };
        if open > FEW && since <= open {
            let mut outside = self.outside.lock();
            (outside.parent, outside.open, outside.since) = (Some(first), open, since + 1);
            return;
        }
        let open: Vec<Py<Self>> = std::iter::once(first).chain(links).collect();
        let mut inner = self;
        for (place, link) in open.iter().enumerate() {
            inner.put_under(Some(link.clone_ref(py)), open.len() - place);
            inner = link.get();
        }
        inner.put_under(None, 0);
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
            stage: Arc::new(AtomicU8::new(NEW)),
            outside: Mutex::default(),
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
        let Some(outside) = self.outside.try_lock() else {
            return Ok(());
        };
        if let Earliest::Told { deadline, .. } = &outside.earliest {
            visit.call(deadline)?;
        }
        visit.call(&outside.parent)
    }

    fn __clear__(&self) {
        // Dropped after the lock.
        let outside = std::mem::take(&mut *self.outside.lock());
        drop(outside);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Left open: by a generator that is collected in another context, say.
        self.close();
        if let Some(parent) = self.outside.get_mut().parent.take() {
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

/// Return what an outcome says about load here.
#[pyfunction(name = "outcome_here")]
#[pyo3(signature = (outcome, /))]
pub(crate) fn outcome_from_python<'py>(
    py: Python<'py>,
    outcome: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (outcome, told) = outcome_here(py, outcome_from(outcome)?);
    told.and_then(|()| imports::outcome(py, outcome))
}

/// Return how many seconds are left until the earliest deadline, if there is one.
#[pyfunction]
pub(crate) fn remaining(py: Python<'_>) -> PyResult<Option<f64>> {
    let left = earliest(py)?.map(|deadline| deadline.get().left(py)).transpose()?;
    Ok(left.map(|left| left.as_secs_f64()))
}
