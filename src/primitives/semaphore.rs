use std::time::Duration;

use super::line::Arrival;
use super::slots::Slots;
use super::turns::{Room, Turn, Turns};
use super::{
    ConfigError, Criticality, Home, MAX_COST, Outcome, Permit, Reason, Rejection, Ticket, Time,
    Waitable, Wakes,
};

/// What somebody asks of a limiter.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    cost: u32,
    /// How much the work matters.
    pub criticality: Criticality,
    /// How long it may wait in line; `None` is without bound.
    pub max_wait: Option<Duration>,
    /// Who asks, if that is known; needed to wait.
    pub home: Option<Home>,
}

impl Ask {
    /// Asks for `cost` units, critical, from an unknown home, to wait without
    /// bound.
    ///
    /// # Errors
    /// If `cost` is 0 or above [`MAX_COST`].
    pub fn new(cost: u32) -> Result<Self, ConfigError> {
        if (1..=MAX_COST).contains(&cost) {
            Ok(Self { cost, ..Self::one() })
        } else {
            Err(ConfigError::new("cost", cost, "an integer from 1 to 1e9"))
        }
    }

    /// The same for one unit.
    #[must_use]
    pub const fn one() -> Self {
        Self { cost: 1, criticality: Criticality::Critical, max_wait: None, home: None }
    }

    /// How many units of the limit the work occupies.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }
}

/// The answer to [`SemaphoreLimiter::acquire`].
#[derive(Debug)]
pub enum Admission {
    /// In flight now.
    Admitted(Permit),
    /// In line; a [`Wake`](super::Wake) says when to claim.
    Waiting(Ticket),
    /// Neither.
    Rejected(Rejection),
}

/// The answer to [`SemaphoreLimiter::claim`].
#[derive(Debug)]
pub enum Claim {
    /// In flight now.
    Admitted(Permit),
    /// The grant was given to somebody else meanwhile; still in line, and to be
    /// given a new waiter by [`Waitable::renew`].
    Waiting,
    /// Not admitted.
    Rejected(Rejection),
}

/// The state of a limiter at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The limit.
    pub limit: f64,
    /// The cost in flight.
    pub in_flight: u64,
    /// How many wait in line.
    pub waiting: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
    /// In flight / limit; 1 if the limit is 0.
    pub saturation: f64,
    /// How many permits were given since the start.
    pub admitted: u64,
    /// How many were rejected, by [`Reason::index`].
    pub rejected: [u64; 12],
    /// How many permits were given back, by [`Outcome::index`].
    pub outcomes: [u64; 3],
    /// How many grants were taken back because nobody came to claim them.
    pub revoked: u64,
    /// How many releases came for a permit that had been given back already.
    pub stray_releases: u64,
}

/// A fixed limit on how much is in flight, with a waiting line.
///
/// - At most `limit` units are in flight. A cost above the limit runs alone; a
///   limit below 1 admits one at a time with a rest in between (`(1 / limit −
///   1)` × the last service time).
/// - The line is served by criticality, then by age, and the head is never
///   overtaken by those behind it, so that a large cost is not starved by small
///   ones.
/// - A grant is claimed by ticket. One that is not claimed within
///   [`CLAIM_PATIENCE`](super::CLAIM_PATIENCE), since its event loop is blocked
///   or gone, goes to whoever waits elsewhere.
///
/// `W` is whatever the caller wakes a waiter with. `now` may stand still or jump
/// back: the latest moment seen counts.
#[derive(Debug)]
pub struct SemaphoreLimiter<W> {
    turns: Turns<Slots, W>,
    /// Which life this is; permits of an earlier one release nothing.
    epoch: u32,
    admitted: u64,
    rejected: [u64; 12],
    outcomes: [u64; 3],
    stray_releases: u64,
}

impl<W> SemaphoreLimiter<W> {
    /// A limiter of `limit` units, fractions allowed.
    ///
    /// # Errors
    /// If `limit` is not above 0 and at most [`MAX_LIMIT`](super::MAX_LIMIT).
    pub fn new(limit: f64) -> Result<Self, ConfigError> {
        Ok(Self {
            turns: Turns::new(Slots::new(limit)?),
            epoch: 0,
            admitted: 0,
            rejected: [0; 12],
            outcomes: [0; 3],
            stray_releases: 0,
        })
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.turns.room.limit()
    }

