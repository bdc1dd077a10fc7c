use std::fmt;

/// A parameter is out of its range: names the parameter, the value and the
/// range.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    parameter: &'static str,
    value: String,
    range: &'static str,
}

impl ConfigError {
    pub(crate) fn new(
        parameter: &'static str,
        value: impl fmt::Display,
        range: &'static str,
    ) -> Self {
        Self { parameter, value: value.to_string(), range }
    }

    /// The name of the parameter.
    #[must_use]
    pub const fn parameter(&self) -> &'static str {
        self.parameter
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}, got {}", self.parameter, self.range, self.value)
    }
}

impl std::error::Error for ConfigError {}

/// A number as people write it: without hundreds of zeros.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 || (1e-5..1e16).contains(&value.abs()) || !value.is_finite() {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}
