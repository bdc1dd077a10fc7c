use std::collections::BTreeMap;

/// The periods that rates are chosen for, in nanoseconds.
pub const PERS: [i128; 4] = [100_000_000, 1_000_000_000, 7_000_000_000, 60_000_000_000];
/// Their least common multiple: what comes in a nanosecond is always a whole number of
/// such fractions of a nano-token.
const UNITS: i128 = 420_000_000_000;

/// Thousandths of a token in every period, and a burst in nano-tokens.
#[derive(Clone, Copy, Debug)]
pub struct Tariff {
    pub rate: i128,
    pub per: i128,
    pub burst: i128,
}

impl Tariff {
    /// Units in a nanosecond.
    fn gain(self) -> i128 {
        self.rate * 1_000_000 * (UNITS / self.per)
    }

    /// The smallest amount that a bucket of this rate can tell apart, in units.
    fn grain(self) -> i128 {
        let (mut a, mut b) = (self.rate * 1_000_000, self.per);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        UNITS / (self.per / a)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken,
    Waiting,
    Refused,
    Impossible,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    cost: i128,
    bound: Option<i128>,
    answer: Answer,
}

/// The rules of the bucket, with a list and rational arithmetic. Names grow, so that
/// they are also the order of arrival.
pub struct Model {
    tariff: Tariff,
    /// In units.
    level: i128,
    /// What unclaimed grants took, in units: what would be put back, and the rest.
    refundable: i128,
    lapsed: i128,
    pub now: i128,
    /// When, and at which level, time began to pass without anything else.
    since: (i128, i128),
    /// What the level has become by that.
    passed_to: i128,
    waiters: BTreeMap<usize, Waiter>,
}

impl Model {
    pub fn new(tariff: Tariff) -> Self {
        Self {
            tariff,
            level: tariff.burst * UNITS,
            refundable: 0,
            lapsed: 0,
            now: 0,
            since: (0, tariff.burst * UNITS),
            passed_to: tariff.burst * UNITS,
            waiters: BTreeMap::new(),
        }
    }

    pub fn pass(&mut self, nanos: i128) {
        if self.level != self.passed_to {
            self.since = (self.now, self.level);
        }
        self.now += nanos;
        self.add(nanos * self.tariff.gain());
        self.passed_to = self.level;
    }

    /// The level at an earlier moment.
    fn level_at(&self, moment: i128) -> i128 {
        let (at, level) =
            if self.level == self.passed_to { self.since } else { (self.now, self.level) };
        (level + (moment - at) * self.tariff.gain()).min(self.tariff.burst * UNITS)
    }

    fn add(&mut self, units: i128) {
        self.level = (self.level + units).min(self.tariff.burst * UNITS);
    }

    /// What does not fit beside the rest of what was refilled will not be put back.
    fn note_lapsed(&mut self) {
        let room = (self.tariff.burst * UNITS - self.level) / UNITS * UNITS;
        let excess = (self.refundable - room).max(0);
        self.refundable -= excess;
        self.lapsed += excess;
    }

    fn settle(&mut self, units: i128) {
        let settled = units.min(self.refundable);
        self.refundable -= settled;
        self.lapsed -= units - settled;
    }

    /// In tokens.
    pub fn level(&self) -> f64 {
        self.level as f64 / UNITS as f64 / 1e9
    }

    pub fn waiting(&self) -> usize {
        self.line().count()
    }

    fn head(&self) -> Option<(usize, Waiter)> {
        self.line().next()
    }

    fn line(&self) -> impl Iterator<Item = (usize, Waiter)> {
        let waiters = self.waiters.iter().map(|(&name, &waiter)| (name, waiter));
        waiters.filter(|(_, waiter)| waiter.answer == Answer::Waiting)
    }

    pub fn is_granted(&self, name: usize) -> bool {
        self.waiters.get(&name).is_some_and(|waiter| waiter.answer == Answer::Taken)
    }

    pub fn answered(&self) -> Vec<usize> {
        let answered = self.waiters.iter().filter(|(_, one)| one.answer != Answer::Waiting);
        answered.map(|(&name, _)| name).collect()
    }

    /// When the head has room, or somebody has waited for as long as he may.
    pub fn next_expiry(&self) -> Option<i128> {
        let bound = self.line().filter_map(|(_, waiter)| waiter.bound).min();
        let head = self.line().next().map(|(_, waiter)| {
            let missing = waiter.cost.min(self.tariff.burst) * UNITS - self.level;
            self.now + ceil(missing.max(0), self.tariff.gain())
        });
        bound.into_iter().chain(head).min()
    }

