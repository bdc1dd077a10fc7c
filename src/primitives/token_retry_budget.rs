use super::retry_budget::rejection;
use super::{ConfigError, Rejection, RetryPermit};

/// Thousandths of a token, as many decimals as the specification knows.
const TOKEN: u32 = 1000;

/// The parameters of a [`TokenRetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRetryBudgetConfig {
    /// How many tokens there are at most, and at first: from 0.001 to 1000.
    /// Retries stop at half of it. Default: 10.
    pub max_tokens: f64,
    /// How many tokens a success brings, from 0.001 to 1000; decimals beyond the
    /// third are ignored. Default: 0.1.
    pub token_ratio: f64,
}

impl Default for TokenRetryBudgetConfig {
    fn default() -> Self {
        Self { max_tokens: 10.0, token_ratio: 0.1 }
    }
}

/// The state of a [`TokenRetryBudget`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRetryBudgetSnapshot {
    /// How many tokens are left.
    pub tokens: f64,
    /// How many retries are held: in back-off, or in their attempt.
    pub held: u64,
    /// How many retries were given since the start.
    pub admitted: u64,
    /// How many were refused since the start.
    pub rejected: u64,
    /// How many releases came for a retry that had been given back already.
    pub stray_releases: u64,
}

/// Stops retries while too few requests succeed: the retry throttling of gRPC
/// (gRFC A6).
///
/// A failure that could be retried costs one token, a success brings `token_ratio`
/// back, up to `max_tokens`. A retry is given if more than half of `max_tokens` are
/// left. The retries that are held are counted and bound nothing.
#[derive(Clone, Debug)]
pub struct TokenRetryBudget {
    config: TokenRetryBudgetConfig,
    /// All three in thousandths.
    tokens: u32,
    max_tokens: u32,
    token_ratio: u32,
    /// Which life this is; permits of an earlier one release nothing.
    epoch: u32,
    held: u64,
    admitted: u64,
    rejected: u64,
    stray_releases: u64,
}

impl TokenRetryBudget {
    /// A full one.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: TokenRetryBudgetConfig) -> Result<Self, ConfigError> {
        let max_tokens = thousandths("max_tokens", config.max_tokens)?;
        Ok(Self {
            config,
            tokens: max_tokens,
            max_tokens,
            token_ratio: thousandths("token_ratio", config.token_ratio)?,
            epoch: 0,
            held: 0,
            admitted: 0,
            rejected: 0,
            stray_releases: 0,
        })
    }

    /// The parameters.
    #[must_use]
    pub const fn config(&self) -> &TokenRetryBudgetConfig {
        &self.config
    }

    /// Counts a request, or a retry, that succeeded.
    #[inline]
    pub fn record_success(&mut self) {
        self.tokens = self.tokens.saturating_add(self.token_ratio).min(self.max_tokens);
    }

    /// Counts a request, or a retry, that failed in a way that could be retried, or
    /// whose answer said not to retry.
    #[inline]
    pub fn record_failure(&mut self) {
        self.tokens = self.tokens.saturating_sub(TOKEN);
    }

    /// Gives a retry, or refuses it with [`Reason::Budget`](super::Reason::Budget).
    ///
    /// # Errors
    /// If half of the tokens or fewer are left.
    #[inline]
    pub fn try_retry(&mut self) -> Result<RetryPermit, Rejection> {
        if self.tokens <= self.max_tokens / 2 {
            self.rejected += 1;
            return Err(rejection(self.config.max_tokens, self.held));
        }
        self.held += 1;
        self.admitted += 1;
        Ok(RetryPermit { epoch: self.epoch, bucket: 0 })
    }

    /// Takes a retry back, whose attempt is over or never began; a permit from
    /// before a [`reset`](Self::reset) gives nothing back.
    #[allow(clippy::needless_pass_by_value)] // given back is gone
    pub fn release(&mut self, permit: RetryPermit) {
        if permit.epoch == self.epoch {
            self.held -= 1;
        }
    }

    /// Counts a release that came twice; for callers whose permits are shared.
    pub fn count_stray_release(&mut self) {
        self.stray_releases += 1;
    }

    /// Changes the parameters; what is left stays the same share of `max_tokens`.
    ///
    /// # Errors
    /// If a parameter is out of its range, and then nothing is changed.
    pub fn update(&mut self, config: TokenRetryBudgetConfig) -> Result<(), ConfigError> {
        let max_tokens = thousandths("max_tokens", config.max_tokens)?;
        self.token_ratio = thousandths("token_ratio", config.token_ratio)?;
        // No overflow: a million times a million.
        let scaled = u64::from(self.tokens) * u64::from(max_tokens) / u64::from(self.max_tokens);
        self.tokens = u32::try_from(scaled).unwrap_or(max_tokens);
        self.max_tokens = max_tokens;
        self.config = config;
        Ok(())
    }

    /// The state at this moment.
    #[must_use]
    pub fn snapshot(&self) -> TokenRetryBudgetSnapshot {
        TokenRetryBudgetSnapshot {
            tokens: f64::from(self.tokens) / f64::from(TOKEN),
            held: self.held,
            admitted: self.admitted,
            rejected: self.rejected,
            stray_releases: self.stray_releases,
        }
    }

    /// Begins anew in a forked process: what is held is the parent's. What is known
    /// of the backend stays.
    pub fn reset(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.held = 0;
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in its range
fn thousandths(parameter: &'static str, tokens: f64) -> Result<u32, ConfigError> {
    if !(0.001..=1000.0).contains(&tokens) {
        return Err(ConfigError::new(parameter, tokens, "a number from 0.001 to 1000"));
    }
    // But for an error of the multiplication: 1.001 × 1000 are 1001.
    Ok((tokens * f64::from(TOKEN) + 1e-6) as u32)
}
