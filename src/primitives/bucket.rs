use std::time::Duration;

use super::error::shown;
use super::line::Arrival;
use super::refill::{Contents, MAX_TOKENS, NANO, Refill, nano_tokens};
use super::turns::{Room, Turn, Turns};
use super::{ConfigError, Criticality, Home, Reason, Ticket, Time, Waitable, Wakes};

const N: &str = "a number of tokens from 1e-9 to the burst";

/// What somebody asks of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct TokenAsk {
    /// In nano-tokens.
    cost: u64,
    /// How long it may wait in line; `None` is without bound.
    pub max_wait: Option<Duration>,
    /// Who asks, if that is known; needed to wait.
    pub home: Option<Home>,
}

impl TokenAsk {
    /// Asks for `n` tokens, rounded to billionths, from an unknown home, to wait
    /// without bound.
    ///
    /// # Errors
    /// If `n` is not from 1e-9 to [`MAX_TOKENS`]. Whether it is above the burst
    /// shows when it is asked for.
    pub fn new(n: f64) -> Result<Self, ConfigError> {
        if (1e-9..=MAX_TOKENS).contains(&n) {
            Ok(Self { cost: nano_tokens(n), ..Self::one() })
        } else {
            Err(ConfigError::new("n", shown(n), N))
        }
    }

    /// The same for one token.
    #[must_use]
    pub const fn one() -> Self {
        Self { cost: NANO, max_wait: None, home: None }
    }

    /// How many tokens it asks for.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.cost as f64 / NANO as f64
    }

    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// # Errors
    /// If it asks for more than can ever be there.
    pub(crate) fn check(&self, refill: &Refill) -> Result<(), ConfigError> {
        if refill.can_hold(self.cost) {
            return Ok(());
        }
        let text = format!("{} with a burst of {}", shown(self.tokens()), shown(refill.burst()));
        Err(ConfigError::new("n", text, N))
    }
}

/// The answer to [`TokenBucket::take`] and to [`TokenBucket::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The tokens are taken.
    Taken {
        /// How long that took.
        waited: Duration,
    },
    /// In line; a [`Wake`](super::Wake) says when to claim. Whoever claimed is to be
    /// given a new waiter by [`Waitable::renew`].
    Waiting(Ticket),
    /// Neither: [`Reason::Wait`] after the longest wait, [`Reason::Closed`] for a
    /// ticket from before a [`reset`](Waitable::reset).
    Refused(Reason),
}

/// The state of a bucket at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSnapshot {
    /// Tokens in every `per` seconds.
    pub rate: f64,
    /// In seconds.
    pub per: f64,
    /// How many tokens it holds at most.
    pub burst: f64,
    /// How many tokens are in it; negative in debt.
    pub tokens: f64,
    /// How many wait in line.
    pub waiting: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
    /// How many takes were granted since the start.
    pub admitted: u64,
    /// How many were rejected, by [`Reason::index`].
    pub rejected: [u64; 12],
    /// How many grants were taken back because nobody came to claim them.
    pub revoked: u64,
}

/// A token bucket with a waiting line: at most `burst` tokens at once, and `rate` in
/// every `per` seconds.
///
/// - In any span of W seconds at most `burst + rate / per × W` tokens are taken,
///   exactly: amounts are whole billionths of a token, and nothing is rounded but
///   what comes in.
/// - It is refilled by the mere passing of time, and starts full.
/// - The line is served in order of arrival, and its head is never overtaken, so that
///   a large cost is not starved by small ones.
/// - A grant takes the tokens. It is claimed by ticket; one that is cancelled, or not
///   claimed within [`CLAIM_PATIENCE`](super::CLAIM_PATIENCE) while somebody
///   elsewhere could use it, puts them back, unless the bucket has been refilled in
///   their place meanwhile.
///
/// `W` is whatever the caller wakes a waiter with. `now` may stand still or jump
/// back: the latest moment seen counts.
#[derive(Debug)]
pub struct TokenBucket<W> {
    turns: Turns<Tokens, W>,
    admitted: u64,
    rejected: [u64; 12],
}

