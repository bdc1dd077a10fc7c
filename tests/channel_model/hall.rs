use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::sample::Index;
use sluicegate::primitives::{
    CLAIM_PATIENCE, Channel, Criticality, Home, ItemId, Level, News, Offer, Put, QueueConfig,
    Reason, Take, Taken, Ticket, Time, Wait, Waitable, Wakes, Work,
};

use crate::steps::{Offered, Step};

mod checks;

const MS: u64 = 1_000_000;
/// Nobody there ever answers, while it lasts.
pub const DEAD: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Want {
    Item,
    Room { item: usize, criticality: usize, deadline: Option<Time> },
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    want: Want,
    home: u64,
    bound: Option<Time>,
    /// It was woken, and has not come.
    is_called: bool,
    /// Who was to be called before it.
    overtook: Option<usize>,
}

/// A channel, and all who have to do with it: what holds whatever they do.
pub struct Hall {
    channel: Channel<usize, usize>,
    now: u64,
    next_name: usize,
    waiters: BTreeMap<usize, Waiter>,
    gone: Vec<(Ticket, bool)>,
    ids: Vec<(ItemId, usize)>,
    inside: BTreeSet<usize>,
    works: Vec<Work>,
    held: Vec<(Taken<usize>, usize)>,
    /// How often all was taken out without a trace.
    life: usize,
    /// Closed at once.
    is_ended: bool,
    cut: BTreeSet<u64>,
    level: Level,
    accepted: u64,
    taken: u64,
    cancelled: u64,
    rejected: u64,
    /// Whether there may be some who were answered and could not be reached.
    has_unreached: bool,
    /// Who began to wait last.
    newcomer: usize,
    /// Whether all come at once when they are called: then the order is exact.
    is_prompt: bool,
}

impl Hall {
    pub fn new(capacity: usize, is_prompt: bool) -> Self {
        Self {
            channel: Channel::new(config(capacity)).expect("a sound configuration"),
            now: 0,
            next_name: 0,
            waiters: BTreeMap::new(),
            gone: Vec::new(),
            ids: Vec::new(),
            inside: BTreeSet::new(),
            works: Vec::new(),
            held: Vec::new(),
            life: 0,
            is_ended: false,
            cut: BTreeSet::new(),
            level: Level::Low,
            accepted: 0,
            taken: 0,
            cancelled: 0,
            rejected: 0,
            has_unreached: false,
            newcomer: 0,
            is_prompt,
        }
    }

