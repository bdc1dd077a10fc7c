use super::crowd::{Crowd, Slots};
use super::window::{Samples, Sums};
use crate::primitives::Time;
use crate::primitives::names::{Names, put};

/// Longer names are cut.
const LONGEST_NAME: usize = 256;
/// As many samples make a baseline of a name's own.
const ENOUGH: u64 = 20;
/// As many samples without a queue are better than any number with one.
const ENOUGH_LIGHT: u64 = 5;
/// A baseline is the mean of all samples until there were so many, for so many times as long as
/// they take: what ends first is short.
const MANY: u64 = 50;
const LONG_IN_LATENCIES: f64 = 8.0;
/// The share of the way to a lower mean that a baseline goes at once.
const FALL: f64 = 0.2;
/// A baseline rises to at most so many times the lowest that it was, unless a test shows more:
/// load that comes slowly would take it along.
const MOST_RISE: f64 = 1.3;
/// The shortest baseline, in nanoseconds: from nothing it could not rise.
const SHORTEST: f64 = 1e3;

/// How long operations take on the mean when there is no overload.
///
/// Up to 64 of them have a baseline of their own; all others share one: what has no name, what has
/// been seen too rarely, and what is named when 64 others are in use. So names that strangers make
/// up neither fill the memory nor blind the limiter.
#[derive(Clone, Debug)]
pub(super) struct Baselines {
    /// The first is that of the rest.
    entries: Vec<Entry>,
    /// The other ones', from the second on.
    places: Names,
    /// Counts windows.
    epoch: u64,
    /// What is to show the slots behind a gate, until the rest has grown.
    crowd: Option<Box<Crowd>>,
    /// The most that the rest may take without a queue, until it has grown.
    most: f64,
}

/// Whose baseline: that of the rest, or of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(u8);

impl Group {
    /// How many there can be.
    pub(super) const COUNT: usize = Names::MOST + 1;
    pub(super) const REST: Self = Self(0);

    fn of(place: usize) -> Self {
        // A place is below 64.
        Self(u8::try_from(place + 1).unwrap_or(0))
    }

    /// Below [`COUNT`](Self::COUNT).
    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Debug, Default)]
struct Entry {
    baseline: Option<f64>,
    /// Whether it is more than the mean of all samples so far.
    is_grown: bool,
    /// The lowest that it was since it was last believed: what it may rise from.
    lowest: f64,
    seed: Seed,
    /// In which window it was used last.
    used: u64,
}

/// What is to become a baseline.
#[derive(Clone, Copy, Debug, Default)]
struct Seed {
    since: Option<Time>,
    all: Sums,
    /// Those that were admitted while at most half of the limit was in flight.
    light: Sums,
}

impl Entry {
    fn believe(&mut self, mean: f64) {
        self.is_grown = true;
        self.lowest = f64::INFINITY;
        self.set(mean.max(SHORTEST));
    }

    fn set(&mut self, baseline: f64) {
        self.baseline = Some(baseline);
        self.lowest = self.lowest.min(baseline);
    }
}

impl Baselines {
    pub(super) fn new() -> Self {
        Self {
            entries: vec![Entry::default()],
            places: Names::default(),
            epoch: 2,
            crowd: None,
            most: f64::INFINITY,
        }
    }

    /// Looks for the slots while the baseline of the rest is young.
    pub(super) fn look_for_slots(&mut self) {
        self.crowd = Some(Box::default());
    }

    /// The slots, as far as what is young shows them.
    pub(super) fn slots(&self) -> Option<Slots> {
        self.crowd.as_ref()?.slots()
    }

    /// Whether they are looked for.
    pub(super) const fn looks_for_slots(&self) -> bool {
        self.crowd.is_some()
    }

    /// The baseline of the rest is no more than that while it is young.
    pub(super) const fn bound_young(&mut self, nanos: f64) {
        self.most = nanos;
    }

    /// The place of that name, made if there is room.
    #[inline]
    pub(super) fn place(&mut self, name: Option<&str>) -> Group {
        name.map_or(Group::REST, |name| self.place_of(name))
    }

    /// Whose baseline a sample at that place is compared with.
    #[inline]
    pub(super) fn group(&self, place: Group) -> Group {
        if self.baseline(place).is_some() { place } else { Group::REST }
    }

    /// In nanoseconds, never below a microsecond.
    #[inline]
    pub(super) fn baseline(&self, group: Group) -> Option<f64> {
        self.entries.get(group.index())?.baseline
    }

    /// Whether the baseline of the rest is only the mean of all samples so far.
    pub(super) fn is_young(&self) -> bool {
        self.entries.first().is_some_and(|rest| !rest.is_grown)
    }

