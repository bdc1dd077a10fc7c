use std::time::Duration;

use super::line::{Arrival, Line, Standing};
use super::slots::Slots;
use super::{
    ConfigError, Criticality, Home, MAX_COST, Outcome, Permit, Reason, Rejection, Ticket, Time,
    Wakes,
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
    /// given a new waiter by [`SemaphoreLimiter::renew`].
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
    slots: Slots,
    line: Line<W>,
    now: Time,
    /// Which life this is; permits of an earlier one release nothing.
    epoch: u32,
    admitted: u64,
    rejected: [u64; 12],
    outcomes: [u64; 3],
    revoked: u64,
    stray_releases: u64,
}

impl<W> SemaphoreLimiter<W> {
    /// A limiter of `limit` units, fractions allowed.
    ///
    /// # Errors
    /// If `limit` is not above 0 and at most [`MAX_LIMIT`](super::MAX_LIMIT).
    pub fn new(limit: f64) -> Result<Self, ConfigError> {
        Ok(Self {
            slots: Slots::new(limit)?,
            line: Line::new(),
            now: Time::ZERO,
            epoch: 0,
            admitted: 0,
            rejected: [0; 12],
            outcomes: [0; 3],
            revoked: 0,
            stray_releases: 0,
        })
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.slots.limit()
    }