    #[allow(clippy::too_many_lines)] // one arm a step
    pub fn play(&mut self, step: &Step) {
        let now = self.now();
        match *step {
            Step::PutNow(offered, home) => {
                let (item, offer) = (self.name(), self.offer(offered));
                let before = self.channel.queue().depth();
                let (put, wakes) = self.channel.put_now(now, item, &offer, home.map(Home));
                self.check_depth(&put, before);
                let is_in = matches!(put, Put::Accepted(_));
                self.hear_put(&put, item);
                self.wake(wakes);
                assert!(!is_in || !self.has_overtaken_a_putter(offered.criticality));
            }
            Step::PutIfRoom(offered) => {
                let (item, offer) = (self.name(), self.offer(offered));
                let before = self.channel.queue().depth();
                let (put, wakes) = self.channel.put_into_room(now, item, &offer);
                self.check_depth(&put, before);
                let is_in = matches!(put, Put::Accepted(_));
                if !matches!(put, Put::NoRoom(back) if back == item) {
                    self.hear_put(&put, item);
                }
                self.wake(wakes);
                assert!(!is_in || !self.has_overtaken_a_putter(offered.criticality));
            }
            Step::Put(offered, home, bound) => {
                let (item, offer) = (self.name(), self.offer(offered));
                let bound = bound.map(|ms| now.after(Duration::from_millis(ms)));
                let wait = Wait { home: Some(Home(home)), until: bound };
                let (before, mut waiter) = (self.channel.queue().depth(), Some(item));
                let (put, wakes) = self.channel.put_or_wait(now, item, &offer, wait, &mut waiter);
                assert_eq!(waiter.is_none(), matches!(put, Put::Waiting(..)));
                self.check_depth(&put, before);
                let is_in = matches!(put, Put::Accepted(_));
                if let Put::Waiting(ticket, back) = put {
                    assert_eq!(back, item);
                    let Offered { criticality, .. } = offered;
                    let room = Want::Room { item, criticality, deadline: offer.deadline };
                    let bound = bound.into_iter().chain(offer.deadline).min();
                    self.join(item, ticket, room, home, bound);
                } else {
                    self.hear_put(&put, item);
                }
                self.wake(wakes);
                assert!(!is_in || !self.has_overtaken_a_putter(offered.criticality));
            }
            Step::TakeNow(home) => {
                let (take, wakes) = self.channel.take_now(now, home.map(Home));
                let is_taken = matches!(take, Take::Taken(_));
                match take {
                    Take::Taken(taken) => self.take(&taken),
                    Take::Closed => assert!(self.channel.is_closed()),
                    Take::Empty => {}
                    other => panic!("{other:?}"),
                }
                self.wake(wakes);
                assert!(!is_taken || !self.has_overtaken_a_taker());
            }
            Step::Hold(home) => {
                let (take, wakes) = self.channel.take_now(now, home.map(Home));
                if let Take::Taken(taken) = take {
                    self.note_taken(&taken);
                    self.held.push((taken, self.life));
                }
                self.wake(wakes);
            }
            Step::PutBack(which) => {
                if !self.held.is_empty() {
                    let (taken, life) = self.held.swap_remove(which.index(self.held.len()));
                    self.inside.insert(taken.item);
                    if life == self.life {
                        self.taken -= 1;
                    }
                    let wakes = self.channel.put_back(now, taken);
                    self.hear();
                    self.wake(wakes);
                }
            }
            Step::Take(home, bound) => {
                let name = self.name();
                let bound = bound.map(|ms| now.after(Duration::from_millis(ms)));
                let wait = Wait { home: Some(Home(home)), until: bound };
                let mut waiter = Some(name);
                let (take, wakes) = self.channel.take_or_wait(now, wait, &mut waiter);
                let is_taken = matches!(take, Take::Taken(_));
                assert_eq!(waiter.is_none(), matches!(take, Take::Waiting(_)));
                match take {
                    Take::Taken(taken) => self.take(&taken),
                    Take::Waiting(ticket) => self.join(name, ticket, Want::Item, home, bound),
                    Take::TimedOut => assert_eq!(bound, Some(now)),
                    Take::Closed => assert!(self.channel.is_closed()),
                    other => panic!("{other:?}"),
                }
                self.wake(wakes);
                assert!(!is_taken || !self.has_overtaken_a_taker());
            }
            Step::Claim(which) => {
                if let Some(name) = self.some_waiter(which)
                    && self.waiters[&name].home != DEAD
                {
                    self.claim(name);
                }
            }
            Step::Cancel(which) => {
                if let Some(name) = self.some_waiter(which) {
                    self.cancel(name);
                }
            }
            Step::CancelItem(which) => {
                if !self.ids.is_empty() {
                    let (id, item) = self.ids[which.index(self.ids.len())];
                    let (cancelled, wakes) = self.channel.cancel_item(now, id);
                    self.hear();
                    assert_eq!(cancelled, self.inside.contains(&item).then_some(item));
                    if cancelled.is_some() {
                        self.inside.remove(&item);
                        self.cancelled += 1;
                    }
                    self.wake(wakes);
                }
            }
            Step::Finish(which, is_success) => {
                if !self.works.is_empty() {
                    let work = self.works.swap_remove(which.index(self.works.len()));
                    let wakes = self.channel.finish(now, work, is_success);
                    self.wake(wakes);
                }
            }
            Step::Pass(ms) => self.now += ms * MS,
            Step::Expire(home) => {
                let wakes = self.channel.expire(now, home.map(Home));
                self.wake(wakes);
            }
            Step::Update(capacity) => {
                let wakes = self.channel.update(now, config(capacity)).expect("it is sound");
                self.wake(wakes);
            }
            Step::Close(is_immediate) => {
                let wakes = self.channel.close(now, is_immediate);
                self.hear();
                self.is_ended |= is_immediate;
                self.wake(wakes);
            }
            Step::Cut(home) => {
                if !self.is_prompt {
                    self.has_unreached = true;
                    if !self.cut.insert(home) {
                        self.cut.remove(&home);
                    }
                }
            }
            Step::Fork { keeps_items } => self.fork(keeps_items),
            Step::Settle => self.settle(),
        }
        if self.is_prompt {
            self.answer_all_who_are_called();
            self.check_that_nobody_waits_in_vain();
        }
        self.check();
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn name(&mut self) -> usize {
        self.next_name += 1;
        self.next_name
    }

    fn offer(&self, offered: Offered) -> Offer<'static> {
        Offer {
            criticality: Criticality::ALL[offered.criticality],
            deadline: offered.deadline.map(|ms| self.now().after(Duration::from_millis(ms))),
            ..Offer::default()
        }
    }

    fn some_waiter(&self, which: Index) -> Option<usize> {
        let names: Vec<usize> = self.waiters.keys().copied().collect();
        (!names.is_empty()).then(|| names[which.index(names.len())])
    }

