use super::random::{Purpose, draws, exponential};
use super::scenario::{Arrivals, Error, Faulty, Process, Rates};
use super::trace::Trace;
use crate::primitives::Time;
use crate::primitives::random::Random;

/// When the requests of one source come.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    random: Random,
    process: Process,
}

#[derive(Debug)]
enum Kind {
    /// Corners of the rate: a moment, the rate there, and the rate before the next.
    Rate(Vec<Corner>),
    /// Moments, and which row of the trace each is.
    Moments(Vec<Time>),
    Users,
}

#[derive(Clone, Copy, Debug)]
struct Corner {
    at: f64,
    rate: f64,
    /// The rate just before the next corner.
    until: f64,
}

impl Source {
    pub(super) fn new(arrivals: &Arrivals, seed: u64, number: usize) -> Result<Self, Error> {
        let kind = if let Some(rate) = &arrivals.rate {
            let steps = rate.steps().iter();
            Kind::Rate(
                steps
                    .map(|(at, rate)| Corner { at: at.as_secs_f64(), rate: *rate, until: *rate })
                    .collect(),
            )
        } else if let Some(ramp) = &arrivals.ramp {
            Kind::Rate(corners(ramp))
        } else if let Some(rates) = &arrivals.rates {
            Kind::Rate(corners(&rates.points(&arrivals.table)?))
        } else if let Some(requests) = &arrivals.trace {
            let time = arrivals.table.moments(&requests.time, false)?;
            let moments = arrivals.table.rows.iter().map(|row| row[time] / requests.speed);
            Kind::Moments(moments.map(Time::from_secs_f64).collect())
        } else if let Some(times) = &arrivals.times {
            Kind::Moments(times.iter().copied().map(Time::from_secs_f64).collect())
        } else {
            Kind::Users
        };
        let random = draws(seed, Purpose::Arrival, number as u64, 0);
        Ok(Self { kind, random, process: arrivals.process })
    }

    /// How many requests come on average until `end`, in seconds; of users nobody
    /// knows.
    pub(super) fn expected(&self, end: f64) -> f64 {
        match &self.kind {
            Kind::Moments(moments) => moments.len() as f64,
            Kind::Users => 0.0,
            Kind::Rate(corners) => {
                let next =
                    |position: usize| corners.get(position + 1).map_or(f64::INFINITY, |it| it.at);
                let area = |(position, corner): (usize, &Corner)| {
                    let (next, until) = (next(position), end.min(next(position)));
                    let slope = (corner.until - corner.rate) / (next - corner.at);
                    let last = corner.rate + slope * (until - corner.at);
                    f64::midpoint(corner.rate, last) * (until - corner.at).max(0.0)
                };
                corners.iter().enumerate().map(area).sum()
            }
        }
    }

    /// When the request after number `count` comes, the last of which came at
    /// `last`.
    pub(super) fn next(&mut self, last: Time, count: u64) -> Option<Time> {
        match &self.kind {
            Kind::Moments(moments) => moments.get(usize::try_from(count).ok()?).copied(),
            Kind::Rate(corners) => {
                let amount = match self.process {
                    Process::Poisson => exponential(&mut self.random),
                    Process::Constant => 1.0,
                };
                after(corners, last.as_secs_f64(), amount).map(Time::from_secs_f64)
            }
            Kind::Users => None,
        }
    }
}

impl Rates {
    /// Moments, and the rate at each.
    pub(super) fn points(&self, table: &Trace) -> Result<Vec<(f64, f64)>, Error> {
        let (time, rate) = (table.moments(&self.time, true)?, table.column(&self.rate)?);
        let point = |row: &Vec<f64>| {
            row[rate].is_within(0.0..=1e7, &self.rate, "a number per second")?;
            Ok((row[time], row[rate] * self.scale))
        };
        table.rows.iter().map(point).collect()
    }
}

fn corners(points: &[(f64, f64)]) -> Vec<Corner> {
    let nexts = points.iter().skip(1).chain(points.last());
    let pairs = points.iter().zip(nexts);
    pairs.map(|((at, rate), (_, until))| Corner { at: *at, rate: *rate, until: *until }).collect()
}

/// When the integral of the rate has grown by `amount` since `start`.
fn after(corners: &[Corner], start: f64, mut amount: f64) -> Option<f64> {
    let first = corners.partition_point(|corner| corner.at <= start).saturating_sub(1);
    for (position, corner) in corners.iter().enumerate().skip(first) {
        let end = corners.get(position + 1).map_or(f64::INFINITY, |next| next.at);
        let begin = start.max(corner.at);
        let slope = (corner.until - corner.rate) / (end - corner.at);
        let rate = corner.rate + slope * (begin - corner.at);
        let area = if end.is_finite() {
            f64::midpoint(rate, corner.until) * (end - begin)
        } else if rate > 0.0 {
            f64::INFINITY
        } else {
            0.0
        };
        if amount <= area && area > 0.0 {
            // The root of slope / 2 × t² + rate × t = amount that is stable for a small slope.
            let root = (rate * rate + 2.0 * slope * amount).max(0.0).sqrt();
            return Some(begin + 2.0 * amount / (rate + root));
        }
        amount -= area;
    }
    None
}