    /// The cost in flight, granted and unclaimed included.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.slots.in_flight()
    }

    /// How many wait in line.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.line.waiting()
    }

    /// In flight / limit; 1 if the limit is 0.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        self.slots.saturation()
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
        !self.line.is_empty()
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
            cost: ask.cost,
            now: self.now,
            bound: ask.max_wait.map(|span| self.now.after(span)),
        };
        Admission::Waiting(self.line.join(arrival, waiter))
    }

    /// Asks what a ticket is worth, after its wake or at any other time.
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (Claim, Wakes<W>) {
        let now = self.tick(now);
        let mut wakes = Wakes::none();
        // Whoever claims is not blocked, so that its neighbours may be next.
        let is_revived = self.line.show_alive_at(ticket);
        let mut standing = self.line.claim(ticket, &mut wakes);
        if let Standing::Waiting { granted_before } = standing {
            self.serve(now, &mut wakes);
            self.line.show_alive_at(ticket);
            if granted_before {
                self.take_over(now, ticket, &mut wakes);
            }
            standing = self.line.claim(ticket, &mut wakes);
        } else if is_revived {
            self.serve(now, &mut wakes);
        }
        let claim = match standing {
            Standing::Granted { cost, joined } => {
                Claim::Admitted(self.permit(cost, now.as_nanos().saturating_sub(joined.as_nanos())))
            }
            Standing::Waiting { .. } => Claim::Waiting,
            Standing::Refused { reason, criticality } => {
                Claim::Rejected(self.rejection(reason, criticality))
            }
            Standing::Unknown => {
                Claim::Rejected(self.reject(Reason::Closed, Criticality::default()))
            }
        };
        (claim, wakes)
    }

    /// Gives a ticket that goes on waiting something to be woken with, and returns
    /// what it had before.
    ///
    /// # Errors
    /// Hands it back if the ticket no longer waits: claim it again.
    pub fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        self.line.renew(ticket, waiter)
    }

    /// Gives a ticket up. If it was granted meanwhile, the next one gets it.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
        let now = self.tick(now);
        let mut wakes = Wakes::none();
        if let Standing::Granted { cost, .. } = self.line.leave(ticket, &mut wakes) {
            self.slots.put_back(cost);
        }
        self.serve(now, &mut wakes);
        wakes
    }

    /// Notes that the wake of a ticket could not be delivered although its home is
    /// there. Others go first; after [`CLAIM_PATIENCE`](super::CLAIM_PATIENCE) it
    /// is tried again.
    pub fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
        let now = self.tick(now);
        let mut wakes = Wakes::none();
        match self.line.unreached(now, ticket, waiter) {
            Ok(cost) => self.slots.put_back(cost.unwrap_or(0)),
            Err(waiter) => wakes.discard(Some(waiter)),
        }
        self.serve(now, &mut wakes);
        wakes
    }

    /// Gives a permit back; a permit from before a [`reset`](Self::reset) gives
    /// nothing back.
    #[allow(clippy::needless_pass_by_value)] // given back is gone
    pub fn release(&mut self, now: Time, permit: Permit, outcome: Outcome) -> Wakes<W> {
        if permit.epoch != self.epoch {
            return Wakes::none();
        }
        let now = self.tick(now);
        self.slots.finish(now, permit.cost, permit.started);
        self.outcomes[outcome.index()] += 1;
        self.served(now)
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
        let now = self.tick(now);
        self.slots.set_limit(now, limit)?;
        Ok(self.served(now))
    }

    /// Rejects those who have waited for as long as they may, takes back grants
    /// that nobody claims, and admits who can be admitted. `home` is where this
    /// runs, which shows that it is not blocked.
    pub fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
        let now = self.tick(now);
        if let Some(home) = home {
            self.line.show_alive(home);
        }
        let mut wakes = Wakes::none();
        loop {
            self.rejected[Reason::Wait.index()] += self.line.expire(now, &mut wakes);
            let revoked = self.revoked;
            self.serve(now, &mut wakes);
            // Whose grant is taken back here may have waited too long as well.
            if self.revoked == revoked {
                return wakes;
            }
        }
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
        (answer, self.served(self.now))
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        if self.line.is_empty() {
            return None;
        }
        let head = self.line.head();
        // After a wake that could not be delivered the head has room: overdue.
        if head.is_some_and(|head| self.slots.has_room(self.now, head.cost)) {
            return Some(self.now);
        }
        let rest = head.and_then(|_| self.slots.rests_until());
        self.line.next_expiry().into_iter().chain(rest).min().filter(|&at| at < Time::MAX)
    }

    /// Whether admitting, releasing and expiring depend on the time. If not, any
    /// earlier `now` does as well, and the reading of a clock can be saved. To
    /// join the line and to change the limit take the true time always.
    #[must_use]
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.slots.needs_time() || !self.line.is_empty()
    }

    /// The latest moment seen.
    #[must_use]
    pub const fn latest(&self) -> Time {
        self.now
    }

    /// Whether somebody at `home` waits in line.
    #[must_use]
    pub fn waits(&self, home: Home) -> bool {
        self.line.waits(home)
    }

    /// Whether somebody was granted or refused and has not come to hear it.
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        self.line.has_unclaimed()
    }

    /// What the waiters are woken with.
    pub fn waiters(&self) -> impl Iterator<Item = &W> {
        self.line.waiters()
    }

    /// Takes out what the waiters are woken with. They stay in line and are not
    /// woken any more.
    pub fn take_waiters(&mut self) -> Vec<W> {
        self.line.take_waiters()
    }

    /// Begins anew: nobody waits, nothing is in flight, and tickets and permits
    /// given so far are worth nothing. For the child after a fork.
    #[must_use = "the waiters are to be dropped outside the lock"]
    pub fn reset(&mut self) -> Vec<W> {
        self.epoch = self.epoch.wrapping_add(1);
        self.slots.reset();
        self.line.clear()
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        Snapshot {
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            oldest_wait: self.line.oldest_wait(now.max(self.now)),
            saturation: self.saturation(),
            admitted: self.admitted,
            rejected: self.rejected,
            outcomes: self.outcomes,
            revoked: self.revoked,
            stray_releases: self.stray_releases,
        }
    }

    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// [`try_acquire`](Self::try_acquire) for somebody who goes on to wait:
    /// counts no rejection.
    #[inline]
    pub fn admit(&mut self, now: Time, ask: &Ask) -> Option<Permit> {
        let now = self.tick(now);
        if let Some(home) = ask.home {
            self.line.show_alive(home);
        }
        if self.line.is_waiting(ask.criticality) {
            return None;
        }
        while !self.slots.has_room(now, ask.cost) {
            let cost = self.line.revoke_stale_for(now, ask.home?)?;
            self.slots.put_back(cost);
            self.revoked += 1;
        }
        self.slots.take(ask.cost);
        Some(self.permit(ask.cost, 0))
    }

    #[inline]
    fn permit(&mut self, cost: u32, waited: u64) -> Permit {
        self.admitted += 1;
        Permit { cost, epoch: self.epoch, started: self.now, waited }
    }

    fn reject(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        self.rejected[reason.index()] += 1;
        self.rejection(reason, criticality)
    }

    fn rejection(&self, reason: Reason, criticality: Criticality) -> Rejection {
        Rejection {
            reason,
            retry_after: None,
            criticality,
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
        }
    }

    fn served(&mut self, now: Time) -> Wakes<W> {
        let mut wakes = Wakes::none();
        if !self.line.is_empty() {
            self.serve(now, &mut wakes);
        }
        wakes
    }

    /// Grants turns while there is room and somebody who could answer.
    fn serve(&mut self, now: Time, wakes: &mut Wakes<W>) {
        while let Some(head) = self.line.head() {
            if self.slots.has_room(now, head.cost) {
                self.slots.take(head.cost);
                wakes.extend(self.line.grant(head, now));
            } else if let Some(cost) = self.line.revoke_stale(now) {
                self.slots.put_back(cost);
                self.revoked += 1;
            } else {
                break;
            }
        }
    }

    /// Lets a late claimer who is the head have what younger ones elsewhere were
    /// granted and have not claimed: whoever comes first. So homes that are all
    /// slow still make progress.
    fn take_over(&mut self, now: Time, ticket: Ticket, wakes: &mut Wakes<W>) {
        let Some(head) = self.line.head_if(ticket) else {
            return;
        };
        while !self.slots.has_room(now, head.cost) {
            let Some(freed) = self.line.revoke_for(head) else {
                return;
            };
            self.slots.put_back(freed);
            self.revoked += 1;
        }
        self.slots.take(head.cost);
        // Whoever claims is awake.
        wakes.discard(self.line.grant(head, now).map(|wake| wake.waiter));
    }
}
