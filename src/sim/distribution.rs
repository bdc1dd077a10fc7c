use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::random::{above_zero, exponential, normal};
use super::scenario::{Error, Faulty};
use super::trace::Trace;
use crate::primitives::random::Random;

/// How a span of time is distributed, in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Exponential, with that mean.
    Exponential(f64),
    /// Lognormal, with that mean and coefficient of variation.
    Lognormal { mean: f64, cv: f64 },
    /// Pareto, with that mean and tail index, which is above 1.
    Pareto { mean: f64, alpha: f64 },
    /// One of several, by their shares.
    Mix(Vec<Part>),
    /// A sum of columns of the trace, each times its factor; `base` is the constant.
    Columns(BTreeMap<String, f64>),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    share: f64,
    is: Distribution,
}

/// What the trace says of one request.
pub(super) type Row<'a> = Option<(&'a [String], &'a [f64])>;

impl Distribution {
    pub(super) fn draw(&self, random: &mut Random, row: Row<'_>) -> f64 {
        match self {
            Self::Constant(span) => *span,
            Self::Exponential(mean) => mean * exponential(random),
            Self::Lognormal { mean, cv } => {
                let variance = libm::log1p(cv * cv);
                mean * libm::exp(variance.sqrt() * normal(random) - variance / 2.0)
            }
            Self::Pareto { mean, alpha } => {
                mean * (alpha - 1.0) / alpha * libm::pow(above_zero(random), -1.0 / alpha)
            }
            Self::Mix(parts) => {
                let total: f64 = parts.iter().map(|part| part.share).sum();
                let mut point = random.unit() * total;
                let found = parts.iter().find(|part| {
                    point -= part.share;
                    point < 0.0
                });
                found.or(parts.last()).map_or(0.0, |part| part.is.draw(random, row))
            }
            Self::Columns(factors) => {
                let column = |name: &str| {
                    let (names, values) = row?;
                    let position = names.iter().position(|each| each == name)?;
                    values.get(position).copied()
                };
                let summand = |(name, factor): (&String, &f64)| {
                    if name == "base" { *factor } else { factor * column(name).unwrap_or(0.0) }
                };
                factors.iter().map(summand).sum()
            }
        }
    }

    pub(super) fn check(&self, parameter: &str, traces: &[Arc<Trace>]) -> Result<(), Error> {
        let span = |span: f64| span.is_within(0.0..=1e6, parameter, "a number of seconds");
        match self {
            Self::Constant(mean) | Self::Exponential(mean) => span(*mean),
            Self::Lognormal { mean, cv } => {
                span(*mean)?;
                cv.is_within(0.0..=100.0, &format!("{parameter}.cv"), "a number")
            }
            Self::Pareto { mean, alpha } => {
                span(*mean)?;
                alpha.is_within(1.01..=100.0, &format!("{parameter}.alpha"), "a number")
            }
            Self::Mix(parts) => {
                for part in parts {
                    part.share.is_within(0.0..=1e9, &format!("{parameter}.share"), "a number")?;
                    part.is.check(parameter, traces)?;
                }
                // The sum of none is -0.
                let total: f64 = parts.iter().map(|part| part.share).sum::<f64>() + 0.0;
                let parameter = format!("{parameter}: the sum of shares");
                total.is_within(1e-9..=1e11, &parameter, "a number")
            }
            Self::Columns(factors) => factors.iter().try_for_each(|(name, factor)| {
                let mut known =
                    traces.iter().filter(|trace| trace.columns.contains(name)).peekable();
                if name != "base" && known.peek().is_none() {
                    return Err(Error(format!("{parameter}: no trace has a column {name:?}")));
                }
                known.try_for_each(|trace| trace.column(name).map(drop))?;
                factor.is_within(0.0..=1e6, &format!("{parameter}.{name}"), "a number")
            }),
        }
    }
}
