use std::convert::Infallible;

use pyo3::prelude::*;

/// An argument whose default is not `None`.
///
/// As an `Option` it could not be told from one that is left out: here `None` is a value
/// like any other, and as such of a wrong type.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a, 'py>(Option<Borrowed<'a, 'py, PyAny>>);

impl<'py> Given<'_, 'py> {
    /// The default of an argument: left out.
    pub(crate) const NOTHING: Self = Self(None);

    #[inline]
    pub(crate) fn get(&self) -> Option<&Bound<'py, PyAny>> {
        self.0.as_deref()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Given<'a, 'py> {
    type Error = Infallible;

    #[inline]
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(value)))
    }
}