impl<W> TokenBucket<W> {
    /// A full bucket of `burst` tokens, to which `rate` are added in every `per`
    /// seconds; `burst` is by default what one second brings, and at least 1.
    ///
    /// The rate is that of the decimal numbers as written: 0.3 is 3 in 10 seconds.
    ///
    /// # Errors
    /// If `per` is not from 1e-9 to 1e9, `rate / per` not from 1e-6 to 1e9, or
    /// `burst` not from 1e-9 to [`MAX_TOKENS`].
    pub fn new(rate: f64, per: f64, burst: Option<f64>) -> Result<Self, ConfigError> {
        let refill = Refill::new(rate, per, burst)?;
        Ok(Self { turns: Turns::new(Tokens::new(refill)), admitted: 0, rejected: [0; 12] })
    }

    /// Tokens in every [`per`](Self::per) seconds.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.turns.room.refill.rate()
    }

    /// How many seconds the rate is meant for.
    #[must_use]
    pub const fn per(&self) -> f64 {
        self.turns.room.refill.per()
    }

    /// How many tokens it holds at most.
    #[must_use]
    pub fn burst(&self) -> f64 {
        self.turns.room.refill.burst()
    }

    /// How many tokens are in it at `now`; negative in debt.
    #[must_use]
    pub fn tokens(&self, now: Time) -> f64 {
        let Tokens { refill, contents, .. } = &self.turns.room;
        contents.tokens(refill, now.max(self.turns.latest()))
    }

    /// How many wait in line.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Takes the tokens now or not at all; whether it did. It never overtakes those
    /// who wait.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    #[inline]
    pub fn try_take(&mut self, now: Time, ask: &TokenAsk) -> Result<bool, ConfigError> {
        let is_taken = self.admit(now, ask)?;
        if !is_taken {
            self.rejected[Reason::Rate.index()] += 1;
        }
        Ok(is_taken)
    }

    /// [`try_take`](Self::try_take) for somebody who finds others in line, and serves
    /// them first if that is overdue.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn try_take_behind(
        &mut self,
        now: Time,
        ask: &TokenAsk,
    ) -> (Result<bool, ConfigError>, Wakes<W>) {
        let wakes = self.expire(now, ask.home);
        (self.try_take(now, ask), wakes)
    }

    /// Whether it can ever have what is asked for.
    ///
    /// # Errors
    /// If that is more than the burst.
    pub fn check(&self, ask: &TokenAsk) -> Result<(), ConfigError> {
        ask.check(&self.turns.room.refill)
    }

    /// Whether the answer may depend on where an ask comes from: whoever asks shows
    /// that its home is not blocked.
    #[must_use]
    #[inline]
    pub fn is_home_wanted(&self) -> bool {
        !self.turns.is_empty()
    }

    /// [`try_take`](Self::try_take) for somebody who goes on to wait: counts no
    /// rejection.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    #[inline]
    pub fn admit(&mut self, now: Time, ask: &TokenAsk) -> Result<bool, ConfigError> {
        ask.check(&self.turns.room.refill)?;
        let is_taken = self.turns.admit(now, ask.home, Criticality::default(), ask.cost);
        if is_taken {
            self.turns.room.settle(ask.cost);
            self.admitted += 1;
        }
        Ok(is_taken)
    }

    /// Takes the tokens now, or joins the line with `waiter`, which is taken only
    /// then: what is left is for the caller to drop outside the lock. Those who wait
    /// are served first if that is overdue.
    ///
    /// Nobody is refused because the wait will be too long: tokens may be given
    /// back, somebody before may leave, and the rate may rise. It is refused if it
    /// may not wait at all, has no home or no waiter.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn take(
        &mut self,
        now: Time,
        ask: &TokenAsk,
        waiter: &mut Option<W>,
    ) -> (Result<Taking, ConfigError>, Wakes<W>) {
        let wakes = self.expire(now, ask.home);
        let answer = self.admit(now, ask).map(|is_taken| {
            if is_taken { Taking::Taken { waited: Duration::ZERO } } else { self.join(ask, waiter) }
        });
        (answer, wakes)
    }

    fn join(&mut self, ask: &TokenAsk, waiter: &mut Option<W>) -> Taking {
        let home = ask.home.filter(|_| ask.max_wait != Some(Duration::ZERO));
        let Some((home, waiter)) = home.and_then(|home| Some((home, waiter.take()?))) else {
            self.rejected[Reason::Wait.index()] += 1;
            return Taking::Refused(Reason::Wait);
        };
        let now = self.turns.latest();
        let arrival = Arrival {
            home,
            criticality: Criticality::default(),
            cost: ask.cost,
            now,
            bound: ask.max_wait.map(|span| now.after(span)),
            bound_reason: Reason::Wait,
        };
        Taking::Waiting(self.turns.join(arrival, waiter))
    }

    /// Asks what a ticket is worth, after its wake or at any other time.
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (Taking, Wakes<W>) {
        let mut wakes = Wakes::none();
        let take = match self.turns.claim(now, ticket, &mut wakes) {
            Turn::Granted { cost, waited } => {
                self.turns.room.settle(cost);
                self.admitted += 1;
                Taking::Taken { waited }
            }
            Turn::Waiting => Taking::Waiting(ticket),
            Turn::Refused { reason, .. } => Taking::Refused(reason),
            Turn::Unknown => Taking::Refused(Reason::Closed),
        };
        (take, wakes)
    }

    /// Undoes a take whose tokens could not be used.
    pub fn refund(&mut self, now: Time, ask: &TokenAsk) -> Wakes<W> {
        self.admitted = self.admitted.saturating_sub(1);
        let now = self.turns.tick(now);
        self.turns.room.add(now, ask.cost);
        self.turns.served(now)
    }

    /// Corrects what was taken: gives `n` tokens back, at most to the burst, or
    /// charges them if `n` is negative, if need be into debt (of [`MAX_TOKENS`] at
    /// most).
    ///
    /// # Errors
    /// If `n` is not from −1e9 to 1e9.
    pub fn adjust(&mut self, now: Time, n: f64) -> Result<Wakes<W>, ConfigError> {
        if !(-MAX_TOKENS..=MAX_TOKENS).contains(&n) {
            return Err(ConfigError::new("n", shown(n), "a number of tokens from -1e9 to 1e9"));
        }
        let now = self.turns.tick(now);
        let amount = nano_tokens(n.abs());
        if n > 0.0 {
            self.turns.room.add(now, amount);
        } else {
            self.turns.room.charge(now, amount);
        }
        Ok(self.turns.served(now))
    }

    /// Lets nobody take for so long, for whoever the bucket spares has asked for it by a
    /// `Retry-After`: the bucket is empty then, and fills from there. Of several pauses
    /// the one counts that ends last. A pause is of at most [`MAX_TOKENS`] of debt.
    pub fn pause(&mut self, now: Time, span: Duration) -> Wakes<W> {
        let now = self.turns.tick(now);
        self.turns.room.pause(now, span);
        self.turns.served(now)
    }

    /// After how long [`try_take`](Self::try_take) succeeds, and not a nanosecond
    /// earlier, if nobody else comes.
    ///
    /// Those who wait are supposed to take what is theirs as soon as it is there. Each
    /// of them may add a nanosecond, if a bucket that is full has to wait for it.
    ///
    /// # Errors
    /// If it asks for more than the burst.
    pub fn retry_after(&self, now: Time, ask: &TokenAsk) -> Result<Duration, ConfigError> {
        let Tokens { refill, contents, .. } = &self.turns.room;
        ask.check(refill)?;
        let now = now.max(self.turns.latest());
        Ok(contents.has_after(refill, now, self.turns.ready_cost(), ask.cost).since(now))
    }

    /// Changes the rate, the burst, or both; what is `None` stays, and a burst that
    /// was never chosen follows the rate. The tokens that are there stay, as far as
    /// they fit.
    ///
    /// Who waits for more than a lowered burst is served when the bucket is full, and
    /// leaves it in debt.
    ///
    /// # Errors
    /// If the values are not in the ranges of [`new`](Self::new).
    pub fn update(
        &mut self,
        now: Time,
        rate: Option<f64>,
        burst: Option<f64>,
    ) -> Result<Wakes<W>, ConfigError> {
        let now = self.turns.tick(now);
        let room = &mut self.turns.room;
        room.change(now, room.refill.with(rate, burst)?);
        Ok(self.turns.served(now))
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> BucketSnapshot {
        BucketSnapshot {
            rate: self.rate(),
            per: self.per(),
            burst: self.burst(),
            tokens: self.tokens(now),
            waiting: self.waiting(),
            oldest_wait: self.turns.oldest_wait(now),
            admitted: self.admitted,
            rejected: self.rejected,
            revoked: self.turns.revoked(),
        }
    }
}