    /// The cost in flight, granted and unclaimed included.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.turns.room.in_flight()
    }

    /// How many wait in line.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// In flight / limit; 1 if the limit is 0.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        self.turns.room.saturation()
    }

    /// Admits now or rejects now, with [`Reason::Limit`].
    ///
    /// It never overtakes a waiter of the same or higher criticality whose home
    /// is not blocked.
    ///
    /// # Errors
    /// If there is no room.
    #[inline]
    pub fn try_acquire(&mut self, now: Time, ask: &Ask) -> Result<Permit, Rejection> {
        match self.admit(now, ask) {
            Some(permit) => Ok(permit),
            None => Err(self.reject(Reason::Limit, ask.criticality)),
        }
    }

    /// Whether the answer may depend on where an ask comes from: whoever asks
    /// shows that its home is not blocked, and grants that stand unclaimed in
    /// other homes may be stale.
    #[must_use]
    #[inline]
    pub fn is_home_wanted(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Admits now, or joins the line with `waiter`, which is taken only then:
    /// what is left is for the caller to drop outside the lock.
    ///
    /// Rejects with [`Reason::Wait`] if it may not wait at all, has no home or no
    /// waiter.
    pub fn acquire(&mut self, now: Time, ask: &Ask, waiter: &mut Option<W>) -> Admission {
        if let Some(permit) = self.admit(now, ask) {
            return Admission::Admitted(permit);
        }
        let home = ask.home.filter(|_| ask.max_wait != Some(Duration::ZERO));
        let Some((home, waiter)) = home.and_then(|home| Some((home, waiter.take()?))) else {
            return Admission::Rejected(self.reject(Reason::Wait, ask.criticality));
        };
        let arrival = Arrival {
            home,
            criticality: ask.criticality,
            cost: u64::from(ask.cost),
            now: self.turns.latest(),
            bound: ask.max_wait.map(|span| self.turns.latest().after(span)),
            bound_reason: Reason::Wait,
        };
        Admission::Waiting(self.turns.join(arrival, waiter))
    }

    /// Asks what a ticket is worth, after its wake or at any other time.
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<W>) {
        let mut wakes = Wakes::none();
        let claim = match self.turns.claim(now, ticket, &mut wakes) {
            Turn::Granted { cost, waited } => Claim::Admitted(self.permit(
                u32::try_from(cost).unwrap_or(MAX_COST),
                u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            )),
            Turn::Waiting => Claim::Waiting,
            Turn::Refused { reason, criticality } => {
                Claim::Rejected(self.rejection(reason, criticality))
            }
            Turn::Unknown => Claim::Rejected(self.reject(Reason::Closed, Criticality::default())),
        };
        (claim, wakes)
    }

    /// Gives a permit back; a permit from before a [`reset`](Self::reset) gives
    /// nothing back.
    #[allow(clippy::needless_pass_by_value)] // given back is gone
    pub fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<W> {
        if !self.is_of_this_life(&permit) {
            return Wakes::none();
        }
        let now = self.turns.tick(now);
        self.turns.room.finish(now, permit.cost, permit.started);
        self.outcomes[outcome.index()] += 1;
        self.turns.served(now)
    }

    /// Whether a permit is from after the last [`reset`](Self::reset).
    pub(crate) const fn is_of_this_life(&self, permit: &Permit) -> bool {
        permit.epoch == self.epoch
    }

    /// Takes back what was not used, as if it had never been given; for somebody at whose
    /// semaphore nobody waits.
    #[allow(clippy::needless_pass_by_value)] // given back is gone
    pub(crate) fn annul(&mut self, now: Time, permit: Permit) {
        let now = self.turns.tick(now);
        self.turns.room.put_back(now, u64::from(permit.cost));
        self.admitted = self.admitted.saturating_sub(1);
    }

    /// When there is room by the mere passing of time.
    pub(crate) fn room_at(&self) -> Option<Time> {
        self.turns.room.room_at(1)
    }

    /// Counts a release that came twice; for callers whose permits are shared.
    pub fn count_stray_release(&mut self) {
        self.stray_releases += 1;
    }

    /// Changes the limit. A raised one admits at once whom it makes room for; a
    /// lowered one admits nobody until enough has drained; 0 admits nobody.
    ///
    /// # Errors
    /// If `limit` is not from 0 to [`MAX_LIMIT`](super::MAX_LIMIT).
    pub fn update(&mut self, now: Time, limit: f64) -> Result<Wakes<W>, ConfigError> {
        self.set_limit(now, limit)?;
        Ok(self.turns.served(now))
    }

    /// [`update`](Self::update) for somebody who goes on to serve: admits nobody.
    pub(crate) fn set_limit(&mut self, now: Time, limit: f64) -> Result<(), ConfigError> {
        let now = self.turns.tick(now);
        self.turns.room.set_limit(now, limit)
    }

    /// [`try_acquire`](Self::try_acquire) for somebody who finds others in line, and
    /// serves them first if that is overdue.
    ///
    /// # Errors
    /// If there is no room.
    pub fn try_acquire_behind(
        &mut self,
        now: Time,
        ask: &Ask,
    ) -> (Result<Permit, Rejection>, Wakes<W>) {
        let answer = self.try_acquire(now, ask);
        (answer, self.serve())
    }

    /// Serves those in line whose turn is overdue.
    pub(crate) fn serve(&mut self) -> Wakes<W> {
        self.turns.served(self.turns.latest())
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        Snapshot {
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            oldest_wait: self.turns.oldest_wait(now),
            saturation: self.saturation(),
            admitted: self.admitted,
            rejected: self.rejected,
            outcomes: self.outcomes,
            revoked: self.turns.revoked(),
            stray_releases: self.stray_releases,
        }
    }

    /// [`try_acquire`](Self::try_acquire) for somebody who goes on to wait:
    /// counts no rejection.
    #[inline]
    pub fn admit(&mut self, now: Time, ask: &Ask) -> Option<Permit> {
        let is_admitted = self.turns.admit(now, ask.home, ask.criticality, u64::from(ask.cost));
        is_admitted.then(|| self.permit(ask.cost, 0))
    }

    #[inline]
    fn permit(&mut self, cost: u32, waited: u64) -> Permit {
        self.admitted += 1;
        let in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        let empty = Permit::empty(self.epoch, self.turns.latest());
        Permit { cost, in_flight, waited, ..empty }
    }

    fn reject(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        self.rejected[reason.index()] += 1;
        self.rejection(reason, criticality)
    }

    fn rejection(&self, reason: Reason, criticality: Criticality) -> Rejection {
        Rejection {
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            ..Rejection::new(reason, criticality)
        }
    }
}

impl<W> Waitable<W> for SemaphoreLimiter<W> {
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
        self.turns.room.needs_time() || !self.turns.is_empty()
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

    /// Tickets and permits given so far are worth nothing.
    fn reset(&mut self) -> Vec<W> {
        self.epoch = self.epoch.wrapping_add(1);
        self.turns.room.reset();
        self.turns.clear()
    }
}
