use super::baseline::{Baselines, Group};
use crate::primitives::Time;

/// As many samples make a mean.
const ENOUGH: u64 = 20;
/// After so many latencies fewer do.
const FEW: u64 = 10;
const ROUND_TRIPS: f64 = 2.0;
/// And no fewer, however long that takes.
const FEWEST: u64 = 3;
/// The shortest window, and a multiple of the latency beside it, in nanoseconds.
const SHORTEST: f64 = 100e6;
const SHORTEST_IN_LATENCIES: f64 = 0.25;
/// After so long a few samples do.
const LONG: f64 = 10e9;
const LONG_IN_LATENCIES: f64 = 10.0;

/// Sums of samples, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl Sums {
    pub(super) fn add(&mut self, nanos: f64) {
        self.count += 1;
        self.sum += nanos;
        self.squares += nanos * nanos;
    }

    /// 0 if there is none.
    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Of the mean.
    pub(super) fn standard_error(&self) -> f64 {
        self.deviation() / (self.count.max(1) as f64).sqrt()
    }

    /// The standard deviation; 0 of one or none.
    pub(super) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let count = self.count as f64;
        let squares = self.squares - self.sum * self.sum / count;
        (squares.max(0.0) / (count - 1.0)).sqrt()
    }
}

/// Sums for each group of operations, and of all.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    all: Sums,
    groups: Vec<Sums>,
    used: Vec<Group>,
}

/// How samples compare with what is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowdown {
    /// What they took together / what was expected of them.
    pub(super) ratio: f64,
    /// The standard error of that.
    pub(super) error: f64,
    /// What was expected of one, in nanoseconds.
    pub(super) expected: f64,
}

impl Samples {
    pub(super) fn new() -> Self {
        let groups = vec![Sums::default(); Group::COUNT];
        Self { all: Sums::default(), groups, used: Vec::new() }
    }

    #[inline]
    pub(super) fn add(&mut self, group: Group, nanos: f64) {
        self.all.add(nanos);
        let Some(sums) = self.groups.get_mut(group.index()) else {
            return;
        };
        if sums.count == 0 {
            self.used.push(group);
        }
        sums.add(nanos);
    }

    pub(super) const fn all(&self) -> &Sums {
        &self.all
    }

    pub(super) fn of(&self, group: Group) -> Sums {
        self.groups.get(group.index()).copied().unwrap_or_default()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (Group, Sums)> {
        self.used.iter().map(|&group| (group, self.of(group)))
    }

    /// Against the baselines of what was done: a mix that changes is no slowdown. `None` if there
    /// is nothing to compare.
    ///
    /// The error is that of a ratio estimate: of what is left of each sample beside its share.
    pub(super) fn slowdown(&self, baselines: &Baselines) -> Option<Slowdown> {
        let known =
            || self.groups().filter_map(|(group, sums)| Some((baselines.baseline(group)?, sums)));
        let count: u64 = known().map(|(_, sums)| sums.count).sum();
        let expected: f64 = known().map(|(baseline, sums)| baseline * sums.count as f64).sum();
        if count == 0 || expected <= 0.0 {
            return None;
        }
        let ratio = known().map(|(_, sums)| sums.sum).sum::<f64>() / expected;
        let residues: f64 = known()
            .map(|(baseline, sums)| {
                let fair = ratio * baseline;
                sums.squares - 2.0 * fair * sums.sum + sums.count as f64 * fair * fair
            })
            .sum();
        let count = count as f64;
        let correction = count / (count - 1.0).max(1.0);
        let error = (residues.max(0.0) * correction).sqrt() / expected;
        Some(Slowdown { ratio, error, expected: expected / count })
    }

    pub(super) fn clear(&mut self) {
        self.all = Sums::default();
        for group in self.used.drain(..) {
            if let Some(sums) = self.groups.get_mut(group.index()) {
                *sums = Sums::default();
            }
        }
    }
}

/// What happened since the last decision.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// When the first thing ended in it.
    since: Option<Time>,
    pub(super) samples: Samples,
    /// How many ended in it and said something.
    pub(super) ended: u64,
    pub(super) overloads: u64,
    /// How many samples were longer than the target, if there is one.
    pub(super) slower: u64,
    /// How many ended, whatever they say.
    pub(super) completions: u64,
    /// The most that was in flight.
    pub(super) peak: u64,
    /// Whether somebody found no room.
    pub(super) met_no_room: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            since: None,
            samples: Samples::new(),
            ended: 0,
            overloads: 0,
            slower: 0,
            completions: 0,
            peak: 0,
            met_no_room: false,
        }
    }

    /// Takes in what ended: how long it took, if that says something, and whether it was overload.
    #[inline]
    pub(super) fn add(&mut self, now: Time, group: Group, nanos: Option<f64>, is_overload: bool) {
        self.since.get_or_insert(now);
        self.ended += 1;
        self.overloads += u64::from(is_overload);
        if let Some(nanos) = nanos {
            self.samples.add(group, nanos);
        }
    }

    /// Whether it is time to decide.
    #[inline]
    pub(super) fn is_whole(&self, now: Time) -> bool {
        let Some(since) = self.since.filter(|_| self.ended >= FEWEST) else {
            return false;
        };
        let open = now.since(since).as_nanos() as f64;
        let latency = self.samples.all().mean();
        let is_long = open >= LONG_IN_LATENCIES * latency && open >= LONG;
        let enough = if open >= ROUND_TRIPS * latency { FEW } else { ENOUGH };
        (self.ended >= enough && open >= SHORTEST.max(SHORTEST_IN_LATENCIES * latency)) || is_long
    }

    /// For how long it has been open, in nanoseconds.
    pub(super) fn span(&self, now: Time) -> f64 {
        self.since.map_or(0.0, |since| now.since(since).as_nanos() as f64)
    }

    /// How many mean latencies it has been open, at most 1.
    pub(super) fn round_trips(&self, now: Time) -> f64 {
        let open = self.span(now);
        let latency = self.samples.all().mean();
        if open < latency { open / latency } else { 1.0 }
    }

    /// The share of samples that were longer than the target.
    pub(super) fn slower_share(&self) -> f64 {
        self.slower as f64 / self.samples.all().count.max(1) as f64
    }

    pub(super) fn overload_share(&self) -> f64 {
        self.overloads as f64 / self.ended.max(1) as f64
    }

    /// The next one begins `now`; at the next end, without one.
    pub(super) fn clear(&mut self, now: Option<Time>) {
        self.since = now;
        self.samples.clear();
        (self.ended, self.overloads, self.slower, self.completions) = (0, 0, 0, 0);
        (self.peak, self.met_no_room) = (0, false);
    }
}
