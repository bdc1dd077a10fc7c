use slab::Slab;

/// A set of things of which the one with the least value is known: a binary heap
/// whose members can be found and changed by their places. O(log n) each.
#[derive(Debug)]
pub(crate) struct Soonest<V, T> {
    members: Slab<Member<V, T>>,
    /// The places, each before those at twice its position and one or two more.
    heap: Vec<usize>,
}

#[derive(Debug)]
struct Member<V, T> {
    value: V,
    item: T,
    position: usize,
}

impl<V: Copy + Ord, T> Soonest<V, T> {
    pub(crate) const fn new() -> Self {
        Self { members: Slab::new(), heap: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn value(&self, place: usize) -> &V {
        &self.members[place].value
    }

    /// The least value, and its place.
    pub(crate) fn soonest(&self) -> Option<(V, usize)> {
        self.heap.first().map(|&place| (self.members[place].value, place))
    }

    pub(crate) fn insert(&mut self, value: V, item: T) -> usize {
        let position = self.heap.len();
        let place = self.members.insert(Member { value, item, position });
        self.heap.push(place);
        self.move_up(position);
        place
    }

    pub(crate) fn remove(&mut self, place: usize) -> T {
        let Member { position, item, .. } = self.members.remove(place);
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.put(position, self.heap[position]);
            self.move_up(position);
            self.move_down(position);
        }
        item
    }

    /// Gives a member a value that is not less than what it had.
    pub(crate) fn raise(&mut self, place: usize, value: V) {
        let member = &mut self.members[place];
        debug_assert!(member.value <= value);
        member.value = value;
        let position = member.position;
        self.move_down(position);
    }

    /// Changes all values, and finds the order anew; O(n).
    pub(crate) fn change_all(&mut self, change: impl Fn(V) -> V) {
        for (_, member) in &mut self.members {
            member.value = change(member.value);
        }
        for position in (0..self.heap.len() / 2).rev() {
            self.move_down(position);
        }
    }

    fn move_up(&mut self, mut position: usize) {
        while position > 0 {
            let above = (position - 1) / 2;
            if self.at(above) <= self.at(position) {
                break;
            }
            self.swap(position, above);
            position = above;
        }
    }

    fn move_down(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            let below = (left..self.heap.len().min(left + 2)).min_by_key(|&below| self.at(below));
            match below {
                Some(below) if self.at(below) < self.at(position) => {
                    self.swap(position, below);
                    position = below;
                }
                _ => break,
            }
        }
    }

    fn at(&self, position: usize) -> V {
        self.members[self.heap[position]].value
    }

    fn swap(&mut self, one: usize, other: usize) {
        let (here, there) = (self.heap[one], self.heap[other]);
        self.put(one, there);
        self.put(other, here);
    }

    fn put(&mut self, position: usize, place: usize) {
        self.heap[position] = place;
        self.members[place].position = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_known_whatever_changes() {
        let mut set = Soonest::new();
        let mut places = Vec::new();
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        for _ in 0..5_000 {
            match next() % 5 {
                0 | 1 => places.push(set.insert(next() % 100, ())),
                2 if !places.is_empty() => {
                    let which = usize::try_from(next()).unwrap() % places.len();
                    set.remove(places.swap_remove(which));
                }
                3 if !places.is_empty() => {
                    let place = places[usize::try_from(next()).unwrap() % places.len()];
                    set.raise(place, set.value(place) + next() % 100);
                }
                _ if next() % 20 == 0 => set.change_all(|value| 200_u64.saturating_sub(value)),
                _ => {}
            }
            let least = places.iter().map(|&place| *set.value(place)).min();
            assert_eq!(set.soonest().map(|(value, _)| value), least);
            assert_eq!(set.len(), places.len());
            assert!(set.soonest().is_none_or(|(value, place)| *set.value(place) == value));
        }
        assert!(places.len() > 100);
    }
}
