use std::collections::HashMap;

use super::window::{Samples, Sums};

/// How many operations are known by name at once.
const MOST: usize = 64;
/// Longer names are cut.
const LONGEST_NAME: usize = 256;
/// As many samples make a baseline of a name's own.
const ENOUGH: u64 = 20;
/// As many samples without a queue are better than any number with one.
const ENOUGH_LIGHT: u64 = 5;
/// The share of the way to a lower mean that a baseline goes at once.
const FALL: f64 = 0.2;
/// A window counts for the rise as at most so many times the baseline.
const MOST_RISE: f64 = 4.0;
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
    places: HashMap<Box<str>, Group>,
    /// Counts windows.
    epoch: u64,
}

/// Whose baseline: that of the rest, or of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(u8);

impl Group {
    /// How many there can be.
    pub(super) const COUNT: usize = MOST + 1;
    pub(super) const REST: Self = Self(0);

    /// Below [`COUNT`](Self::COUNT).
    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Debug, Default)]
struct Entry {
    name: Box<str>,
    baseline: Option<f64>,
    seed: Seed,
    /// In which window it was used last.
    used: u64,
}

/// What is to become a baseline.
#[derive(Clone, Copy, Debug, Default)]
struct Seed {
    all: Sums,
    /// Those that were admitted while at most half of the limit was in flight.
    light: Sums,
}

impl Baselines {
    pub(super) fn new() -> Self {
        Self { entries: vec![Entry::default()], places: HashMap::new(), epoch: 2 }
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

    /// Takes in a sample if there is no baseline yet.
    #[inline]
    pub(super) fn study(&mut self, place: Group, nanos: f64, is_light: bool) {
        let rest_is_new = self.baseline(Group::REST).is_none();
        for place in [Some(place), rest_is_new.then_some(Group::REST)].into_iter().flatten() {
            let Some(entry) = self.entries.get_mut(place.index()) else { continue };
            if entry.baseline.is_none() {
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
    pub(super) fn establish(&mut self) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let least = if index == 0 { 1 } else { ENOUGH };
            if entry.baseline.is_none() && entry.seed.all.count >= least {
                let Seed { all, light } = entry.seed;
                let sums = if light.count >= ENOUGH_LIGHT { light } else { all };
                entry.baseline = Some(sums.mean().max(SHORTEST));
            }
        }
    }

    /// Learns from a window. A baseline goes `rise` of the way to a higher mean; it always falls.
    ///
    /// It falls to what is certain only, one standard error above the mean: otherwise it would
    /// come down to the lowest of many means.
    pub(super) fn learn(&mut self, samples: &Samples, rise: f64) {
        self.epoch += 1;
        for (group, sums) in samples.groups() {
            let Some(entry) = self.entries.get_mut(group.index()) else { continue };
            let Some(baseline) = entry.baseline else { continue };
            let weight = (sums.count as f64 / ENOUGH as f64).min(1.0);
            let mean = sums.mean();
            let certain = mean + 2.0 * sums.standard_error();
            let change = if certain < baseline {
                FALL * (certain - baseline)
            } else if mean > baseline {
                rise * (mean.min(MOST_RISE * baseline) - baseline)
            } else {
                0.0
            };
            entry.baseline = Some((baseline + weight * change).max(SHORTEST));
        }
    }

    /// Believes the means of these samples.
    pub(super) fn become_as(&mut self, samples: &Samples, least: u64) {
        for (group, sums) in samples.groups().filter(|(_, sums)| sums.count >= least) {
            if let Some(entry) = self.entries.get_mut(group.index()) {
                entry.baseline = Some(sums.mean().max(SHORTEST));
            }
        }
    }

    /// Multiplies the baselines of what is among these samples.
    pub(super) fn scale(&mut self, samples: &Samples, factor: f64) {
        for (group, _) in samples.groups() {
            if let Some(entry) = self.entries.get_mut(group.index()) {
                entry.baseline = entry.baseline.map(|old| (old * factor).max(SHORTEST));
            }
        }
    }

    fn place_of(&mut self, name: &str) -> Group {
        let name = cut(name);
        let epoch = self.epoch;
        let group = match self.places.get(name) {
            Some(&group) => group,
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
        let fresh = Entry { name: name.into(), ..Entry::default() };
        let index = if self.entries.len() < Group::COUNT {
            self.entries.push(fresh);
            self.entries.len() - 1
        } else {
            let before = self.epoch - 1;
            let idle = { self.entries.iter_mut().enumerate().skip(1) }
                .filter(|(_, entry)| entry.used < before)
                .min_by_key(|(_, entry)| entry.used);
            let Some((index, oldest)) = idle else {
                return Group::REST;
            };
            let forgotten = std::mem::replace(oldest, fresh);
            self.places.remove(&forgotten.name);
            index
        };
        // At most 64.
        let group = Group(u8::try_from(index).unwrap_or(0));
        self.places.insert(name.into(), group);
        group
    }
}

fn cut(name: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(name.len())).rfind(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(baselines: &mut Baselines, name: Option<&str>, nanos: f64, count: u64, light: bool) {
        let mut samples = Samples::new();
        for _ in 0..count {
            let place = baselines.place(name);
            samples.add(baselines.group(place), nanos);
            baselines.study(place, nanos, light);
        }
        baselines.establish();
        baselines.learn(&samples, if light { 0.05 } else { 0.0 });
    }

    fn known(baselines: &mut Baselines, name: &str) -> Option<f64> {
        let place = *baselines.places.get(name)?;
        baselines.baseline(place)
    }

    #[test]
    fn names_made_up_by_strangers_share_a_baseline() {
        let mut baselines = Baselines::new();
        for name in 0..10_000 {
            let name = "x".repeat(1_000) + &name.to_string();
            learn(&mut baselines, Some(&name), 1e6, 1, true);
        }
        assert_eq!(baselines.places.len(), 1);
        for name in 0..10_000 {
            learn(&mut baselines, Some(&name.to_string()), 1e6, 1, true);
        }
        assert_eq!((baselines.entries.len(), baselines.places.len()), (65, 64));
        assert!(baselines.entries[1..].iter().all(|entry| entry.name.len() <= 256));
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
        assert_eq!(baselines.places.len(), 2);
    }

    #[test]
    fn it_falls_always_and_rises_without_overload() {
        let mut baselines = Baselines::new();
        learn(&mut baselines, None, 100e6, 20, false);
        assert_eq!(baselines.baseline(Group::REST), Some(100e6));
        learn(&mut baselines, None, 50e6, 20, false);
        assert_eq!(baselines.baseline(Group::REST), Some(90e6));
        learn(&mut baselines, None, 1e9, 20, false);
        assert_eq!(baselines.baseline(Group::REST), Some(90e6));
        learn(&mut baselines, None, 1e9, 20, true);
        let risen = baselines.baseline(Group::REST).expect("it is known");
        assert!((risen / 90e6 - 1.15).abs() < 1e-9, "by a twentieth of the way to 4 times");
        for _ in 0..1_000 {
            learn(&mut baselines, None, 0.0, 20, true);
        }
        assert_eq!(baselines.baseline(Group::REST), Some(1e3));
    }

    #[test]
    fn what_was_admitted_first_shows_latency_without_a_queue() {
        let mut baselines = Baselines::new();
        for nanos in [1e6; 5] {
            baselines.study(Group::REST, nanos, true);
        }
        for nanos in [9e6; 95] {
            baselines.study(Group::REST, nanos, false);
        }
        baselines.establish();
        assert_eq!(baselines.baseline(Group::REST), Some(1e6));
    }
}