    fn join(&mut self, name: usize, ticket: Ticket, want: Want, home: u64, bound: Option<Time>) {
        assert!(self.waiters.values().all(|waiter| waiter.ticket != ticket));
        assert!(self.gone.iter().all(|&(gone, _)| gone != ticket));
        let waiter = Waiter { ticket, want, home, bound, is_called: false, overtook: None };
        self.waiters.insert(name, waiter);
        self.newcomer = name;
    }

    fn hear_put(&mut self, put: &Put<usize>, item: usize) {
        match *put {
            Put::Accepted(id) => {
                self.ids.push((id, item));
                self.inside.insert(item);
                self.accepted += 1;
            }
            Put::Rejected(back, ref rejection) => {
                assert_eq!(back, item);
                assert!(rejection.reason != Reason::Closed || self.channel.is_closed());
                self.rejected += 1;
            }
            Put::Waiting(..) | Put::NoRoom(_) => panic!("it did not want to wait"),
            Put::Unknown(_) => panic!("it did not wait"),
        }
    }

    fn take(&mut self, taken: &Taken<usize>) {
        self.note_taken(taken);
        self.works.push(self.channel.begin(taken));
    }

    fn note_taken(&mut self, taken: &Taken<usize>) {
        self.hear();
        assert!(self.inside.remove(&taken.item), "{} was not inside", taken.item);
        self.taken += 1;
    }

    fn hear(&mut self) {
        for news in self.channel.take_news() {
            match news {
                News::Rejected(item, _) => {
                    assert!(self.inside.remove(&item), "{item} was not inside");
                    self.rejected += 1;
                }
                News::Level(level) => {
                    assert_ne!(level, self.level, "told twice");
                    self.level = level;
                }
            }
        }
    }

    fn wake(&mut self, wakes: Wakes<usize>) {
        let mut queue: Vec<_> = wakes.into_iter().collect();
        queue.reverse();
        while let Some(wake) = queue.pop() {
            let waiter = self.waiters.get_mut(&wake.waiter).expect("it is there");
            assert_eq!(waiter.ticket, wake.ticket);
            assert!(!waiter.is_called, "called twice");
            if self.cut.contains(&waiter.home) {
                let now = self.now();
                queue.extend(self.channel.unreached(now, wake.ticket, wake.waiter));
            } else {
                waiter.is_called = true;
                let overtook = self.overtaken_by(wake.waiter);
                self.waiters.entry(wake.waiter).and_modify(|waiter| waiter.overtook = overtook);
            }
        }
    }

    fn claim(&mut self, name: usize) {
        let waiter = self.waiters[&name];
        match waiter.want {
            Want::Item => self.claim_item(name, &waiter),
            Want::Room { item, criticality, deadline } => {
                let criticality = Criticality::ALL[criticality];
                let offer = Offer { criticality, deadline, ..Offer::default() };
                let before = self.channel.queue().depth();
                let (put, wakes) = self.channel.claim_room(self.now(), waiter.ticket, item, &offer);
                self.check_depth(&put, before);
                if let Put::Waiting(ticket, back) = put {
                    assert_eq!((ticket, back), (waiter.ticket, item));
                    self.wait_on(name);
                    self.wake(wakes);
                } else {
                    // It may be among those who are woken, and came already.
                    self.wake(wakes);
                    if matches!(put, Put::Accepted(_)) {
                        self.check_order(name);
                    }
                    if let Put::Rejected(_, rejection) = &put {
                        let is_over = waiter.bound.is_some_and(|bound| bound <= self.now());
                        assert!(is_over || rejection.reason == Reason::Closed, "{rejection:?}");
                    }
                    self.waiters.remove(&name);
                    self.gone.push((waiter.ticket, false));
                    self.hear_put(&put, item);
                }
            }
        }
    }

    fn claim_item(&mut self, name: usize, waiter: &Waiter) {
        let (take, wakes) = self.channel.claim_item(self.now(), waiter.ticket);
        match take {
            Take::Waiting(ticket) => {
                assert_eq!(ticket, waiter.ticket);
                self.wait_on(name);
                self.wake(wakes);
            }
            answer => {
                self.wake(wakes);
                match answer {
                    Take::Taken(taken) => {
                        self.check_order(name);
                        self.take(&taken);
                    }
                    Take::Closed => {
                        assert!(self.channel.is_closed());
                        assert_eq!(self.channel.queue().depth(), 0);
                    }
                    Take::TimedOut => assert!(waiter.bound.is_some_and(|b| b <= self.now())),
                    other => panic!("{other:?}"),
                }
                self.waiters.remove(&name);
                self.gone.push((waiter.ticket, true));
            }
        }
    }

    fn wait_on(&mut self, name: usize) {
        let waiter = self.waiters.get_mut(&name).expect("it is there");
        if !std::mem::take(&mut waiter.is_called) {
            return;
        }
        match self.channel.renew(waiter.ticket, name) {
            Ok(old) => assert_eq!(old, None),
            // It was answered meanwhile.
            Err(_) => self.claim(name),
        }
    }

