use rustc_hash::FxHashMap;
use slab::Slab;

use super::links::{Linked, List};
use super::soonest::Soonest;
use super::{Criticality, Home};

/// What stands in the lanes.
pub(crate) trait Waits: Linked {
    /// Grows with the order of arrival.
    fn serial(&self) -> u64;
    /// The key of its home.
    fn home(&self) -> usize;
    fn criticality(&self) -> Criticality;
    fn cost(&self) -> u64;
    /// Whether it stands in its lane.
    fn is_waiting(&self) -> bool;
}

/// Who is next of those who wait: the most critical, and of these the oldest,
/// whose home is not passed over.
///
/// Each home has a lane for each criticality. The heads of the lanes of the homes
/// that are not passed over are sorted, so that passing a home over, and coming
/// back to it, takes its heads out and puts them in again, and moves nobody.
#[derive(Debug)]
pub(crate) struct Lanes {
    homes: Slab<HomeState>,
    keys: FxHashMap<Home, usize>,
    /// Homes by the serials of the heads of their lanes.
    heads: [Soonest<u64, usize>; 4],
    /// How many stand in lanes of homes that are not passed over.
    ready: usize,
    /// What they ask for together.
    ready_cost: u128,
}

#[derive(Debug)]
struct HomeState {
    id: Home,
    /// Oldest first, by criticality.
    lanes: [List; 4],
    /// Where the heads of the lanes stand among all heads.
    places: [Option<usize>; 4],
    /// Where the one that came back last went, to look on from there.
    returned: [Option<u32>; 4],
    members: usize,
    /// How many of them stand in its lanes.
    waiting: usize,
    /// What they ask for together.
    waiting_cost: u128,
    is_passed_over: bool,
    /// Has a signal to get that could not be delivered.
    is_unreached: bool,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            homes: Slab::new(),
            keys: FxHashMap::default(),
            heads: [const { Soonest::new() }; 4],
            ready: 0,
            ready_cost: 0,
        }
    }

    /// The key of a home that gets one more member, which shows that it is not
    /// blocked.
    pub(crate) fn enter_home<T: Waits>(&mut self, entries: &Slab<T>, id: Home) -> usize {
        let homes = &mut self.homes;
        let key = *self.keys.entry(id).or_insert_with(|| {
            homes.insert(HomeState {
                id,
                lanes: [List::default(); 4],
                places: [None; 4],
                returned: [None; 4],
                members: 0,
                waiting: 0,
                waiting_cost: 0,
                is_passed_over: false,
                is_unreached: false,
            })
        });
        self.homes[key].members += 1;
        self.come_back(entries, key);
        key
    }

    pub(crate) fn leave_home(&mut self, key: usize) {
        self.homes[key].members -= 1;
        if self.homes[key].members == 0 {
            let home = self.homes.remove(key);
            self.keys.remove(&home.id);
        }
    }

    pub(crate) fn key_of(&self, home: Home) -> Option<usize> {
        self.keys.get(&home).copied()
    }

    pub(crate) fn is(&self, key: usize, home: Home) -> bool {
        self.homes[key].id == home
    }

    /// Whether somebody at this home waits.
    pub(crate) fn waits(&self, home: Home) -> bool {
        self.key_of(home)
            .is_some_and(|key| self.homes[key].lanes.iter().any(|lane| lane.head().is_some()))
    }

    /// Whether somebody at or above `criticality` could be next.
    pub(crate) fn is_ready(&self, criticality: Criticality) -> bool {
        self.heads[criticality.index()..].iter().any(|heads| heads.soonest().is_some())
    }

    /// How many could be next.
    pub(crate) const fn ready(&self) -> usize {
        self.ready
    }

    /// What they ask for together.
    pub(crate) const fn ready_cost(&self) -> u128 {
        self.ready_cost
    }

    /// Whether somebody at another home could be next.
    pub(crate) fn is_ready_elsewhere(&self, home: usize) -> bool {
        self.is_ready_elsewhere_from(home, Criticality::Sheddable)
    }

    /// The same of those at or above `criticality`.
    pub(crate) fn is_ready_elsewhere_from(&self, home: usize, criticality: Criticality) -> bool {
        // A home stands at most once in each.
        { self.heads[criticality.index()..].iter() }.any(|heads| {
            heads.len() > 1 || heads.soonest().is_some_and(|(_, place)| *heads.item(place) != home)
        })
    }

    pub(crate) fn head(&self) -> Option<u32> {
        let (class, home) =
            { self.heads.iter().enumerate().rev() }.find_map(|(class, heads)| {
                heads.soonest().map(|(_, place)| (class, *heads.item(place)))
            })?;
        self.homes[home].lanes[class].head()
    }

    /// The heads of all lanes, passed over or not.
    pub(crate) fn all_heads(&self) -> impl Iterator<Item = u32> {
        self.homes.iter().flat_map(|(_, home)| home.lanes).filter_map(List::head)
    }

    /// Puts an entry that waits into its lane, in order of age.
    pub(crate) fn enter<T: Waits>(&mut self, entries: &mut Slab<T>, key: u32) {
        let entry = &entries[key as usize];
        let (serial, home, criticality) = (entry.serial(), entry.home(), entry.criticality());
        let class = criticality.index();
        let state = &mut self.homes[home];
        let lane = &mut state.lanes[class];
        let old_head = lane.head();
        // The newest goes to the back at once. One that comes back after a lost
        // grant is among the oldest, and behind the one that came back before it
        // as a rule, since grants are lost in their order.
        let is_before = |entries: &Slab<T>, other: u32| {
            entries.get(other as usize).is_some_and(|other| {
                other.is_waiting()
                    && other.home() == home
                    && other.criticality() == criticality
                    && other.serial() < serial
            })
        };
        let prev = if lane.tail().is_none_or(|tail| is_before(entries, tail)) {
            lane.tail()
        } else {
            let mut prev = state.returned[class].filter(|&hint| is_before(entries, hint));
            let mut cursor = match prev {
                Some(hint) => entries[hint as usize].links().next(),
                None => old_head,
            };
            while let Some(other) = cursor.filter(|&other| is_before(entries, other)) {
                (prev, cursor) = (Some(other), entries[other as usize].links().next());
            }
            state.returned[class] = Some(key);
            prev
        };
        lane.insert_after(entries, prev, key);
        let cost = u128::from(entries[key as usize].cost());
        state.waiting += 1;
        state.waiting_cost += cost;
        if !state.is_passed_over {
            self.ready += 1;
            self.ready_cost += cost;
        }
        if prev.is_none() && !state.is_passed_over {
            self.set_head(class, home, Some(serial));
        }
    }

    /// Takes an entry out of its lane.
    pub(crate) fn leave<T: Waits>(&mut self, entries: &mut Slab<T>, key: u32) {
        let entry = &entries[key as usize];
        let (home, class) = (entry.home(), entry.criticality().index());
        let cost = u128::from(entry.cost());
        let state = &mut self.homes[home];
        let lane = &mut state.lanes[class];
        let was_head = lane.head() == Some(key);
        lane.unlink(entries, key);
        state.waiting -= 1;
        state.waiting_cost -= cost;
        if !state.is_passed_over {
            self.ready -= 1;
            self.ready_cost -= cost;
        }
        if was_head && !state.is_passed_over {
            let next = lane.head().map(|next| entries[next as usize].serial());
            self.set_head(class, home, next);
        }
    }

    pub(crate) fn pass_over(&mut self, home: usize) {
        if std::mem::replace(&mut self.homes[home].is_passed_over, true) {
            return;
        }
        self.ready -= self.homes[home].waiting;
        self.ready_cost -= self.homes[home].waiting_cost;
        for class in 0..self.heads.len() {
            self.set_head(class, home, None);
        }
    }

    /// Passes a home over no longer; whether it was.
    pub(crate) fn come_back<T: Waits>(&mut self, entries: &Slab<T>, home: usize) -> bool {
        if !std::mem::take(&mut self.homes[home].is_passed_over) {
            return false;
        }
        self.ready += self.homes[home].waiting;
        self.ready_cost += self.homes[home].waiting_cost;
        for (class, lane) in self.homes[home].lanes.into_iter().enumerate() {
            let head = lane.head().map(|head| entries[head as usize].serial());
            self.set_head(class, home, head);
        }
        true
    }

    /// Sorts a home anew in a class, or takes it out.
    fn set_head(&mut self, class: usize, home: usize, serial: Option<u64>) {
        let (heads, place) = (&mut self.heads[class], &mut self.homes[home].places[class]);
        if let Some(place) = place.take() {
            heads.remove(place);
        }
        *place = serial.map(|serial| heads.insert(serial, home));
    }

    pub(crate) fn note_unreached(&mut self, home: usize) {
        self.homes[home].is_unreached = true;
    }

    /// Passes the homes that could not be reached over no longer.
    pub(crate) fn come_back_to_the_unreached<T: Waits>(&mut self, entries: &Slab<T>) {
        let unreached: Vec<usize> = { self.homes.iter_mut() }
            .filter_map(|(key, home)| std::mem::take(&mut home.is_unreached).then_some(key))
            .collect();
        for home in unreached {
            self.come_back(entries, home);
        }
    }
}
