use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::refill::{Contents, NANO, Refill, Tick};
use super::timing_wheel::{self, TimingWheel};
use super::{ConfigError, Time, TokenAsk};

/// The state of a keyed bucket at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedBucketSnapshot {
    /// Tokens in every `per` seconds, for each key.
    pub rate: f64,
    /// In seconds.
    pub per: f64,
    /// How many tokens a key can have at most.
    pub burst: f64,
    /// How many keys have a bucket of their own.
    pub keys: usize,
    /// How many keys can have one.
    pub max_keys: usize,
    /// How many takes were granted since the start.
    pub admitted: u64,
    /// How many were rejected.
    pub rejected: u64,
    /// How many takes, granted or rejected, went to the bucket that is shared by the
    /// keys without one.
    pub overflowed: u64,
}

/// What became of a take, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenFromQuota {
    /// `None` if the tokens were taken; else after how long they are there, if nobody
    /// else comes.
    pub retry_after: Option<Duration>,
    /// How many whole tokens the key has now.
    pub remaining: u64,
    /// After how long it has one more; `None` if it can have no more.
    pub more_after: Option<Duration>,
    /// How many whole tokens it can have at most.
    pub quota: u64,
    /// In how many seconds they come, rounded up.
    pub window: u64,
}

/// One token bucket for each key, for a bounded number of keys.
///
/// - A key gets a bucket of its own at its first take. If there are `max_keys`
///   already, it gets that of a key whose bucket is full, which loses nothing: it
///   would be full as a new one. That a bucket is full is known later by an eighth
///   of the time it took to fill, at most.
/// - If none is full, the key shares one more bucket with all others in that
///   situation. A key that gets its own bucket starts with what is in the shared one.
///   So no key can have more than `burst + rate / per × W` in any span of W seconds,
///   however many others somebody makes up to push its bucket out.
/// - A key is kept as a hash of 64 bits, so that long ones take no memory, and finding
///   a full bucket is O(1): no call sweeps.
///
/// The hash is `SipHash` under a secret of this bucket's own, which is drawn when it is
/// made: the one thing here that is no argument. Nobody who does not know it can choose
/// keys that collide, and no answer depends on it but with a probability of 3e-12: that
/// two of 10,000 keys share a bucket.
///
/// Nobody waits here. `now` may stand still or jump back: the latest moment seen counts.
#[derive(Debug)]
pub struct KeyedTokenBucket {
    refill: Refill,
    secret: RandomState,
    tick: Tick,
    keys: FxHashMap<u64, usize>,
    /// By the moments at which they are full, in ticks.
    buckets: TimingWheel<Bucket>,
    shared: Contents,
    max_keys: usize,
    now: Time,
    admitted: u64,
    rejected: u64,
    overflowed: u64,
}

impl KeyedTokenBucket {
    /// Buckets as those of [`TokenBucket::new`](super::TokenBucket::new), for at most
    /// `max_keys` keys.
    ///
    /// # Errors
    /// If `max_keys` is not from 1 to 1e7, or another value not in its range.
    pub fn new(
        rate: f64,
        per: f64,
        burst: Option<f64>,
        max_keys: u32,
    ) -> Result<Self, ConfigError> {
        if !(1..=10_000_000).contains(&max_keys) {
            return Err(ConfigError::new("max_keys", max_keys, "an integer from 1 to 1e7"));
        }
        let refill = Refill::new(rate, per, burst)?;
        Ok(Self {
            refill,
            secret: RandomState::new(),
            tick: refill.tick(timing_wheel::LONGEST - 1),
            keys: FxHashMap::default(),
            buckets: TimingWheel::new(),
            shared: Contents::FULL,
            max_keys: max_keys as usize,
            now: Time::ZERO,
            admitted: 0,
            rejected: 0,
            overflowed: 0,
        })
    }

