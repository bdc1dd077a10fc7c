use super::{Because, Cause, ranges};
use crate::primitives::ConfigError;

/// A limit that moves within its range, and why it is where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    value: f64,
    min_limit: u32,
    max_limit: u32,
    because: Because,
}

/// The most that a limit can be.
pub(super) const MOST: u32 = 1_000_000_000;

impl Estimate {
    /// Begins at `initial`.
    ///
    /// # Errors
    /// If not 1 ≤ `min_limit` ≤ `initial` ≤ `max_limit` ≤ 1e9.
    pub fn new(initial: u32, min_limit: u32, max_limit: u32) -> Result<Self, ConfigError> {
        check_range(min_limit, max_limit)?;
        if !(min_limit..=max_limit).contains(&initial) {
            return Err(ConfigError::new("initial", initial, ranges::INITIAL));
        }
        let because = Because::held(Cause::Initial);
        Ok(Self { value: f64::from(initial), min_limit, max_limit, because })
    }

    /// The limit with its fraction.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// The limit in whole units, as the originals report it.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.value.trunc()
    }

    /// Why it is what it is.
    #[must_use]
    pub const fn because(&self) -> Because {
        self.because
    }

    /// The least and the most that it may become.
    #[must_use]
    pub const fn range(&self) -> (u32, u32) {
        (self.min_limit, self.max_limit)
    }

    /// Leaves it where it is.
    pub fn hold(&mut self, cause: Cause) {
        self.because = Because::held(cause);
    }

    /// Moves it to `aim`, as far as its range goes.
    pub fn move_to(&mut self, aim: f64, cause: Cause) {
        let value = aim.clamp(f64::from(self.min_limit), f64::from(self.max_limit));
        self.because = Because::moved(cause, self.value, value);
        self.value = value;
    }

    /// Changes the range and moves the limit into it.
    ///
    /// # Errors
    /// If not 1 ≤ `min_limit` ≤ `max_limit` ≤ 1e9.
    pub fn set_range(&mut self, min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
        check_range(min_limit, max_limit)?;
        (self.min_limit, self.max_limit) = (min_limit, max_limit);
        self.move_to(self.value, Cause::Range);
        Ok(())
    }
}

fn check_range(min_limit: u32, max_limit: u32) -> Result<(), ConfigError> {
    if !(1..=MOST).contains(&min_limit) {
        return Err(ConfigError::new("min_limit", min_limit, ranges::LIMIT));
    }
    if !(min_limit..=MOST).contains(&max_limit) {
        return Err(ConfigError::new("max_limit", max_limit, ranges::MAX_LIMIT));
    }
    Ok(())
}
