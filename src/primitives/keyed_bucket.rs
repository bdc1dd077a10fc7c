use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::time::Duration;

use super::refill::{Contents, Refill};
use super::soonest::Soonest;
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

/// One token bucket for each key, for a bounded number of keys.
///
/// - A key gets a bucket of its own at its first take. If there are `max_keys`
///   already, it gets that of a key whose bucket is full, which loses nothing: it
///   would be full as a new one.
/// - If none is full, the key shares one more bucket with all others in that
///   situation. A key that gets its own bucket starts with what is in the shared one.
///   So no key can have more than `burst + rate / per × W` in any span of W seconds,
///   however many others somebody makes up to push its bucket out.
/// - A key is kept as a hash of 128 bits, so that long ones take no memory, and finding
///   a full bucket is O(log n): no call sweeps.
///
/// The hash is `SipHash` under a secret of this bucket's own, which is drawn when it is
/// made: the one thing here that is no argument. Nobody who does not know it can choose
/// keys that collide, and no answer depends on it: that two of 10,000 keys share a bucket
/// has a probability of 1e-31.
///
/// Nobody waits here. `now` may stand still or jump back: the latest moment seen counts.
#[derive(Debug)]
pub struct KeyedTokenBucket {
    refill: Refill,
    secrets: [RandomState; 2],
    keys: HashMap<u128, usize, BuildHasherDefault<IsHash>>,
    buckets: Soonest<Contents, u128>,
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
        Ok(Self {
            refill: Refill::new(rate, per, burst)?,
            secrets: [RandomState::new(), RandomState::new()],
            keys: HashMap::default(),
            buckets: Soonest::new(),
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
        ask.check(&self.refill)?;
        self.now = self.now.max(now);
        let place = self.place_of(self.hash(key));
        let mut contents = place.map_or(self.shared, |place| *self.buckets.value(place));
        let is_there = contents.has(&self.refill, self.now, ask.cost());
        if is_there {
            contents.take(&self.refill, self.now, ask.cost());
            match place {
                Some(place) => self.buckets.raise(place, contents),
                None => self.shared = contents,
            }
        }
        self.overflowed += u64::from(place.is_none());
        self.admitted += u64::from(is_there);
        self.rejected += u64::from(!is_there);
        Ok(is_there)
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
        let place = self.keys.get(&self.hash(key));
        let contents = place.map_or(self.shared, |&place| *self.buckets.value(place));
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
        self.buckets.change_all(|contents| contents.convert(now, &refill, &updated));
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

    /// Where the bucket of a key is, made if there is a place for it.
    fn place_of(&mut self, hash: u128) -> Option<usize> {
        if let Some(&place) = self.keys.get(&hash) {
            return Some(place);
        }
        if self.buckets.len() >= self.max_keys {
            let (contents, place) = self.buckets.soonest()?;
            if !contents.is_full(&self.refill, self.now) {
                return None;
            }
            let forgotten = self.buckets.remove(place);
            self.keys.remove(&forgotten);
        }
        // Whoever has a share in what was taken from the shared one takes it along.
        let place = self.buckets.insert(self.shared, hash);
        self.keys.insert(hash, place);
        Some(place)
    }

    fn hash(&self, key: &[u8]) -> u128 {
        let [high, low] = self.secrets.each_ref().map(|secret| u128::from(secret.hash_one(key)));
        high << 64 | low
    }
}

/// What is hashed already needs no hashing.
#[derive(Debug, Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    #[allow(clippy::cast_possible_truncation)] // either half will do
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}