    /// Takes in a sample of what is new.
    #[inline]
    pub(super) fn study(
        &mut self,
        now: Time,
        place: Group,
        nanos: f64,
        in_flight: u64,
        is_light: bool,
    ) {
        let is_rest_new = self.is_young();
        if let Some(crowd) = self.crowd.as_mut().filter(|_| is_rest_new) {
            crowd.add(in_flight, nanos);
        }
        for place in [Some(place), is_rest_new.then_some(Group::REST)].into_iter().flatten() {
            let Some(entry) = self.entries.get_mut(place.index()) else { continue };
            if !entry.is_grown {
                entry.seed.since.get_or_insert(now);
                entry.seed.all.add(nanos);
                if is_light {
                    entry.seed.light.add(nanos);
                }
            }
            if place == Group::REST {
                break;
            }
        }
    }

    /// Makes baselines of what was studied. The rest has one as soon as there is a sample.
    ///
    /// What was queued from the very beginning is taken off all of them alike.
    pub(super) fn establish(&mut self, now: Time) {
        let slots = self.slots().filter(|_| self.is_young());
        let most = slots.map_or(self.most, |slots| slots.alone.min(self.most));
        let mut share = 1.0;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let least = if index == 0 { 1 } else { ENOUGH };
            let Seed { since, all, light } = entry.seed;
            if entry.is_grown || all.count < least {
                continue;
            }
            let mean = if light.count >= ENOUGH_LIGHT { light.mean() } else { all.mean() };
            let span = since.map_or(0.0, |since| now.since(since).as_nanos() as f64);
            if index == 0 && most < mean {
                share = most / mean;
            }
            let mean = mean * share;
            entry.believe(mean);
            entry.is_grown = all.count >= MANY && span >= LONG_IN_LATENCIES * mean;
        }
        if !self.is_young() {
            self.crowd = None;
        }
    }

    /// Learns from a window. A baseline goes `rise` of the way to a higher mean; it always falls.
    ///
    /// It falls to what is certain only, two standard errors above the mean: otherwise it would
    /// come down to the lowest of many means.
    pub(super) fn learn(&mut self, samples: &Samples, rise: f64) {
        self.epoch += 1;
        for (group, sums) in samples.groups() {
            let Some(entry) = self.entries.get_mut(group.index()) else { continue };
            let Some(baseline) = entry.baseline.filter(|_| entry.is_grown) else { continue };
            let weight = (sums.count as f64 / ENOUGH as f64).min(1.0);
            let mean = sums.mean();
            let certain = mean + 2.0 * sums.standard_error();
            let change = if certain < baseline {
                FALL * (certain - baseline)
            } else if mean > baseline {
                rise * (mean.min(MOST_RISE * entry.lowest) - baseline).max(0.0)
            } else {
                0.0
            };
            entry.set((baseline + weight * change).max(SHORTEST));
        }
    }

    /// Believes the means of these samples.
    pub(super) fn become_as(&mut self, samples: &Samples, least: u64) {
        for (group, sums) in samples.groups().filter(|(_, sums)| sums.count >= least) {
            if let Some(entry) = self.entries.get_mut(group.index()) {
                entry.believe(sums.mean());
            }
        }
    }

    /// Multiplies the baselines of what is among these samples.
    pub(super) fn scale(&mut self, samples: &Samples, factor: f64) {
        for (group, _) in samples.groups() {
            if let Some(entry) = self.entries.get_mut(group.index())
                && let Some(old) = entry.baseline
            {
                entry.set((old * factor).max(SHORTEST));
            }
        }
    }

    fn place_of(&mut self, name: &str) -> Group {
        let name = cut(name);
        let epoch = self.epoch;
        let group = match self.places.find(name) {
            Some(place) => Group::of(place),
            None => self.make(name),
        };
        if let Some(entry) = self.entries.get_mut(group.index()) {
            entry.used = epoch;
        }
        group
    }

    /// Takes the place of whoever was not used for longest, and neither in this window nor in the
    /// last one.
    #[cold]
    fn make(&mut self, name: &str) -> Group {
        let (before, named) = (self.epoch - 1, self.entries.get(1..).unwrap_or_default());
        let idle = || {
            let idle = named.iter().enumerate().filter(|(_, entry)| entry.used < before);
            idle.min_by_key(|(_, entry)| entry.used).map(|(place, _)| place)
        };
        let Some(place) = self.places.make(name, idle) else {
            return Group::REST;
        };
        let group = Group::of(place);
        put(&mut self.entries, group.index(), Entry::default());
        group
    }
}

