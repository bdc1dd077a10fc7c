use slab::Slab;

/// Levels of slots, of which each is twice as wide as those of the level below.
const LEVELS: u32 = 16;
/// Slots in a level. What enters one ends at most 17 of them from now, so that what is
/// left in a slot that gets another end is due.
const SLOTS: u32 = 32;
/// How many of the bits of a span tell the slot.
const PRECISION: u32 = 4;
/// Spans are shorter than two to the power of this.
pub(crate) const LONGEST: u32 = LEVELS - 1 + PRECISION;
/// The list of those that are known to be due, behind those of the slots.
const DUE: u32 = LEVELS * SLOTS;
/// Where the links of the members begin, behind those of the lists.
const MEMBERS: usize = DUE as usize + 1;

/// A set of things that fall due, in which one that is due is found, O(1) each: the
/// hierarchical timing wheel of Varghese and Lauck (1987) without its cascades, as Linux
/// has it since 4.8.
///
/// What falls due after a span is found at most an eighth of that span later, and never
/// earlier. The unit of time is the caller's, and moments never run backwards.
#[derive(Debug)]
pub(crate) struct TimingWheel<T> {
    members: Slab<T>,
    /// The neighbours in circular lists: those of the heads, and then those of the members
    /// by place. Whoever leaves a circle needs not know which one it is.
    links: Vec<Links>,
    /// When all that is in a slot is due.
    ends: [u64; DUE as usize],
    /// No slot with somebody in it ends earlier.
    earliest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

#[allow(clippy::cast_possible_truncation)] // places are below 2³²
impl<T> TimingWheel<T> {
    pub(crate) fn new() -> Self {
        let links = (0..=DUE).map(Links::alone).collect();
        Self { members: Slab::new(), links, ends: [0; DUE as usize], earliest: u64::MAX }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn get(&self, place: usize) -> &T {
        &self.members[place]
    }

    pub(crate) fn insert(&mut self, now: u64, due: u64, member: T) -> usize {
        let place = self.members.insert(member);
        if self.links.len() <= MEMBERS + place {
            self.links.push(Links::alone(0));
        }
        self.link(now, due, place);
        place
    }

    /// Gives a member another value and another moment.
    #[inline]
    pub(crate) fn replace(&mut self, now: u64, due: u64, place: usize, member: T) {
        self.members[place] = member;
        self.unlink(place);
        self.link(now, due, place);
    }

    pub(crate) fn remove(&mut self, place: usize) -> T {
        self.unlink(place);
        self.members.remove(place)
    }

    /// One that is due.
    pub(crate) fn first_due(&mut self, now: u64) -> Option<usize> {
        if self.is_empty(DUE) && self.earliest <= now {
            self.earliest = u64::MAX;
            for slot in 0..DUE {
                let end = self.ends[slot as usize];
                if end <= now {
                    self.empty(slot);
                } else if !self.is_empty(slot) {
                    self.earliest = self.earliest.min(end);
                }
            }
        }
        (self.links[DUE as usize].next as usize).checked_sub(MEMBERS)
    }

    /// Changes all members, each of which then falls due when `change` says, in a unit
    /// that may be another one; O(n).
    pub(crate) fn change_all(&mut self, now: u64, mut change: impl FnMut(&mut T) -> u64) {
        let mut members = std::mem::take(&mut self.members);
        let links = std::mem::take(&mut self.links);
        *self = Self { links, ..Self::new() };
        { self.links[..MEMBERS].iter_mut().zip(0..) }
            .for_each(|(links, list)| *links = Links::alone(list));
        for (place, member) in &mut members {
            self.link(now, change(member), place);
        }
        self.members = members;
    }

    #[inline]
    fn link(&mut self, now: u64, due: u64, place: usize) {
        let next = if due <= now { DUE } else { self.slot(now, due) };
        let node = (MEMBERS + place) as u32;
        let prev = std::mem::replace(&mut self.links[next as usize].prev, node);
        self.links[prev as usize].next = node;
        self.links[node as usize] = Links { prev, next };
    }

    #[inline]
    fn unlink(&mut self, place: usize) {
        let Links { prev, next } = self.links[MEMBERS + place];
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
    }

    /// The slot for what is not due yet.
    #[inline]
    fn slot(&mut self, now: u64, due: u64) -> u32 {
        let span = due - now;
        debug_assert!(span < 1 << LONGEST);
        let level = (u64::BITS - span.leading_zeros()).saturating_sub(PRECISION);
        // Rounded up: nobody is found early.
        let number = ((due - 1) >> level) + 1;
        let slot = level * SLOTS + number as u32 % SLOTS;
        let end = number << level;
        if self.ends[slot as usize] != end {
            self.empty(slot);
            self.ends[slot as usize] = end;
        }
        self.earliest = self.earliest.min(end);
        slot
    }

    fn is_empty(&self, list: u32) -> bool {
        self.links[list as usize].next == list
    }

    /// Moves all that is in a slot to those that are due.
    fn empty(&mut self, slot: u32) {
        if self.is_empty(slot) {
            return;
        }
        let Links { prev: last, next: first } = self.links[slot as usize];
        self.links[slot as usize] = Links::alone(slot);
        let before = std::mem::replace(&mut self.links[DUE as usize].prev, last);
        self.links[before as usize].next = first;
        self.links[first as usize].prev = before;
        self.links[last as usize].next = DUE;
    }
}

impl Links {
    const fn alone(list: u32) -> Self {
        Self { prev: list, next: list }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::primitives::random::Random;

    struct Member {
        due: u64,
        /// By when it has to be found.
        known: u64,
    }

    impl Member {
        fn new(now: u64, due: u64) -> Self {
            Self { due, known: due + due.saturating_sub(now) / 8 }
        }
    }

    #[test]
    fn one_that_is_due_is_found_after_an_eighth_of_its_span_and_not_before() {
        let random = RefCell::new(Random::new(1));
        let below = |most: u64| random.borrow_mut().bits() % most;
        let (mut wheel, mut places) = (TimingWheel::new(), Vec::new());
        let (mut now, mut found, mut missed) = (0, 0, 0);
        for _ in 0..200_000 {
            let span = below(1 << below(u64::from(LONGEST)));
            let due = (now + span).saturating_sub(below(10));
            match below(8) {
                0 | 1 => places.push(wheel.insert(now, due, Member::new(now, due))),
                2 | 3 if !places.is_empty() => {
                    let place = places[usize::try_from(below(places.len() as u64)).unwrap()];
                    wheel.replace(now, due, place, Member::new(now, due));
                }
                4 if !places.is_empty() => {
                    let place = usize::try_from(below(places.len() as u64)).unwrap();
                    wheel.remove(places.swap_remove(place));
                }
                5 => now += below(1 << below(1 + u64::from(LONGEST) + 3)),
                6 if below(1_000) == 0 => {
                    now = below(1 << 40);
                    wheel.change_all(now, |member| {
                        *member = Member::new(now, now + member.due % 1_000);
                        member.due
                    });
                }
                _ => {
                    if let Some(place) = wheel.first_due(now) {
                        assert!(wheel.get(place).due <= now);
                        places.retain(|&other| other != place);
                        wheel.remove(place);
                        found += 1;
                    } else {
                        missed += places.iter().filter(|&&at| wheel.get(at).due <= now).count();
                        assert!(places.iter().all(|&place| wheel.get(place).known > now));
                    }
                }
            }
            assert_eq!(wheel.len(), places.len());
        }
        assert!(found > 10_000, "{found}");
        assert!(missed > 0);
    }
}
