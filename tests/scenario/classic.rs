use serde::Deserialize;
use sluicegate::primitives::limits::{
    Aimd, AimdConfig, Algorithm, Fixed, FixedConfig, Gradient, Gradient2, Gradient2Config,
    GradientConfig, Vegas, VegasConfig, WindowConfig,
};
use sluicegate::primitives::{
    Admission, Ask, Claim, ClassicLimiter, ConfigError, Outcome, Permit, Rejection, Snapshot,
    Ticket, Time, Wakes,
};

use super::limiter::Limits;
use super::loops::Sleeper;

/// What is not given is as in the originals.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Config {
    Fixed {
        limit: u32,
        #[serde(default)]
        window: bool,
    },
    Aimd {
        initial: Option<u32>,
        min_limit: Option<u32>,
        max_limit: Option<u32>,
        #[serde(default)]
        window: bool,
    },
    Vegas {
        initial: Option<u32>,
        #[serde(default = "yes")]
        probes: bool,
        #[serde(default)]
        window: bool,
    },
    Gradient {
        initial: Option<u32>,
        #[serde(default = "yes")]
        probes: bool,
        #[serde(default)]
        window: bool,
    },
    Gradient2 {
        initial: Option<u32>,
        min_limit: Option<u32>,
        max_limit: Option<u32>,
        #[serde(default)]
        window: bool,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    min_limit: u32,
    max_limit: u32,
}

impl Config {
    fn make(self) -> Result<(Algorithm, bool), ConfigError> {
        Ok(match self {
            Self::Fixed { limit, window } => (Fixed::new(FixedConfig { limit })?.into(), window),
            Self::Aimd { initial, min_limit, max_limit, window } => {
                let mut config = AimdConfig::default();
                config.initial = initial.unwrap_or(config.initial);
                config.min_limit = min_limit.unwrap_or(config.min_limit);
                config.max_limit = max_limit.unwrap_or(config.max_limit);
                (Aimd::new(config)?.into(), window)
            }
            Self::Vegas { initial, probes, window } => {
                let mut config = VegasConfig::default();
                config.initial = initial.unwrap_or(config.initial);
                config.probe_multiplier = config.probe_multiplier.filter(|_| probes);
                (Vegas::new(config)?.into(), window)
            }
            Self::Gradient { initial, probes, window } => {
                let mut config = GradientConfig::default();
                config.initial = initial.unwrap_or(config.initial);
                config.probe_interval = config.probe_interval.filter(|_| probes);
                (Gradient::new(config)?.into(), window)
            }
            Self::Gradient2 { initial, min_limit, max_limit, window } => {
                let mut config = Gradient2Config::default();
                config.initial = initial.unwrap_or(config.initial);
                config.min_limit = min_limit.unwrap_or(config.min_limit);
                config.max_limit = max_limit.unwrap_or(config.max_limit);
                (Gradient2::new(config)?.into(), window)
            }
        })
    }
}

impl Limits for ClassicLimiter<Sleeper> {
    type Config = Config;
    type Update = Update;

    fn make(config: Config) -> Result<Self, ConfigError> {
        let (algorithm, window) = config.make()?;
        Self::new(algorithm, window.then(WindowConfig::default))
    }

    fn change(&mut self, now: Time, update: &Update) -> Result<Wakes<Sleeper>, ConfigError> {
        self.update(now, update.min_limit, update.max_limit)
    }

    fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection> {
        self.try_acquire(now, ask)
    }

    fn acquire(&mut self, now: Time, ask: &Ask, sleeper: &mut Option<Sleeper>) -> Admission {
        self.acquire(now, ask, sleeper)
    }

    fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<Sleeper>) {
        self.claim(now, ticket)
    }

    fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<Sleeper> {
        self.release(now, permit, outcome)
    }

    // The extension counts it without asking the limiter.
    fn count_stray_release(&mut self) {}

    fn snapshot(&self, now: Time) -> Snapshot {
        self.snapshot(now)
    }
}

fn yes() -> bool {
    true
}
