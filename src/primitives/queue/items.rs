use std::collections::BTreeMap;

use slab::Slab;

use super::deadlines::Deadlines;
use super::item::{ItemId, Place};
use crate::primitives::links::{Linked, Links, List};
use crate::primitives::operations::OperationId;
use crate::primitives::{Criticality, Time};

/// What stands in a queue.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) item: T,
    pub(super) place: Place,
    pub(super) operation: OperationId,
    in_class: Links,
    by_arrival: Links,
}

/// More entries than these are not kept while there is none.
const LARGE: usize = 4096;

const IN_CLASS: usize = 0;
const BY_ARRIVAL: usize = 1;

impl<T> Linked<IN_CLASS> for Entry<T> {
    fn links(&self) -> Links {
        self.in_class
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.in_class
    }
}

impl<T> Linked<BY_ARRIVAL> for Entry<T> {
    fn links(&self) -> Links {
        self.by_arrival
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_arrival
    }
}

/// The items of a queue, in the orders in which they are looked for: by criticality
/// and age, by age alone, and by deadline.
#[derive(Debug)]
pub(super) struct Items<T> {
    entries: Slab<Entry<T>>,
    /// By criticality, oldest first.
    classes: [List<IN_CLASS>; 4],
    /// Those whose wait target and interval bound, by arrival.
    bounded: List<BY_ARRIVAL>,
    /// Those whose wait only a deadline bounds, likewise.
    patient: List<BY_ARRIVAL>,
    /// The first of the bounded that is not late.
    timely: Option<u32>,
    deadlines: Deadlines,
    /// The patient, by when their patience ends, and by arrival.
    patience: BTreeMap<(Time, u64), u32>,
    /// Those that were put back into another slot than the one that their id names:
    /// hardly ever any.
    moved: Vec<(ItemId, u32)>,
    next_serial: u64,
}

impl<T> Entry<T> {
    fn new(item: T, place: Place, operation: OperationId) -> Self {
        Self { item, place, operation, in_class: Links::default(), by_arrival: Links::default() }
    }
}

/// Who comes in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Time,
    pub(super) deadline: Option<Time>,
    pub(super) patience: Time,
    pub(super) criticality: Criticality,
    pub(super) operation: OperationId,
    pub(super) is_judged: bool,
    pub(super) is_end_of_wait: bool,
    pub(super) is_bounded: bool,
}