    /// Tokens in every [`per`](Self::per) seconds, for each key.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.refill.rate()
    }

    /// How many seconds the rate is meant for.
    #[must_use]
    pub const fn per(&self) -> f64 {
        self.refill.per()
    }

    /// How many tokens a key can have at most.
    #[must_use]
    pub fn burst(&self) -> f64 {
        self.refill.burst()
    }

    /// How many keys have a bucket of their own.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.buckets.len()
    }

    /// How many keys can have one.
    #[must_use]
    pub const fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Takes the tokens now or not at all; whether it did.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn try_take(&mut self, now: Time, key: &[u8], ask: &TokenAsk) -> Result<bool, ConfigError> {
        Ok(self.decide(now, key, ask)?.0)
    }

    /// Takes the tokens now or not at all, and says what is left in the same step.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn take_from_quota(
        &mut self,
        now: Time,
        key: &[u8],
        ask: &TokenAsk,
    ) -> Result<TakenFromQuota, ConfigError> {
        let (is_there, contents) = self.decide(now, key, ask)?;
        let after = |cost| contents.has_at(&self.refill, cost).since(self.now);
        let remaining = contents.whole_tokens(&self.refill, self.now);
        let more = (remaining + 1) * NANO;
        Ok(TakenFromQuota {
            retry_after: (!is_there).then(|| after(ask.cost())),
            remaining,
            more_after: self.refill.can_hold(more).then(|| after(more)),
            quota: self.refill.whole_burst(),
            window: self.refill.seconds_until_full(),
        })
    }

    /// The tokens that a key has; of a key without a bucket of its own those it would
    /// begin with, or share.
    #[must_use]
    pub fn tokens(&self, now: Time, key: &[u8]) -> f64 {
        self.contents_of(key).tokens(&self.refill, now.max(self.now))
    }

    /// After how long [`try_take`](Self::try_take) succeeds, and not a nanosecond
    /// earlier, if nobody else comes.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn retry_after(
        &self,
        now: Time,
        key: &[u8],
        ask: &TokenAsk,
    ) -> Result<Duration, ConfigError> {
        ask.check(&self.refill)?;
        let contents = self.contents_of(key);
        Ok(contents.has_at(&self.refill, ask.cost()).since(now.max(self.now)))
    }

    /// Changes the rate, the burst, or both, as
    /// [`TokenBucket::update`](super::TokenBucket::update) does; O(n).
    ///
    /// # Errors
    /// If the values are not in their ranges.
    pub fn update(
        &mut self,
        now: Time,
        rate: Option<f64>,
        burst: Option<f64>,
    ) -> Result<(), ConfigError> {
        let updated = self.refill.with(rate, burst)?;
        let refill = std::mem::replace(&mut self.refill, updated);
        let now = self.now.max(now);
        self.now = now;
        self.shared = self.shared.convert(now, &refill, &updated);
        self.tick = updated.tick(timing_wheel::LONGEST - 1);
        self.buckets.change_all(self.tick.count(&updated, now), |bucket| {
            bucket.contents = bucket.contents.convert(now, &refill, &updated);
            self.tick.count_until_full(bucket.contents)
        });
        Ok(())
    }

    /// The state at this moment.
    #[must_use]
    pub fn snapshot(&self) -> KeyedBucketSnapshot {
        KeyedBucketSnapshot {
            rate: self.rate(),
            per: self.per(),
            burst: self.burst(),
            keys: self.keys(),
            max_keys: self.max_keys,
            admitted: self.admitted,
            rejected: self.rejected,
            overflowed: self.overflowed,
        }
    }

    /// The latest moment seen.
    #[must_use]
    pub const fn latest(&self) -> Time {
        self.now
    }

    /// Whether the tokens were there, and what is in the bucket then.
    fn decide(
        &mut self,
        now: Time,
        key: &[u8],
        ask: &TokenAsk,
    ) -> Result<(bool, Contents), ConfigError> {
        ask.check(&self.refill)?;
        self.now = self.now.max(now);
        let hash = self.hash(key);
        let place = self.place_of(hash);
        let mut contents = place.map_or(self.shared, |place| self.buckets.get(place).contents);
        let is_there = contents.has(&self.refill, self.now, ask.cost());
        if is_there {
            contents.take(&self.refill, self.now, ask.cost());
            match place {
                Some(place) => {
                    let now = self.tick.count(&self.refill, self.now);
                    let full = self.tick.count_until_full(contents);
                    self.buckets.replace(now, full, place, Bucket { contents, hash });
                }
                None => self.shared = contents,
            }
        }
        self.overflowed += u64::from(place.is_none());
        self.admitted += u64::from(is_there);
        self.rejected += u64::from(!is_there);
        Ok((is_there, contents))
    }

    fn contents_of(&self, key: &[u8]) -> Contents {
        let place = self.keys.get(&self.hash(key));
        place.map_or(self.shared, |&place| self.buckets.get(place).contents)
    }

    /// Where the bucket of a key is, made if there is a place for it.
    fn place_of(&mut self, hash: u64) -> Option<usize> {
        if let Some(&place) = self.keys.get(&hash) {
            return Some(place);
        }
        let now = self.tick.count(&self.refill, self.now);
        if self.buckets.len() >= self.max_keys {
            let full = self.buckets.first_due(now)?;
            self.keys.remove(&self.buckets.remove(full).hash);
        }
        // Whoever has a share in what was taken from the shared one takes it along.
        let contents = self.shared;
        let full = self.tick.count_until_full(contents);
        let place = self.buckets.insert(now, full, Bucket { contents, hash });
        self.keys.insert(hash, place);
        Some(place)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.secret.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    contents: Contents,
    hash: u64,
}
