use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::core::Core;
use crate::bindings::rejection::{Kind, Rejection};
use crate::bindings::{config, exit, fork, imports};
use crate::primitives::{Level, News};

/// What is called when something happens in a queue, and outside its lock.
pub(crate) struct Hooks {
    on_reject: Option<Py<PyAny>>,
    on_high: Option<Py<PyAny>>,
    on_low: Option<Py<PyAny>>,
    /// Whether it was said that nothing is learnt. Relaxed: twice does no harm.
    has_said: AtomicBool,
}

impl Hooks {
    pub(crate) fn new(
        on_reject: Option<&Bound<'_, PyAny>>,
        on_high: Option<&Bound<'_, PyAny>>,
        on_low: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            on_reject: config::hook("on_reject", on_reject)?,
            on_high: config::hook("on_high", on_high)?,
            on_low: config::hook("on_low", on_low)?,
            has_said: AtomicBool::new(false),
        })
    }

    /// Tells all of it, whatever a hook raises: an `Exception` is reported, anything
    /// else is returned at the end.
    pub(crate) fn tell(
        &self,
        py: Python<'_>,
        name: &Py<PyString>,
        news: Vec<News<Py<PyAny>>>,
    ) -> PyResult<()> {
        let _calling = exit::Calling::new(py);
        let mut first_error = Ok(());
        let generation = fork::generation();
        let mut news = news.into_iter();
        while let Some(event) = news.next() {
            let told = match event {
                News::Rejected(item, refusal) => self.on_reject.as_ref().map(|hook| {
                    let rejection = Rejection::new(Kind::Queue, name.clone_ref(py), refusal);
                    hook.call1(py, (item, rejection)).map(|_| hook)
                }),
                News::Level(level) => {
                    let hook = match level {
                        Level::High => self.on_high.as_ref(),
                        Level::Low => self.on_low.as_ref(),
                    };
                    hook.map(|hook| hook.call0(py).map(|_| hook))
                }
            };
            if let Some(Err(error)) = told {
                if error.is_instance_of::<PyException>(py) {
                    exit::report(py, error, None);
                } else {
                    first_error = first_error.and(Err(error));
                }
            }
            // A hook that forked: the rest is told in the parent, whose it is.
            if fork::generation() != generation {
                std::mem::forget(news);
                break;
            }
        }
        first_error
    }

    #[inline]
    pub(crate) fn say_once(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        if self.has_said.load(Ordering::Relaxed) { Ok(()) } else { self.say(py, core) }
    }

    #[cold]
    fn say(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        self.has_said.store(true, Ordering::Relaxed);
        let (is_automatic, snapshot) = core.with(|items| {
            let config = items.queue().config();
            let is_automatic = config.target.is_none() && config.interval.is_none();
            (is_automatic, items.snapshot(items.queue().latest()))
        });
        if !is_automatic || snapshot.baseline.is_some() || snapshot.working > 0 {
            return Ok(());
        }
        let name = core.name().bind(py).to_string();
        let text = format!(
            "queue {name:?} does not know how long work takes: its items may wait {} s, or {} s \
            while it is standing. `async with queue.take() as item:` times the work, and get() \
            does not; or give a target.",
            snapshot.interval.as_secs_f64(),
            snapshot.target.as_secs_f64(),
        );
        imports::warn(py, "sluicegate.queue", &text)
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_reject)?;
        visit.call(&self.on_high)?;
        visit.call(&self.on_low)
    }
}