/// The tokens of a bucket, as room for those who wait.
#[derive(Debug)]
struct Tokens {
    refill: Refill,
    contents: Contents,
    /// What grants took that may still be given up, as far as it would go back.
    ///
    /// If the bucket refills over it, so that it is fuller than it could be without
    /// the grant by less than the grant, the excess has lapsed: put back, it would
    /// come on top of what was refilled in its place.
    refundable: u64,
    /// The rest. Who gives up goes first here, and who claims last, so that never too
    /// much is put back.
    lapsed: u128,
}

impl Tokens {
    const fn new(refill: Refill) -> Self {
        Self { refill, contents: Contents::FULL, refundable: 0, lapsed: 0 }
    }

    /// Notes what has lapsed; before anything is taken or put back.
    #[inline]
    fn note_lapsed(&mut self, now: Time) {
        if self.refundable > 0 {
            let kept = self.refundable.min(self.contents.room(&self.refill, now));
            self.lapsed += u128::from(self.refundable - kept);
            self.refundable = kept;
        }
    }

    /// Notes that a grant of `cost` will not be given up any more.
    #[inline]
    fn settle(&mut self, cost: u64) {
        let settled = self.refundable.min(cost);
        self.refundable -= settled;
        self.lapsed = self.lapsed.saturating_sub(u128::from(cost - settled));
    }

