//! What can stand before a server: any chain of limiters and queues.

mod gate;
mod limiter;
mod plain;

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::Value;

use gate::GateLink;
pub(super) use limiter::{Admitted, Limiter};
pub(super) use plain::{Order, Plain};

use super::job::JobId;
use super::scenario::{Error, Faulty};
use super::seconds;
use crate::primitives::gradient::GradientConfig;
use crate::primitives::{QueueConfig, TokenBucket};

/// What a request passes, one after the other, before it is served; nothing by
/// default.
///
/// As text: the names of its links with "+" in between, such as "codel+gradient2",
/// or "none".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy(pub(super) Vec<Link>);

/// One part of a policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Link {
    /// A plain queue, the oldest first.
    Fifo(PlainLink),
    /// A plain queue, the newest first.
    Lifo(PlainLink),
    /// A [`CoDelQueue`](crate::primitives::CoDelQueue).
    Codel(CodelLink),
    /// A [`TokenBucket`], at which nobody waits.
    Bucket(BucketLink),
    Fixed(FixedLink),
    /// The [`GradientLimiter`](crate::primitives::GradientLimiter).
    Adaptive(AdaptiveLink),
    Aimd(ClassicLink),
    Vegas(ClassicLink),
    Gradient(ClassicLink),
    Gradient2(ClassicLink),
    /// A [`Gate`](crate::primitives::Gate).
    Gate(GateLink),
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PlainLink {
    /// How many may wait; as many as come if not given.
    pub(super) capacity: Option<usize>,
    /// Rejected is, when its turn comes, what has less than this to its deadline, in
    /// seconds; nothing if not given.
    pub(super) estimate: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CodelLink {
    pub(super) capacity: usize,
    pub(super) target: Option<f64>,
    pub(super) interval: Option<f64>,
}

impl Default for CodelLink {
    fn default() -> Self {
        Self { capacity: 10_000, target: None, interval: None }
    }
}

impl CodelLink {
    pub(super) fn config(&self) -> QueueConfig {
        QueueConfig {
            target: self.target.map(seconds),
            interval: self.interval.map(seconds),
            ..QueueConfig::new(self.capacity)
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketLink {
    /// How many it admits in a second.
    pub(super) rate: f64,
    /// How many it admits at once; as [`TokenBucket`] has it if not given.
    pub(super) burst: Option<f64>,
}

impl BucketLink {
    pub(super) fn build(&self) -> Result<TokenBucket<JobId>, Error> {
        Ok(TokenBucket::new(self.rate, 1.0, self.burst)?)
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FixedLink {
    pub(super) limit: f64,
    pub(super) wait: f64,
}

impl Default for FixedLink {
    fn default() -> Self {
        Self { limit: 20.0, wait: 0.0 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AdaptiveLink {
    pub(super) initial: Option<f64>,
    pub(super) min_limit: Option<f64>,
    pub(super) max_limit: Option<f64>,
    /// In seconds.
    pub(super) latency_target: Option<f64>,
    /// How long a request may wait in line, in seconds.
    pub(super) wait: f64,
}

impl AdaptiveLink {
    fn config(&self) -> GradientConfig {
        let default = GradientConfig::default();
        GradientConfig {
            initial: self.initial.unwrap_or(default.initial),
            min_limit: self.min_limit.unwrap_or(default.min_limit),
            max_limit: self.max_limit.unwrap_or(default.max_limit),
            latency_target: self.latency_target.map(seconds),
        }
    }
}

/// One of the published algorithms; what is not given is as published.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClassicLink {
    pub(super) initial: Option<u32>,
    pub(super) min_limit: Option<u32>,
    pub(super) max_limit: Option<u32>,
    /// Whether it is fed one sample a window.
    pub(super) windowed: bool,
    /// How long a request may wait in line, in seconds.
    pub(super) wait: f64,
}

impl Link {
    /// As text, or a table of its parameters.
    fn read<E: serde::de::Error>(value: Value) -> Result<Self, E> {
        match value {
            Value::String(text) => text.parse().map_err(E::custom),
            value => serde_json::from_value(value).map_err(E::custom),
        }
    }

    /// # Errors
    /// If it is no limiter, or its parameters are out of their ranges.
    fn check_limit(&self) -> Result<(), Error> {
        if let Self::Adaptive(AdaptiveLink { latency_target: Some(target), .. }) = self {
            let parameter = "adaptive.latency_target";
            target.is_within(1e-9..=3600.0, parameter, "a number of seconds")?;
        }
        drop(Limiter::new(self, 0)?);
        Ok(())
    }

    /// For how long one may wait for it, in seconds, if it is a limiter.
    const fn wait(&self) -> f64 {
        match self {
            Self::Fixed(FixedLink { wait, .. })
            | Self::Adaptive(AdaptiveLink { wait, .. })
            | Self::Aimd(ClassicLink { wait, .. })
            | Self::Vegas(ClassicLink { wait, .. })
            | Self::Gradient(ClassicLink { wait, .. })
            | Self::Gradient2(ClassicLink { wait, .. }) => *wait,
            Self::Fifo(_) | Self::Lifo(_) | Self::Codel(_) | Self::Bucket(_) | Self::Gate(_) => 0.0,
        }
    }
}

impl Policy {
    pub(super) fn check(&self) -> Result<(), Error> {
        for link in &self.0 {
            match link {
                Link::Fifo(PlainLink { estimate, .. }) | Link::Lifo(PlainLink { estimate, .. }) => {
                    if let Some(estimate) = estimate {
                        let parameter = format!("{link}.estimate");
                        estimate.is_within(0.0..=1e6, &parameter, "a number of seconds")?;
                    }
                }
                Link::Codel(link) => {
                    for (parameter, span) in
                        [("codel.target", link.target), ("codel.interval", link.interval)]
                    {
                        if let Some(span) = span {
                            span.is_within(0.0..=3600.0, parameter, "a number of seconds")?;
                        }
                    }
                    link.config().check()?;
                }
                Link::Bucket(link) => drop(link.build()?),
                Link::Gate(gate) => gate.check()?,
                link => {
                    let parameter = format!("{link}.wait");
                    link.wait().is_within(0.0..=1e6, &parameter, "a number of seconds")?;
                    link.check_limit()?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0.as_slice() else {
            return f.write_str("none");
        };
        first.fmt(f)?;
        rest.iter().try_for_each(|link| write!(f, "+{link}"))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, is_windowed) = match self {
            Self::Fifo(_) => ("fifo", false),
            Self::Lifo(_) => ("lifo", false),
            Self::Codel(_) => ("codel", false),
            Self::Bucket(_) => ("bucket", false),
            Self::Fixed(_) => ("fixed", false),
            Self::Adaptive(_) => ("adaptive", false),
            Self::Aimd(link) => ("aimd", link.windowed),
            Self::Vegas(link) => ("vegas", link.windowed),
            Self::Gradient(link) => ("gradient", link.windowed),
            Self::Gradient2(link) => ("gradient2", link.windowed),
            Self::Gate(_) => ("gate", false),
        };
        f.write_str(name)?;
        if is_windowed { f.write_str("/windowed") } else { Ok(()) }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "none" {
            return Ok(Self::default());
        }
        text.split('+').map(Link::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, windowed) = match text.strip_suffix("/windowed") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let classic = || ClassicLink { windowed, ..ClassicLink::default() };
        match name {
            "fifo" if !windowed => Ok(Self::Fifo(PlainLink::default())),
            "lifo" if !windowed => Ok(Self::Lifo(PlainLink::default())),
            "codel" if !windowed => Ok(Self::Codel(CodelLink::default())),
            "adaptive" if !windowed => Ok(Self::Adaptive(AdaptiveLink::default())),
            "fixed" if !windowed => Ok(Self::Fixed(FixedLink::default())),
            "gate" if !windowed => Ok(Self::Gate(GateLink::default())),
            "aimd" => Ok(Self::Aimd(classic())),
            "vegas" => Ok(Self::Vegas(classic())),
            "gradient" => Ok(Self::Gradient(classic())),
            "gradient2" => Ok(Self::Gradient2(classic())),
            _ => Err(Error(format!(
                "policy must be none or links joined by \"+\": fifo, lifo, codel, gate, fixed, \
                 adaptive, aimd, vegas, gradient, gradient2 (the last four also with \
                 \"/windowed\"), got {text:?}"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().map_err(D::Error::custom),
            Value::Array(links) => {
                links.into_iter().map(Link::read).collect::<Result<_, _>>().map(Self)
            }
            value => Link::read(value).map(|link| Self(vec![link])),
        }
    }
}