fn cut(name: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(name.len())).rfind(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;

    fn learn(baselines: &mut Baselines, name: Option<&str>, nanos: f64, count: u64, light: bool) {
        let mut samples = Samples::new();
        for _ in 0..count {
            let place = baselines.place(name);
            samples.add(baselines.group(place), nanos);
            baselines.study(Time::ZERO, place, nanos, 1, light);
        }
        baselines.establish(Time::MAX);
        baselines.learn(&samples, if light { 0.05 } else { 0.0 });
    }

    fn known(baselines: &mut Baselines, name: &str) -> Option<f64> {
        let place = Group::of(baselines.places.find(name)?);
        baselines.baseline(place)
    }

    #[test]
    fn names_made_up_by_strangers_share_a_baseline() {
        let mut baselines = Baselines::new();
        for name in 0..10_000 {
            let name = "x".repeat(1_000) + &name.to_string();
            learn(&mut baselines, Some(&name), 1e6, 1, true);
        }
        assert_eq!(baselines.places.iter().count(), 1);
        for name in 0..10_000 {
            learn(&mut baselines, Some(&name.to_string()), 1e6, 1, true);
        }
        assert_eq!((baselines.entries.len(), baselines.places.iter().count()), (65, 64));
        assert!(baselines.places.iter().all(|name| name.len() <= 256));
        // None of them is known by name, but all by the rest.
        let place = baselines.place(Some("9999"));
        assert_ne!(place, Group::REST);
        assert_eq!(baselines.group(place), Group::REST);
        assert_eq!(baselines.baseline(Group::REST), Some(1e6));
    }

    #[test]
    fn whoever_is_in_use_keeps_his_place() {
        let mut baselines = Baselines::new();
        for name in 0..64 {
            learn(&mut baselines, Some(&name.to_string()), 1e6, 20, true);
        }
        assert_eq!(known(&mut baselines, "0"), Some(1e6));
        // All but the last two are idle, and "0" is used again.
        baselines.place(Some("0"));
        for name in ["a", "b"] {
            assert_ne!(baselines.place(Some(name)), Group::REST);
        }
        assert_eq!(known(&mut baselines, "0"), Some(1e6));
        assert_eq!((known(&mut baselines, "1"), known(&mut baselines, "2")), (None, None));
        for name in 0..64 {
            baselines.place(Some(&name.to_string()));
        }
        assert_eq!(baselines.place(Some("another")), Group::REST);
    }

    #[test]
    fn names_are_cut_between_characters() {
        let mut baselines = Baselines::new();
        let name = "ü".repeat(200);
        let long = format!("x{name}");
        assert_eq!(baselines.place(Some(&name)), baselines.place(Some(&"ü".repeat(128))));
        assert_eq!(baselines.place(Some(&long)), baselines.place(Some(&long[..255])));
        assert_eq!(baselines.places.iter().count(), 2);
    }

    #[test]
    fn it_falls_always_and_rises_a_little_without_overload() {
        let mut baselines = Baselines::new();
        let of_rest = |baselines: &Baselines| baselines.baseline(Group::REST).expect("it is known");
        learn(&mut baselines, None, 100e6, 60, false);
        assert_eq!(of_rest(&baselines), 100e6);
        learn(&mut baselines, None, 50e6, 20, false);
        assert_eq!(of_rest(&baselines), 90e6);
        learn(&mut baselines, None, 1e9, 20, false);
        assert_eq!(of_rest(&baselines), 90e6);
        learn(&mut baselines, None, 1e9, 20, true);
        let risen = of_rest(&baselines);
        assert!((risen / 90e6 - 1.015).abs() < 1e-9, "by a twentieth of the way to 1.3 times");
        for _ in 0..1_000 {
            learn(&mut baselines, None, 1e9, 20, true);
        }
        assert!((of_rest(&baselines) / 90e6 - 1.3).abs() < 1e-6, "load came slowly");
        let mut samples = Samples::new();
        samples.add(Group::REST, 1e9);
        baselines.become_as(&samples, 1);
        assert_eq!(of_rest(&baselines), 1e9);
        for _ in 0..1_000 {
            learn(&mut baselines, None, 0.0, 20, true);
        }
        assert_eq!(of_rest(&baselines), 1e3);
    }

    #[test]
    fn until_it_is_grown_it_is_the_mean_of_all() {
        let mut baselines = Baselines::new();
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        // What ends first is short.
        for (now, nanos) in [(10, 10e6), (20, 20e6), (100, 90e6)] {
            for _ in 0..20 {
                baselines.study(at(now), Group::REST, nanos, 1, false);
            }
            baselines.establish(at(now));
        }
        assert_eq!(baselines.baseline(Group::REST), Some(40e6));
        // After 8 times as long as they take it is.
        baselines.establish(at(330));
        baselines.study(at(331), Group::REST, 1e9, 1, false);
        baselines.establish(at(331));
        assert_eq!(baselines.baseline(Group::REST), Some(40e6));
    }

    #[test]
    fn what_was_admitted_first_shows_latency_without_a_queue() {
        let mut baselines = Baselines::new();
        for nanos in [1e6; 5] {
            baselines.study(Time::ZERO, Group::REST, nanos, 1, true);
        }
        for nanos in [9e6; 95] {
            baselines.study(Time::ZERO, Group::REST, nanos, 1, false);
        }
        baselines.establish(Time::MAX);
        assert_eq!(baselines.baseline(Group::REST), Some(1e6));
    }
}