    /// Puts back what is no grant.
    fn add(&mut self, now: Time, amount: u64) {
        self.note_lapsed(now);
        self.contents.put_back(&self.refill, amount);
    }

    /// Takes what is no grant.
    fn charge(&mut self, now: Time, amount: u64) {
        self.take(now, amount);
        self.settle(amount);
    }

    /// Takes as much as comes until then, and what is there.
    fn pause(&mut self, now: Time, span: Duration) {
        let lacking = self.refill.gained_within(span).saturating_add(self.refill.whole());
        let amount = lacking.saturating_sub(self.contents.room(&self.refill, now));
        if amount > 0 {
            self.charge(now, amount);
        }
    }

    fn change(&mut self, now: Time, refill: Refill) {
        self.note_lapsed(now);
        self.contents = self.contents.convert(now, &self.refill, &refill);
        self.refill = refill;
    }

    /// Gives all grants up.
    fn reset(&mut self) {
        self.contents.put_back(&self.refill, self.refundable);
        (self.refundable, self.lapsed) = (0, 0);
    }
}

impl Room for Tokens {
    #[inline]
    fn has_room(&self, now: Time, cost: u64) -> bool {
        self.contents.has(&self.refill, now, cost)
    }

    #[inline]
    fn take(&mut self, now: Time, cost: u64) {
        self.note_lapsed(now);
        self.contents.take(&self.refill, now, cost);
        self.refundable += cost;
    }

    fn put_back(&mut self, now: Time, cost: u64) {
        self.note_lapsed(now);
        let lapsed = self.lapsed.min(cost.into());
        self.lapsed -= lapsed;
        let refunded = self.refundable.min(cost - u64::try_from(lapsed).unwrap_or(cost));
        self.refundable -= refunded;
        self.contents.put_back(&self.refill, refunded);
    }

    fn room_at(&self, cost: u64) -> Option<Time> {
        Some(self.contents.has_at(&self.refill, cost))
    }
}

impl<W> Waitable<W> for TokenBucket<W> {
    fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.turns.cancel(now, ticket, &mut wakes);
        wakes
    }

    fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.turns.unreached(now, ticket, waiter, &mut wakes);
        wakes
    }

    fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.rejected[Reason::Wait.index()] += self.turns.expire(now, home, &mut wakes);
        wakes
    }

    fn next_expiry(&self) -> Option<Time> {
        self.turns.next_expiry()
    }

    #[inline]
    fn needs_time(&self) -> bool {
        true
    }

    fn latest(&self) -> Time {
        self.turns.latest()
    }

    fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        self.turns.renew(ticket, waiter)
    }

    fn waits(&self, home: Home) -> bool {
        self.turns.waits(home)
    }

    fn has_unclaimed(&self, home: Option<Home>) -> bool {
        self.turns.has_unclaimed(home)
    }

    fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a,
    {
        self.turns.waiters()
    }

    fn take_waiters(&mut self) -> Vec<W> {
        self.turns.take_waiters()
    }

    /// Tickets given so far are worth nothing. What was taken stays taken.
    fn reset(&mut self) -> Vec<W> {
        self.turns.room.reset();
        self.turns.clear()
    }
}
