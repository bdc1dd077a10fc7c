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

    pub(crate) fn item(&self, place: usize) -> &T {
        &self.members[place].item
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
    use crate::primitives::random::Random;

    #[test]
    fn the_least_is_known_whatever_changes() {
        let mut set = Soonest::new();
        let mut places: Vec<(usize, u64)> = Vec::new();
        let mut random = Random::new(1);
        for _ in 0..5_000 {
            if random.unit() < 0.5 || places.is_empty() {
                let value = random.bits() % 100;
                places.push((set.insert(value, value), value));
            } else {
                let which = random.bits() % places.len() as u64;
                let (place, value) = places.swap_remove(usize::try_from(which).unwrap());
                assert_eq!(set.remove(place), value);
            }
            let least = places.iter().map(|&(_, value)| value).min();
            assert_eq!(set.soonest().map(|(value, _)| value), least);
            assert_eq!(set.soonest().map(|(_, place)| *set.item(place)), least);
            assert_eq!(set.len(), places.len());
        }
        assert!(places.len() > 10);
    }
}