    fn cancel(&mut self, name: usize) {
        let waiter = self.waiters.remove(&name).expect("it is there");
        let wakes = self.channel.cancel(self.now(), waiter.ticket);
        self.gone.push((waiter.ticket, matches!(waiter.want, Want::Item)));
        self.wake(wakes);
    }

    fn fork(&mut self, keeps_items: bool) {
        self.has_unreached = false;
        self.cut.clear();
        let mut left = self.channel.reset();
        let mut uncalled: Vec<usize> = self.waiters.keys().copied().collect();
        uncalled.retain(|name| !self.waiters[name].is_called);
        left.sort_unstable();
        assert_eq!(left, uncalled);
        for waiter in std::mem::take(&mut self.waiters).into_values() {
            self.gone.push((waiter.ticket, matches!(waiter.want, Want::Item)));
        }
        assert_eq!((self.channel.takers(), self.channel.putters()), (0, 0));
        assert!(!self.channel.has_unclaimed(None));
        assert_eq!(self.channel.queue().depth(), self.channel.queue().len());
        if keeps_items {
            return;
        }
        let items: BTreeSet<usize> = self.channel.take_items().into_iter().collect();
        assert_eq!(items, std::mem::take(&mut self.inside));
        assert_eq!(self.channel.snapshot(self.now()).working, 0);
        self.level = Level::Low;
        // They are of another life.
        self.life += 1;
        for work in self.works.drain(..) {
            self.channel.abandon(work);
        }
    }

    fn answer_all_who_are_called(&mut self) {
        loop {
            let called = { self.waiters.iter() }
                .find(|(_, waiter)| waiter.is_called && waiter.home != DEAD)
                .map(|(&name, _)| name);
            let Some(name) = called else { return };
            self.claim(name);
        }
    }

    /// Everybody is reached and comes, but the dead.
    fn settle(&mut self) {
        self.cut.clear();
        self.answer_all_who_are_called();
        let mut is_quiet = false;
        while !std::mem::replace(&mut is_quiet, true) {
            let end = self.now().after(CLAIM_PATIENCE);
            while let Some(at) = self.channel.next_expiry().filter(|&at| at <= end) {
                self.now = self.now.max(at.as_nanos());
                let wakes = self.channel.expire(self.now(), None);
                self.hear();
                self.wake(wakes);
                assert_ne!(self.channel.next_expiry(), Some(at), "it asks for the same again");
                self.answer_all_who_are_called();
                is_quiet = false;
            }
            self.now = end.as_nanos();
        }
        self.has_unreached = false;
        self.check_that_nobody_waits_in_vain();
    }

    /// Whatever happened, all can be taken and cancelled, and nothing is left.
    pub fn end(mut self) {
        let now = self.now();
        for (ticket, is_taker) in std::mem::take(&mut self.gone) {
            if is_taker {
                let (take, wakes) = self.channel.claim_item(now, ticket);
                assert!(matches!(take, Take::Unknown), "{take:?}");
                self.wake(wakes);
            } else {
                let (put, wakes) = self.channel.claim_room(now, ticket, 0, &Offer::default());
                assert!(matches!(put, Put::Unknown(0)), "{put:?}");
                self.wake(wakes);
            }
            assert!(self.channel.renew(ticket, 0).is_err());
        }
        self.check();
        while let Some(&name) = self.waiters.keys().next() {
            self.cancel(name);
        }
        while let (Take::Taken(taken), _) = self.channel.take_now(now, None) {
            self.take(&taken);
        }
        self.check();
        for work in std::mem::take(&mut self.works) {
            self.channel.abandon(work);
        }
        assert!(self.inside.is_empty());
        assert_eq!((self.channel.takers(), self.channel.putters()), (0, 0));
        assert!(!self.channel.has_unclaimed(None));
        assert_eq!(self.channel.next_expiry(), None);
        assert!((0..4).all(|home| !self.channel.waits(Home(home))));
        assert_eq!(self.channel.waiters().count(), 0);
        if !self.channel.is_closed() {
            // Neither room nor an item is kept for anybody.
            let wakes = self.channel.update(now, config(2)).expect("it is sound");
            assert!(wakes.is_empty());
            for item in [1, 2] {
                let (put, _) = self.channel.put_now(now, item, &Offer::default(), None);
                assert!(matches!(put, Put::Accepted(_)));
                assert_eq!(self.channel.queue().depth(), item);
            }
        }
    }
}

fn config(capacity: usize) -> QueueConfig {
    let mut config = QueueConfig::new(capacity);
    config.target = Some(Duration::from_millis(5));
    config.interval = Some(Duration::from_millis(20));
    config
}
