use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::clock::Clock;
use super::config;
use super::given::Given;
use super::locked::{BeginsAnew, Locked};
use super::retry_budget::NAMES;
use super::retry_permit::{Giver, Gives, TakesBack};
use crate::primitives::{RetryPermit as Right, TokenRetryBudget as Budget, TokenRetryBudgetConfig};

/// The retry throttling of gRPC; see `sluicegate.TokenRetryBudget`.
#[pyclass(frozen, subclass, weakref, module = "sluicegate._core")]
pub(crate) struct TokenRetryBudget {
    /// It never asks for the time.
    core: Locked<Budget>,
}

#[pymethods]
impl TokenRetryBudget {
    #[new]
    #[pyo3(
        signature = (max_tokens = Given::NOTHING, token_ratio = Given::NOTHING, *, name = None),
        text_signature = "(max_tokens=10, token_ratio=0.1, *, name=None)"
    )]
    fn new(
        py: Python<'_>,
        max_tokens: Given<'_, '_>,
        token_ratio: Given<'_, '_>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (max_tokens, token_ratio) = (max_tokens.get(), token_ratio.get());
        let primitive =
            Budget::new(changed(TokenRetryBudgetConfig::default(), max_tokens, token_ratio)?)?;
        let name = config::text("name", name)?.unwrap_or_else(|| NAMES.next(py));
        Ok(Self { core: Locked::new(primitive, name, Clock::Default) })
    }

    /// Count a request, or a retry, that succeeded.
    fn record_success(&self) {
        self.core.with(Budget::record_success);
    }

    /// Count one that failed and could be retried, or whose answer said not to retry.
    fn record_failure(&self) {
        self.core.with(Budget::record_failure);
    }

    /// Ask for a retry; never waits.
    fn try_retry(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let answer = slf.get().core.with(Budget::try_retry);
        Giver::Tokens(slf.clone().unbind()).answer(slf.py(), answer)
    }

    /// Change what is given; what is left stays the same share of `max_tokens`.
    #[pyo3(signature = (*, max_tokens = None, token_ratio = None))]
    fn update(
        &self,
        max_tokens: Option<&Bound<'_, PyAny>>,
        token_ratio: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // Converted before the lock, since that may run Python: what is left out is
        // taken over under it.
        let given = changed(TokenRetryBudgetConfig::default(), max_tokens, token_ratio)?;
        self.core.with(|budget| {
            let old = *budget.config();
            budget.update(TokenRetryBudgetConfig {
                max_tokens: max_tokens.map_or(old.max_tokens, |_| given.max_tokens),
                token_ratio: token_ratio.map_or(old.token_ratio, |_| given.token_ratio),
            })
        })?;
        Ok(())
    }

    /// What it is called in rejections, snapshots and metrics.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.core.name().clone_ref(py)
    }

    /// The values of a snapshot, by name.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (config, snapshot) = self.core.with(|budget| (*budget.config(), budget.snapshot()));
        let values = PyDict::new(py);
        values.set_item("max_tokens", config.max_tokens)?;
        values.set_item("token_ratio", config.token_ratio)?;
        values.set_item("tokens", snapshot.tokens)?;
        values.set_item("held", snapshot.held)?;
        values.set_item("admitted", snapshot.admitted)?;
        values.set_item("rejected", snapshot.rejected)?;
        values.set_item("stray_releases", snapshot.stray_releases)?;
        Ok(values)
    }
}

impl TokenRetryBudget {
    pub(crate) fn core(&self) -> &(dyn Gives + 'static) {
        &self.core
    }
}

/// A configuration with what is given.
fn changed(
    mut config: TokenRetryBudgetConfig,
    max_tokens: Option<&Bound<'_, PyAny>>,
    token_ratio: Option<&Bound<'_, PyAny>>,
) -> PyResult<TokenRetryBudgetConfig> {
    const RANGE: &str = "a number from 0.001 to 1000";
    if let Some(max_tokens) = max_tokens {
        config.max_tokens = config::number("max_tokens", RANGE, max_tokens)?;
    }
    if let Some(token_ratio) = token_ratio {
        config.token_ratio = config::number("token_ratio", RANGE, token_ratio)?;
    }
    Ok(config)
}

impl BeginsAnew for Budget {
    fn begin_anew(&mut self) {
        self.reset();
    }
}

impl TakesBack for Budget {
    fn release(&mut self, right: Right) {
        self.release(right);
    }

    fn count_stray_release(&mut self) {
        self.count_stray_release();
    }
}