    pub fn retry_after(&self, cost: i128) -> Option<i128> {
        if cost > self.tariff.burst {
            return None;
        }
        let before: i128 = self.line().map(|(_, waiter)| waiter.cost).sum();
        let missing = (before + cost) * UNITS - self.level;
        Some(ceil(missing.max(0), self.tariff.gain()))
    }

    pub fn try_take(&mut self, cost: i128) -> Answer {
        if !self.waiters.is_empty() {
            self.expire();
        }
        self.take_now(cost)
    }

    fn take_now(&mut self, cost: i128) -> Answer {
        if cost > self.tariff.burst {
            return Answer::Impossible;
        }
        if self.line().next().is_some() || self.level < cost * UNITS {
            return Answer::Refused;
        }
        self.note_lapsed();
        self.level -= cost * UNITS;
        Answer::Taken
    }

    pub fn take(&mut self, name: usize, cost: i128, max_wait: Option<i128>) -> Answer {
        self.expire();
        let answer = self.take_now(cost);
        if answer != Answer::Refused || max_wait == Some(0) {
            return answer;
        }
        let bound = max_wait.map(|nanos| self.now + nanos);
        self.waiters.insert(name, Waiter { cost, bound, answer: Answer::Waiting });
        Answer::Waiting
    }

    pub fn claim(&mut self, name: usize) -> Answer {
        if self.waiters[&name].answer == Answer::Waiting {
            self.serve();
        }
        let answer = self.waiters[&name].answer;
        if answer != Answer::Waiting {
            let cost = self.waiters[&name].cost;
            if answer == Answer::Taken {
                self.settle(cost * UNITS);
            }
            self.waiters.remove(&name);
        }
        answer
    }

    pub fn cancel(&mut self, name: usize) {
        if let Some(Waiter { answer: Answer::Taken, cost, .. }) = self.waiters.remove(&name) {
            self.note_lapsed();
            let lapsed = self.lapsed.min(cost * UNITS);
            self.lapsed -= lapsed;
            self.refundable -= cost * UNITS - lapsed;
            self.add(cost * UNITS - lapsed);
        }
        self.serve();
    }

    pub fn adjust(&mut self, nano: i128) {
        self.note_lapsed();
        self.add(nano * UNITS);
        self.serve();
    }

    /// Empties it as far as it has to be, to have nothing more when so many are over.
    pub fn pause(&mut self, nanos: i128) {
        const MOST: i128 = 1_000_000_000_000_000_000;
        self.note_lapsed();
        let comes = (nanos * self.tariff.gain() + UNITS - 1) / UNITS;
        let lacks = (self.tariff.burst * UNITS - self.level) / UNITS;
        let excess = self.tariff.burst + comes.min(MOST) - lacks;
        if excess > 0 {
            self.level = (self.level - excess * UNITS).max(-MOST * UNITS);
        }
        self.serve();
    }

    pub fn update(&mut self, tariff: Tariff) {
        // From now on by another tariff.
        self.passed_to = i128::MIN;
        self.note_lapsed();
        self.tariff = tariff;
        let grain = tariff.grain();
        self.level = self.level.div_euclid(grain) * grain;
        self.add(0);
        self.serve();
    }

    pub fn expire(&mut self) {
        let now = self.now;
        // Whose tokens came in time has them, however late one looks.
        while let Some((name, head)) = self.head()
            && let Some(bound) = head.bound.filter(|&bound| bound <= now)
            && self.level_at(bound - 1) >= head.cost.min(self.tariff.burst) * UNITS
        {
            self.grant(name, head);
        }
        for waiter in self.waiters.values_mut() {
            let is_over = waiter.bound.is_some_and(|bound| bound <= now);
            if waiter.answer == Answer::Waiting && is_over {
                waiter.answer = Answer::Refused;
            }
        }
        self.serve();
    }

    fn serve(&mut self) {
        while let Some((name, head)) = self.head()
            && self.level >= head.cost.min(self.tariff.burst) * UNITS
        {
            self.grant(name, head);
        }
    }

    fn grant(&mut self, name: usize, head: Waiter) {
        self.note_lapsed();
        self.level -= head.cost * UNITS;
        self.refundable += head.cost * UNITS;
        self.waiters.insert(name, Waiter { answer: Answer::Taken, ..head });
    }
}

fn ceil(a: i128, b: i128) -> i128 {
    (a + b - 1) / b
}