impl<T> Items<T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Slab::new(),
            classes: [List::new(), List::new(), List::new(), List::new()],
            bounded: List::new(),
            patient: List::new(),
            timely: None,
            deadlines: Deadlines::new(),
            patience: BTreeMap::new(),
            moved: Vec::new(),
            // So that no id is zero as a number.
            next_serial: 1,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the oldest came.
    #[inline]
    pub(super) fn oldest(&self) -> Option<Time> {
        self.oldest_key().map(|key| self.joined(key))
    }

    /// The oldest of the late.
    #[inline]
    pub(super) fn oldest_late(&self) -> Option<u32> {
        self.bounded.head().filter(|_| self.has_late())
    }

    /// The first of the patient whose patience ends, and when.
    pub(super) fn first_impatient(&self) -> Option<(u32, Time)> {
        self.patience.first_key_value().map(|(&(at, _), &key)| (key, at))
    }

    pub(super) fn has_late(&self) -> bool {
        self.bounded.head() != self.timely
    }

    /// The oldest of those that are not late.
    pub(super) const fn oldest_timely(&self) -> Option<u32> {
        self.timely
    }

    /// Marks those that came before `moment` as late.
    pub(super) fn mark_late(&mut self, moment: Time) {
        while let Some(key) = self.timely.filter(|&key| self.joined(key) < moment) {
            self.timely = self.next_by_arrival(key);
        }
    }

    pub(super) const fn mark_none_late(&mut self) {
        self.timely = self.bounded.head();
    }

    #[inline]
    fn next_by_arrival(&self, key: u32) -> Option<u32> {
        Linked::<BY_ARRIVAL>::links(&self.entries[key as usize]).next()
    }

    #[inline]
    pub(super) fn oldest_key(&self) -> Option<u32> {
        match (self.bounded.head(), self.patient.head()) {
            (Some(bounded), Some(patient)) => {
                let serial = |key: u32| self.entries[key as usize].place.id.serial;
                Some(if serial(bounded) < serial(patient) { bounded } else { patient })
            }
            (bounded, patient) => bounded.or(patient),
        }
    }

    #[inline]
    pub(super) fn joined(&self, key: u32) -> Time {
        self.entries[key as usize].place.joined
    }

    /// The one to be served next: the newest or the oldest of the most critical.
    #[inline]
    pub(super) fn next(&self, is_newest_first: bool) -> Option<u32> {
        let list = self.classes.iter().rev().find(|list| list.head().is_some())?;
        if is_newest_first { list.tail() } else { list.head() }
    }

    /// The one that would be served last, if it is less critical, or also if it is
    /// equally critical.
    pub(super) fn coldest_below(
        &self,
        criticality: Criticality,
        or_equal: bool,
        is_newest_first: bool,
    ) -> Option<u32> {
        let classes = &self.classes[..criticality.index() + usize::from(or_equal)];
        let list = classes.iter().find(|list| list.head().is_some())?;
        if is_newest_first { list.head() } else { list.tail() }
    }

    /// Whether one at or above `criticality` is there.
    #[inline]
    pub(super) fn has_from(&self, criticality: Criticality) -> bool {
        self.classes[criticality.index()..].iter().any(|list| list.head().is_some())
    }

    pub(super) fn is_end_of_wait(&self, key: u32) -> bool {
        self.entries[key as usize].place.is_end_of_wait
    }

    pub(super) fn item(&self, key: u32) -> &T {
        &self.entries[key as usize].item
    }

    pub(super) fn find(&self, id: ItemId) -> Option<u32> {
        let moved = self.moved.iter().find(|&&(moved, _)| moved == id);
        let key = moved.map_or(id.key, |&(_, key)| key);
        let entry = self.entries.get(key as usize)?;
        (entry.place.id.serial == id.serial).then_some(key)
    }

    pub(super) const fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// The first whose deadline falls due, and when: `due` says it of the earliest
    /// deadline of each operation.
    pub(super) fn first_deadline(
        &mut self,
        due: impl Fn(OperationId, Time) -> Time,
    ) -> Option<(u32, Time)> {
        self.deadlines.first(|group, deadline| match group {
            Some(operation) => due(operation, deadline),
            None => deadline,
        })
    }

    /// The estimate of an operation, and that of the unnamed, have changed.
    pub(super) fn judge_anew(&mut self, operation: OperationId) {
        for operation in [operation, OperationId::UNNAMED] {
            self.deadlines.judge_anew(Some(operation));
        }
    }

    /// So have all, and whose wait a deadline bounds is told anew: of those who have
    /// one, if `is_patient`. O(n log n).
    pub(super) fn bound_anew(&mut self, is_patient: bool) {
        self.deadlines.judge_all_anew();
        let mut keys: Vec<(u64, u32)> = { self.entries.iter() }
            .map(|(key, entry)| (entry.place.id.serial, key_of(key)))
            .collect();
        keys.sort_unstable();
        (self.bounded, self.patient) = (List::new(), List::new());
        self.patience.clear();
        for (_, key) in keys {
            let place = &mut self.entries[key as usize].place;
            place.is_bounded = !is_patient || place.deadline == Time::MAX;
            if place.is_bounded {
                self.bounded.push_back(&mut self.entries, key);
            } else {
                self.patience.insert(place.by_patience(), key);
                self.patient.push_back(&mut self.entries, key);
            }
        }
        self.timely = self.bounded.head();
    }

    #[inline]
    pub(super) fn insert(&mut self, item: T, arrival: &Arrival) -> ItemId {
        let slot = self.entries.vacant_entry();
        let id = ItemId { key: key_of(slot.key()), serial: self.next_serial };
        self.next_serial += 1;
        let place = Place {
            id,
            joined: arrival.now,
            deadline: arrival.deadline.unwrap_or(Time::MAX),
            patience: arrival.patience,
            criticality: arrival.criticality,
            is_judged: arrival.is_judged,
            is_end_of_wait: arrival.is_end_of_wait,
            is_bounded: arrival.is_bounded,
        };
        slot.insert(Entry::new(item, place, arrival.operation));
        self.classes[place.criticality.index()].push_back(&mut self.entries, id.key);
        if place.is_bounded {
            self.bounded.push_back(&mut self.entries, id.key);
            self.timely.get_or_insert(id.key);
        } else {
            self.patience.insert(place.by_patience(), id.key);
            self.patient.push_back(&mut self.entries, id.key);
        }
        self.note_deadline(id.key);
        id
    }

    /// Puts an item back that was next a moment ago, into its place.
    pub(super) fn put_back(&mut self, item: T, place: Place, operation: OperationId) {
        let key = key_of(self.entries.insert(Entry::new(item, place, operation)));
        if key != place.id.key {
            self.moved.push((place.id, key));
        }
        let serial = place.id.serial;
        let class = place.criticality.index();
        let before = place_before(&self.entries, self.classes[class], serial);
        self.classes[class].insert_after(&mut self.entries, before, key);
        let list = if place.is_bounded { &mut self.bounded } else { &mut self.patient };
        let before = place_before(&self.entries, *list, serial);
        list.insert_after(&mut self.entries, before, key);
        if !place.is_bounded {
            self.patience.insert(place.by_patience(), key);
        }
        if place.is_bounded && self.next_by_arrival(key) == self.timely {
            self.timely = Some(key);
        }
        self.note_deadline(key);
    }

    #[inline]
    pub(super) fn remove(&mut self, key: u32) -> Entry<T> {
        let Entry { place, operation, .. } = self.entries[key as usize];
        self.classes[place.criticality.index()].unlink(&mut self.entries, key);
        if self.timely == Some(key) {
            self.timely = self.next_by_arrival(key);
        }
        let list = if place.is_bounded { &mut self.bounded } else { &mut self.patient };
        list.unlink(&mut self.entries, key);
        if !place.is_bounded {
            self.patience.remove(&place.by_patience());
        }
        if place.deadline < Time::MAX {
            self.deadlines.remove(group_of(operation, place.is_judged), place.deadline, key);
        }
        if !self.moved.is_empty() {
            self.moved.retain(|&(_, moved)| moved != key);
        }
        let entry = self.entries.remove(key as usize);
        // What a peak has taken is given back after it.
        if self.entries.is_empty() && self.entries.capacity() > LARGE {
            self.entries = Slab::new();
        }
        entry
    }

    #[inline]
    fn note_deadline(&mut self, key: u32) {
        let Entry { place, operation, .. } = self.entries[key as usize];
        if place.deadline < Time::MAX {
            self.deadlines.insert(group_of(operation, place.is_judged), place.deadline, key);
        }
    }

    /// All, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.item)
    }

    /// Takes all out; those that come later are still told apart from them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        let next_serial = self.next_serial;
        let all = std::mem::replace(self, Self { next_serial, ..Self::new() });
        all.entries.into_iter().map(|(_, entry)| entry.item)
    }
}

/// After which entry of a list one of this serial stands. One that was next stood near
/// an end, and is looked for from both.
fn place_before<T, const LIST: usize>(
    entries: &Slab<Entry<T>>,
    list: List<LIST>,
    serial: u64,
) -> Option<u32>
where
    Entry<T>: Linked<LIST>,
{
    let is_before = |key: u32| entries[key as usize].place.id.serial < serial;
    let links_of = |key: u32| Linked::<LIST>::links(&entries[key as usize]);
    let (mut front, mut back) = (list.head(), list.tail());
    loop {
        let (Some(older), Some(younger)) = (front, back) else { return None };
        if is_before(younger) {
            return back;
        }
        if !is_before(older) {
            return links_of(older).prev();
        }
        (front, back) = (links_of(older).next(), links_of(younger).prev());
    }
}

/// Where the deadline of an item stands.
fn group_of(operation: OperationId, is_judged: bool) -> Option<OperationId> {
    is_judged.then_some(operation)
}

/// Four thousand million items do not fit into memory.
#[allow(clippy::cast_possible_truncation)]
const fn key_of(key: usize) -> u32 {
    key as u32
}
