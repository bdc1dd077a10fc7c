//! Admission as one call: a limit, a waiting line, deadlines, criticality, a reserve and a
//! rate, decided together.
//!
//! The parts are apart: `limit` is what the limit follows, `reserve` what is kept for the
//! critical, the line is a [`CoDelQueue`] of seats, `seats` says what came of a ticket, and
//! `shadow` finds out what would have been done while everybody is admitted.

mod config;
mod limit;
mod refusals;
mod reserve;
mod sampling;
mod seats;
mod shadow;
mod shedding;
mod snapshot;

use std::time::Duration;

pub use config::{GateConfig, MAX_WAIT};
pub use limit::GateLimit;
pub use reserve::Reserve;
pub use snapshot::GateSnapshot;

use limit::Limit;
use refusals::Refusals;
use sampling::Sampling;
use seats::{Comer, Grant, Seats, State};
use shadow::Departures;
use shedding::{Shedding, priority_of};

use super::{
    Ask, CLAIM_PATIENCE, CoDelQueue, ConfigError, Criticality, Home, ItemId, News, Offer, Outcome,
    Permit, Position, Priority, QueueConfig, Reason, Rejecting, Rejection, Taken, Ticket, Time,
    Waitable, Wakes, random::Random,
};

/// What somebody asks of a [`Gate`].
#[derive(Clone, Copy, Debug)]
pub struct GateAsk<'a> {
    /// How much of the limit, how critical, and where from.
    pub ask: Ask,
    /// When nobody wants the answer any more.
    pub deadline: Option<Time>,
    /// How much of the rate; finite and 0 or more.
    pub tokens: f64,
    /// Where the caller stands among those who are as critical, if he is known.
    pub position: Option<Position>,
    /// What kind of work it is.
    pub operation: Option<&'a str>,
}

impl GateAsk<'_> {
    /// Asks for one unit and one token, critical, without a deadline.
    #[must_use]
    pub const fn one() -> Self {
        Self { ask: Ask::one(), deadline: None, tokens: 1.0, position: None, operation: None }
    }

    fn offer(&self, until: Option<Time>) -> Offer<'_> {
        Offer {
            criticality: self.ask.criticality,
            deadline: self.deadline,
            until,
            operation: self.operation,
        }
    }
}

/// A rate at which a gate admits, such as a [`TokenBucket`](super::TokenBucket).
pub trait Rate {
    /// Takes so much now.
    ///
    /// # Errors
    /// If there is less: when it is worth coming back.
    fn take(&mut self, now: Time, tokens: f64) -> Result<(), Duration>;

    /// Takes back what was taken for somebody who was rejected after all.
    fn give_back(&mut self, now: Time, tokens: f64);
}

/// No rate.
impl Rate for () {
    fn take(&mut self, _now: Time, _tokens: f64) -> Result<(), Duration> {
        Ok(())
    }

    fn give_back(&mut self, _now: Time, _tokens: f64) {}
}

/// The answer to [`Gate::acquire`].
#[derive(Debug)]
pub enum GateAdmission {
    /// In flight now.
    Admitted(Permit),
    /// In line; a [`Wake`](super::Wake) says when to claim.
    Waiting(Ticket),
    /// Neither.
    Rejected(Rejection),
}

/// The answer to [`Gate::claim`].
#[derive(Debug)]
pub enum GateClaim {
    /// In flight from now on.
    Admitted(Permit),
    /// Still in line, and to be given a new waiter by [`Waitable::renew`].
    Waiting,
    /// Not admitted.
    Rejected(Rejection),
    /// The ticket is of no wait: it was cancelled, or is of before a fork.
    Unknown,
}

/// What is decided about somebody who comes.
enum Decision {
    Admitted(Permit),
    /// There is no room now, and he may wait until then.
    Line(Option<Time>),
    Rejected(Rejection),
}

/// A limit, a waiting line, deadlines, criticality, a reserve and a rate behind one call.
///
/// What is asked, in this order, each because what comes after it would be in vain: whether
/// it is closed, the deadline has passed, the rate allows it, there is room (without what is
/// kept for the more critical), it may wait, and it can still be in time then.
///
/// - Nobody overtakes a waiter of the same or higher criticality who could answer.
/// - The line is a [`CoDelQueue`]: by criticality, the oldest first, and while it is standing
///   the newest; nobody waits for what cannot be in time any more.
/// - What is in flight never exceeds the limit, or the cost of one that runs alone.
/// - A grant is claimed by ticket. One that is not claimed within [`CLAIM_PATIENCE`], since
///   its event loop is blocked, goes to whoever waits elsewhere; those who wait there are set
///   aside until one of them moves again.
///
/// `W` is whatever the caller wakes a waiter with. `now` may stand still or jump back: the
/// latest moment seen counts.
#[derive(Debug)]
pub struct Gate<W> {
    config: GateConfig,
    limit: Limit,
    queue: CoDelQueue<u32>,
    seats: Seats<W>,
    /// What is in flight of each criticality.
    in_flight: [u64; 4],
    /// Whose grants went stale, and has not moved since.
    blocked: Vec<Home>,
    aside: Vec<u32>,
    /// When those are tried again who could not be reached.
    retry_at: Option<Time>,
    drains: Vec<Drain<W>>,
    next_drain: u64,
    departures: Departures,
    is_dry_run: bool,
    /// For tests: why everybody is rejected.
    forced: Option<(Reason, Duration)>,
    is_closed: bool,
    sampling: Sampling,
    shedding: Shedding,
    random: Random,
    /// Which life this is; permits of an earlier one release nothing.
    epoch: u32,
    now: Time,
    /// What of the rate is to be given back.
    owed: f64,
    /// How much time callers give who say so, on the mean.
    given: Option<Duration>,
    admitted: u64,
    refusals: Refusals,
    outcomes: [u64; 3],
    revoked: u64,
    stray_releases: u64,
}

/// Somebody who waits until nothing is in flight.
#[derive(Debug)]
struct Drain<W> {
    serial: u64,
    home: Home,
    until: Option<Time>,
    /// When he is told that it is over: later than that, if he could not be reached.
    due: Option<Time>,
    waiter: Option<W>,
}

/// The weight of the callers before against that of the next.
const MEMORY: u32 = 16;

/// Tickets of those who wait for the end are told apart by this key.
const DRAINS: u32 = u32::MAX;

impl<W> Gate<W> {
    /// An open gate.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(config: GateConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let limit = Limit::new(&config.limit)?;
        let capacity = config.capacity(limit.value(), Duration::ZERO, Duration::ZERO);
        Ok(Self {
            limit,
            queue: CoDelQueue::new(QueueConfig::new(capacity))?,
            seats: Seats::new(),
            in_flight: [0; 4],
            blocked: Vec::new(),
            aside: Vec::new(),
            retry_at: None,
            drains: Vec::new(),
            next_drain: 1,
            departures: Departures::new(),
            is_dry_run: false,
            forced: None,
            is_closed: false,
            sampling: Sampling::new(config.seed),
            shedding: Shedding::new(config.has_pressure, config.sheds_by_line),
            random: Random::new(config.seed),
            epoch: 0,
            now: Time::ZERO,
            owed: 0.0,
            given: None,
            admitted: 0,
            refusals: Refusals::new(config.seed),
            outcomes: [0; 3],
            revoked: 0,
            stray_releases: 0,
            config,
        })
    }

    /// The limit, with its fraction.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit.value()
    }

    /// Why it is what it is.
    #[must_use]
    pub fn because(&self) -> String {
        self.limit.because()
    }

    /// The same in figures, if it follows latency.
    #[must_use]
    pub fn estimate(&self) -> Option<(super::gradient::Because, super::GradientConfig)> {
        self.limit.estimate()
    }

    /// The cost in flight, granted and unclaimed included; in a dry run, of what would be.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.limit.in_flight()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.depth() + self.aside.len()
    }

    /// In flight / limit; 1 if the limit is 0.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        self.limit.saturation()
    }

    /// Whether it is closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the answer may depend on where an ask comes from: whoever asks shows that
    /// its home is not blocked, and grants that stand unclaimed elsewhere may be stale.
    #[must_use]
    #[inline]
    pub fn is_home_wanted(&self) -> bool {
        !self.seats.is_empty()
    }

    /// Admits now or rejects now.
    ///
    /// It never overtakes a waiter of the same or higher criticality who could answer.
    ///
    /// # Errors
    /// If it is not admitted: [`Reason::Closed`], [`Reason::Deadline`], [`Reason::Rate`] or
    /// [`Reason::Limit`].
    pub fn try_acquire(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        rate: &mut dyn Rate,
    ) -> (Result<Permit, Rejection>, Wakes<W>) {
        let mut wakes = Wakes::none();
        let answer = match self.decide(now, ask, false, rate, &mut wakes) {
            Decision::Admitted(permit) => Ok(permit),
            Decision::Rejected(rejection) => Err(rejection),
            // Is decided for who may not wait.
            Decision::Line(_) => Err(self.reject(Reason::Limit, ask.ask.criticality)),
        };
        (answer, wakes)
    }

    /// Admits now if nobody waits, and decides nothing else: for who goes on to ask
    /// otherwise.
    #[inline]
    pub fn admit(&mut self, now: Time, ask: &GateAsk<'_>, rate: &mut dyn Rate) -> Option<Permit> {
        let is_open = !self.is_closed && !self.is_dry_run && self.forced.is_none();
        if !is_open || !self.seats.is_empty() {
            return None;
        }
        let now = self.tick(now);
        if ask.deadline.is_some_and(|deadline| deadline <= now) || !self.is_room_for(&ask.ask) {
            return None;
        }
        // Else it is to be told why it is rejected.
        if self.shedding.is_by_pressure() {
            return None;
        }
        if rate.take(now, ask.tokens).is_err() {
            return None;
        }
        let permit = self.begin(ask);
        if permit.is_none() {
            rate.give_back(now, ask.tokens);
        }
        permit
    }

    /// Decides what can be decided without a place to wait at: whether there is room, or
    /// somebody is rejected at once. `None` if he has to wait, or it depends on where he is.
    pub fn attempt(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        rate: &mut dyn Rate,
    ) -> (Option<Result<Permit, Rejection>>, Wakes<W>) {
        let mut wakes = Wakes::none();
        if !self.blocked.is_empty() {
            return (None, wakes);
        }
        let answer = match self.decide(now, ask, true, rate, &mut wakes) {
            Decision::Admitted(permit) => Some(Ok(permit)),
            Decision::Rejected(rejection) => Some(Err(rejection)),
            Decision::Line(until) => {
                // Asked again, it is taken again.
                rate.give_back(self.now, ask.tokens);
                self.fit();
                let is_full = !self.queue.has_room_for(&ask.offer(until));
                let is_stale = self.seats.oldest_grant().is_some();
                if is_full && !is_stale {
                    self.shedding.note_rejected(Reason::Full);
                    Some(Err(self.reject(Reason::Full, ask.ask.criticality)))
                } else {
                    None
                }
            }
        };
        (answer, wakes)
    }

    /// Admits and counts nothing but that.
    pub fn admit_uncounted(&mut self) -> Permit {
        self.admitted += 1;
        Permit::empty(self.epoch.wrapping_sub(1), self.now)
    }

    /// Admits now, or joins the line with `waiter`, which is taken only then: what is left
    /// is for the caller to drop outside the lock.
    ///
    /// Rejected is besides with [`Reason::Full`], and who waits may be later with
    /// [`Reason::Wait`], [`Reason::Deadline`] or [`Reason::Evicted`].
    pub fn acquire(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        rate: &mut dyn Rate,
        waiter: &mut Option<W>,
    ) -> (GateAdmission, Wakes<W>) {
        let mut wakes = Wakes::none();
        let may_wait = ask.ask.home.is_some() && waiter.is_some();
        let admission = match self.decide(now, ask, may_wait, rate, &mut wakes) {
            Decision::Admitted(permit) => GateAdmission::Admitted(permit),
            Decision::Rejected(rejection) => GateAdmission::Rejected(rejection),
            Decision::Line(until) => {
                let comer = self.comer(ask);
                let ticket = self.seats.take(comer);
                match self.join(ask, until, ticket, &mut wakes) {
                    Ok(()) => {
                        if let Some(permit) = self.take_grant(ticket, &mut wakes) {
                            return (GateAdmission::Admitted(permit), wakes);
                        }
                        if let Some(seat) = self.seats.find(ticket) {
                            seat.waiter = waiter.take();
                        }
                        GateAdmission::Waiting(ticket)
                    }
                    Err(rejection) => {
                        let seat = self.seats.leave(ticket, &mut wakes);
                        self.owed += seat.map_or(0.0, |seat| seat.tokens);
                        GateAdmission::Rejected(rejection)
                    }
                }
            }
        };
        (admission, wakes)
    }

    /// Asks what a ticket is worth, after its wake or at any other time.
    pub fn claim(&mut self, now: Time, ticket: Ticket) -> (GateClaim, Wakes<W>) {
        let mut wakes = Wakes::none();
        self.look(now, &mut wakes);
        let Some(home) = self.seats.find(ticket).map(|seat| seat.home) else {
            return (GateClaim::Unknown, wakes);
        };
        self.show_alive(home, &mut wakes);
        let is_late = |gate: &mut Self| {
            let seat = gate.seats.find(ticket);
            seat.is_some_and(|seat| seat.is_late && matches!(seat.state, State::Waiting(_)))
        };
        if is_late(self) {
            self.take_over(ticket, &mut wakes);
        }
        let claim = match self.seats.find(ticket).map(|seat| &seat.state) {
            Some(State::Waiting(_) | State::Aside(_)) => GateClaim::Waiting,
            Some(State::Granted(..)) => match self.take_grant(ticket, &mut wakes) {
                Some(permit) => GateClaim::Admitted(permit),
                None => GateClaim::Unknown,
            },
            Some(State::Refused(_)) => match self.seats.leave(ticket, &mut wakes) {
                Some(seat) => match seat.state {
                    State::Refused(rejection) => GateClaim::Rejected(*rejection),
                    _ => GateClaim::Unknown,
                },
                None => GateClaim::Unknown,
            },
            Some(State::Shadow(_)) | None => GateClaim::Unknown,
        };
        (claim, wakes)
    }

    /// Gives a permit back and learns from it, by the name of what it was for; a permit
    /// from before a [`reset`](Waitable::reset) gives nothing back.
    pub fn release(
        &mut self,
        now: Time,
        permit: Permit,
        operation: Option<&str>,
        outcome: Outcome,
    ) -> Wakes<W> {
        let mut wakes = Wakes::none();
        if permit.epoch != self.epoch {
            return wakes;
        }
        let now = self.tick(now);
        self.outcomes[outcome.index()] += 1;
        self.refusals.note_done(now);
        match permit.shadow {
            None => self.end(now, permit, operation, outcome),
            Some(ticket) => self.depart(ticket, operation, outcome),
        }
        if !self.is_calm() {
            self.look(now, &mut wakes);
        }
        wakes
    }

    /// Takes back what was not used, as if it had never been given.
    pub fn annul(&mut self, now: Time, permit: Permit) -> Wakes<W> {
        let mut wakes = Wakes::none();
        if permit.epoch == self.epoch {
            self.tick(now);
            self.admitted = self.admitted.saturating_sub(1);
            match permit.shadow {
                None => self.take_back(permit),
                Some(ticket) => self.depart(ticket, None, Outcome::Ignored),
            }
            self.look(now, &mut wakes);
        }
        wakes
    }

    /// Counts a release that came twice; for callers whose permits are shared.
    pub fn count_stray_release(&mut self) {
        self.stray_releases += 1;
    }

    /// Changes what is given. A raised limit admits at once whom it makes room for; a
    /// lowered one admits nobody until enough has drained; 0 admits nobody. A limit that
    /// follows latency stays from then on.
    ///
    /// # Errors
    /// If one is out of its range; then nothing is changed.
    pub fn update(
        &mut self,
        now: Time,
        limit: Option<f64>,
        max_waiting: Option<usize>,
        max_wait: Option<Duration>,
    ) -> Result<Wakes<W>, ConfigError> {
        let mut wakes = Wakes::none();
        let config = GateConfig {
            max_waiting: max_waiting.or(self.config.max_waiting),
            max_wait: max_wait.or(self.config.max_wait),
            ..self.config.clone()
        };
        config.check()?;
        let now = self.tick(now);
        if let Some(limit) = limit {
            self.limit.set(now, limit)?;
        }
        self.config = config;
        self.fit();
        self.look(now, &mut wakes);
        Ok(wakes)
    }

    /// Begins or ends a dry run: everybody is admitted, and what would have been done is
    /// counted.
    pub fn set_dry_run(&mut self, now: Time, is_dry_run: bool) -> Wakes<W> {
        let mut wakes = Wakes::none();
        if self.is_dry_run && !is_dry_run {
            // So that what falls due now is counted, and nothing does while all go.
            self.look(now, &mut wakes);
            self.end_dry_run(&mut wakes);
        }
        self.is_dry_run = is_dry_run;
        self.look(now, &mut wakes);
        wakes
    }

    /// Rejects whoever comes from now on, for that reason and with that span, whatever room
    /// there is; for tests. `None`: no more.
    pub fn reject_all_who_come(&mut self, with: Option<(Reason, Duration)>) {
        self.forced = with;
    }

    /// Whether it admits everybody and only counts.
    #[must_use]
    pub const fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Rejects all who wait, and whoever comes, with [`Reason::Closed`]. What is in flight
    /// goes on.
    pub fn close(&mut self, now: Time) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.look(now, &mut wakes);
        self.is_closed = true;
        self.queue.reject_all(self.now, Reason::Closed);
        for key in std::mem::take(&mut self.aside) {
            let rejection = self.reject(Reason::Closed, self.criticality_at(key));
            self.refuse(key, rejection, &mut wakes);
        }
        self.look(now, &mut wakes);
        wakes
    }

    /// Waits with `waiter` until nothing is in flight, at most `until` then; `None` if
    /// nothing is.
    pub fn join_drain(
        &mut self,
        now: Time,
        home: Home,
        until: Option<Time>,
        waiter: &mut Option<W>,
    ) -> Option<Ticket> {
        self.tick(now);
        if self.is_idle() {
            return None;
        }
        let serial = self.next_drain;
        self.next_drain += 1;
        self.drains.push(Drain { serial, home, until, due: until, waiter: waiter.take() });
        Some(Ticket::new(DRAINS, serial))
    }

    /// Whether nothing is in flight any more, of a wait that is over: by that, or by its
    /// bound. `None` if it goes on.
    pub fn claim_drain(&mut self, now: Time, ticket: Ticket) -> (Option<bool>, Wakes<W>) {
        let mut wakes = Wakes::none();
        self.look(now, &mut wakes);
        let is_over = |drain: &Drain<W>| drain.until.is_some_and(|until| until <= self.now);
        let place = self.drains.iter().position(|drain| drain.serial == ticket.serial());
        let answer = match place {
            Some(_) if self.is_idle() => Some(true),
            Some(place) if is_over(&self.drains[place]) => Some(false),
            Some(_) => None,
            None => Some(self.is_idle()),
        };
        if let (Some(_), Some(place)) = (answer, place) {
            wakes.discard(self.drains.swap_remove(place).waiter);
        }
        (answer, wakes)
    }

    /// What of the rate is to be given back since the last call.
    pub fn take_owed(&mut self) -> f64 {
        std::mem::take(&mut self.owed)
    }

    /// Takes note of the highest pressure from outside: 1 is at its target.
    pub fn note_pressure(&mut self, pressure: f64) {
        self.shedding.note_pressure(pressure);
    }

    /// What there is to tell of rejections, until there is nothing more.
    pub fn news(&mut self) -> Option<Rejecting> {
        self.refusals.news(self.now)
    }

    /// Whether there is something to tell of rejections.
    #[must_use]
    #[inline]
    pub fn has_news(&self) -> bool {
        self.refusals.has_news(self.now)
    }

    /// Whether something of the rate is to be given back.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.owed > 0.0
    }

    /// The configuration, as it is now.
    #[must_use]
    pub const fn config(&self) -> &GateConfig {
        &self.config
    }

    /// The state at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> GateSnapshot {
        let now = now.max(self.now);
        let line = self.queue.snapshot(now);
        let aside = self.aside.iter().filter_map(|key| self.seats.at(*key));
        let aside = aside.map(|seat| now.since(seat.joined)).max().unwrap_or_default();
        GateSnapshot {
            limit: self.limit(),
            limit_because: self.limit.because(),
            estimate: self.limit.estimate(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            max_waiting: self.max_waiting(),
            oldest_wait: line.oldest_wait.max(aside),
            wait_bound: self.wait_bound(),
            service_mean: line.service_mean,
            service_p95: line.service_p95,
            threshold: self.shedding.level(),
            saturation: self.saturation(),
            admitted: self.admitted,
            rejected: *self.refusals.counts(),
            outcomes: self.outcomes,
            revoked: self.revoked,
            stray_releases: self.stray_releases,
            is_dry_run: self.is_dry_run,
            is_closed: self.is_closed,
        }
    }

    /// How many may wait now.
    fn max_waiting(&self) -> usize {
        if self.config.is_without_line() {
            return 0;
        }
        let mean = self.queue.service().mean();
        self.config.capacity(self.limit(), self.queue.given(), mean)
    }

    fn wait_bound(&self) -> Duration {
        if self.config.is_without_line() {
            return Duration::ZERO;
        }
        let bound = self.queue.wait_bound();
        self.config.max_wait.map_or(bound, |max_wait| max_wait.min(bound))
    }

    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Whether nobody waits for anything.
    #[inline]
    fn is_calm(&self) -> bool {
        self.seats.is_empty() && self.drains.is_empty() && self.departures.is_empty()
    }

    /// Whether nothing is in flight.
    fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Lets go what is over, and serves those in line.
    fn look(&mut self, now: Time, wakes: &mut Wakes<W>) {
        let now = self.tick(now);
        self.let_depart(now);
        self.queue.expire(now);
        self.hear(wakes);
        self.serve(wakes);
        if self.is_idle() {
            for drain in &mut self.drains {
                let ticket = Ticket::new(DRAINS, drain.serial);
                let waiter = drain.waiter.take();
                wakes.extend(waiter.map(|waiter| super::Wake { ticket, waiter }));
            }
        }
    }

    fn decide(
        &mut self,
        now: Time,
        ask: &GateAsk<'_>,
        may_wait: bool,
        rate: &mut dyn Rate,
        wakes: &mut Wakes<W>,
    ) -> Decision {
        let now = self.tick(now);
        let criticality = ask.ask.criticality;
        if let Some((reason, span)) = self.forced {
            let rejection = self.reject(reason, criticality);
            return Decision::Rejected(Rejection { retry_after: Some(span), ..rejection });
        }
        if self.is_closed {
            return Decision::Rejected(self.reject(Reason::Closed, criticality));
        }
        if ask.deadline.is_some_and(|deadline| deadline <= now) {
            return Decision::Rejected(self.reject_late(ask));
        }
        if let Err(retry_after) = rate.take(now, ask.tokens) {
            let mut rejection = self.reject(Reason::Rate, criticality);
            let told = rejection.retry_after.map_or(retry_after, |told| told.max(retry_after));
            rejection.retry_after = Some(told);
            return Decision::Rejected(rejection);
        }
        let priority = priority_of(criticality, ask.position, &mut self.random);
        let decision = if self.shedding.admits(now, priority) {
            self.decide_room(ask, priority, may_wait, wakes)
        } else {
            let level = self.shedding.outside_level();
            Decision::Rejected(self.reject_below(level, criticality))
        };
        if matches!(decision, Decision::Rejected(_)) {
            rate.give_back(now, ask.tokens);
        }
        decision
    }

    /// The same of who is on time and within the rate.
    fn decide_room(
        &mut self,
        ask: &GateAsk<'_>,
        priority: Priority,
        may_wait: bool,
        wakes: &mut Wakes<W>,
    ) -> Decision {
        if self.is_calm() {
            self.queue.expire(self.now);
        } else {
            if let Some(home) = ask.ask.home {
                self.show_alive(home, wakes);
            }
            self.look(self.now, wakes);
        }
        loop {
            if let Some(permit) = self.begin_in_turn(ask) {
                // What was kept for him may be more than what he occupies.
                if self.queue.depth() > 0 {
                    self.serve(wakes);
                }
                return Decision::Admitted(permit);
            }
            if !self.revoke_stale_for(ask.ask.home) {
                break;
            }
            // Those in line there are as blocked, and hold nobody up.
            self.look(self.now, wakes);
        }
        self.limit.note_no_room();
        let criticality = ask.ask.criticality;
        if !may_wait || self.config.is_without_line() {
            return Decision::Rejected(self.reject(Reason::Limit, criticality));
        }
        self.note_given(ask);
        if !self.shedding.lets_wait(self.now, priority, self.queue.is_standing()) {
            // He would have come to the line, and is as much demand as who does.
            self.queue.note_comer(&ask.offer(None));
            let level = self.shedding.line_level();
            return Decision::Rejected(self.reject_below(level, criticality));
        }
        let until = self.until(criticality);
        if self.queue.is_in_vain(&ask.offer(until), false) {
            return Decision::Rejected(self.reject_late(ask));
        }
        Decision::Line(until)
    }

    /// Takes note of how much time somebody gives, if he says so.
    #[inline]
    fn note_given(&mut self, ask: &GateAsk<'_>) {
        let Some(deadline) = ask.deadline else { return };
        let given = deadline.since(self.now).min(MAX_WAIT);
        let mean = match self.given {
            None => given,
            Some(before) => (before * (MEMORY - 1) + given) / MEMORY,
        };
        self.given = Some(mean);
        self.limit.note_given(mean);
    }

    /// Until when somebody of that criticality may wait who comes now.
    fn until(&self, criticality: Criticality) -> Option<Time> {
        let max_wait = self.config.max_wait?;
        let is_reserving = self.config.reserve.is_for(criticality);
        // Half of it is what is left while the line is standing.
        let least = 2 * self.queue.service().quantile();
        Some(self.now.after(if is_reserving { max_wait.max(least) } else { max_wait }))
    }

    fn comer(&self, ask: &GateAsk<'_>) -> Comer {
        let Ask { criticality, .. } = ask.ask;
        Comer {
            home: ask.ask.home.unwrap_or(Home(0)),
            criticality,
            cost: ask.ask.cost(),
            tokens: ask.tokens,
            joined: self.now,
        }
    }

    /// Puts a seat into the line.
    fn join(
        &mut self,
        ask: &GateAsk<'_>,
        until: Option<Time>,
        ticket: Ticket,
        wakes: &mut Wakes<W>,
    ) -> Result<(), Rejection> {
        self.fit();
        let pushed = self.queue.push(self.now, ticket.key(), &ask.offer(until));
        self.hear(wakes);
        match pushed {
            Ok(item) => {
                self.seats.enter_line(ticket.key(), item);
                self.refusals.note_ask();
                // Then the newest goes first, and may fit where the older ones do not.
                if self.queue.is_standing() {
                    self.serve(wakes);
                }
                Ok(())
            }
            Err((_, rejection)) => {
                self.shedding.note_rejected(rejection.reason);
                Err(self.reject(rejection.reason, rejection.criticality))
            }
        }
    }

    /// Lets as many wait as is of use now.
    fn fit(&mut self) {
        self.queue.set_capacity(self.max_waiting());
    }

    /// Whether what is kept for the more critical leaves room.
    #[inline]
    fn is_room_for(&self, ask: &Ask) -> bool {
        let limit = self.limit.value();
        let kept = self.config.reserve.kept_from(ask.criticality, limit, &self.in_flight);
        let in_flight = self.limit.in_flight();
        // Who is too large runs alone, and then nothing is kept.
        kept == 0 || in_flight == 0 || (in_flight + u64::from(ask.cost()) + kept) as f64 <= limit
    }

    /// Admits if nobody of the same or higher criticality waits.
    fn begin_in_turn(&mut self, ask: &GateAsk<'_>) -> Option<Permit> {
        let is_behind = !self.seats.is_empty() && self.queue.has_from(ask.ask.criticality);
        if is_behind || !self.is_room_for(&ask.ask) { None } else { self.begin(ask) }
    }

    #[inline]
    fn begin(&mut self, ask: &GateAsk<'_>) -> Option<Permit> {
        let mut permit = self.limit.admit(self.now, &ask.ask)?;
        self.note_given(ask);
        self.queue.expire(self.now);
        // Whoever does not wait, where nobody does, says little about the line.
        let is_noted = self.waiting() > 0 || self.sampling.is_due(self.now);
        let work = self.queue.begin_at_once(&ask.offer(None), is_noted);
        permit.operation = work.operation();
        self.hold(&mut permit, ask.ask.criticality);
        self.admitted += 1;
        self.refusals.note_ask();
        self.shedding.note_room(self.now);
        Some(permit)
    }

    /// Counts a permit of the limiter as one of the gate.
    #[inline]
    fn hold(&mut self, permit: &mut Permit, criticality: Criticality) {
        // The limiter is reset with the gate, so that its epochs are the same.
        debug_assert_eq!(permit.epoch, self.epoch);
        permit.criticality = criticality;
        self.in_flight[criticality.index()] += u64::from(permit.cost);
    }

    #[inline]
    fn let_go(&mut self, permit: &Permit) {
        let in_flight = &mut self.in_flight[permit.criticality.index()];
        *in_flight = in_flight.saturating_sub(u64::from(permit.cost));
    }

    /// The end of work.
    #[inline]
    fn end(&mut self, now: Time, permit: Permit, operation: Option<&str>, outcome: Outcome) {
        self.let_go(&permit);
        let work = self.queue.work_since(permit.started, permit.operation, operation);
        if self.sampling.takes(now) {
            self.queue.finish(now, work, outcome == Outcome::Success);
        } else {
            self.queue.abandon(work);
        }
        self.limit.release(now, permit, operation, outcome);
    }

    /// Takes back a permit whose work was not begun.
    fn take_back(&mut self, permit: Permit) {
        self.let_go(&permit);
        let work = self.queue.work_since(permit.started, permit.operation, None);
        self.queue.abandon(work);
        self.limit.annul(self.now, permit);
    }

    /// Hears what the line has rejected.
    fn hear(&mut self, wakes: &mut Wakes<W>) {
        while self.queue.has_news() {
            for news in self.queue.take_news() {
                if let News::Rejected(key, rejection) = news {
                    self.shedding.note_rejected(rejection.reason);
                    let rejection = self.reject(rejection.reason, rejection.criticality);
                    if let Some(home) = self.seats.at(key).map(|seat| seat.home) {
                        self.seats.leave_line(home);
                    }
                    self.refuse(key, rejection, wakes);
                }
            }
        }
    }

    fn criticality_at(&self, key: u32) -> Criticality {
        self.seats.at(key).map(|seat| seat.criticality).unwrap_or_default()
    }

    /// Tells somebody that he is rejected.
    fn refuse(&mut self, key: u32, rejection: Rejection, wakes: &mut Wakes<W>) {
        let Some(seat) = self.seats.at_mut(key) else { return };
        self.owed += std::mem::take(&mut seat.tokens);
        if let State::Shadow(shadow) = &mut seat.state {
            let is_over = shadow.refuse();
            if is_over && let Some(ticket) = self.seats.ticket_of(key) {
                self.seats.leave(ticket, wakes);
            }
            return;
        }
        seat.state = State::Refused(Box::new(rejection));
        self.seats.wake(key, wakes);
    }

    /// Grants while there is room and somebody who could answer.
    fn serve(&mut self, wakes: &mut Wakes<W>) {
        while let Some(&key) = self.queue.peek(self.now) {
            self.hear(wakes);
            let Some(seat) = self.seats.at(key) else { return };
            let (home, criticality, cost) = (seat.home, seat.criticality, seat.cost);
            if self.blocked.contains(&home) {
                self.set_aside(key, wakes);
                continue;
            }
            let Ok(mut ask) = Ask::new(cost) else { return };
            ask.criticality = criticality;
            let permit =
                if self.is_room_for(&ask) { self.limit.admit(self.now, &ask) } else { None };
            if let Some(permit) = permit {
                self.grant(key, permit, wakes);
            } else if !self.revoke_stale(wakes) {
                break;
            }
        }
        self.hear(wakes);
    }

    fn grant(&mut self, key: u32, mut permit: Permit, wakes: &mut Wakes<W>) {
        let Some(taken) = self.queue.pop(self.now) else {
            // It was there a moment ago, and no time has passed.
            self.limit.annul(self.now, permit);
            return;
        };
        if let Some(home) = self.seats.at(key).map(|seat| seat.home) {
            self.seats.leave_line(home);
        }
        let work = self.queue.begin(&taken);
        permit.operation = work.operation();
        self.hold(&mut permit, self.criticality_at(key));
        let is_shadow =
            self.seats.at(key).is_some_and(|seat| matches!(seat.state, State::Shadow(_)));
        if is_shadow {
            self.begin_shadow(key, permit, wakes);
        } else {
            self.seats.grant(key, self.now, Grant { taken, permit }, wakes);
        }
    }

    /// Ends the wait of somebody who is granted what he waits for.
    fn take_grant(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) -> Option<Permit> {
        let Grant { mut permit, .. } = self.seats.revoke(ticket.key())?;
        let waited = self.seats.leave(ticket, wakes);
        let waited = waited.map_or(Duration::ZERO, |seat| self.now.since(seat.joined));
        self.admitted += 1;
        permit.started = self.now;
        permit.waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Some(permit)
    }

    /// Takes somebody out of the line whose home is blocked. He is woken: when he comes to
    /// claim, it is not blocked any more.
    fn set_aside(&mut self, key: u32, wakes: &mut Wakes<W>) {
        let Some(taken) = self.queue.pop(self.now) else { return };
        if let Some(home) = self.seats.at(key).map(|seat| seat.home) {
            self.seats.leave_line(home);
        }
        self.put_aside(key, taken);
        self.seats.wake(key, wakes);
    }

    fn put_aside(&mut self, key: u32, taken: Taken<u32>) {
        if let Some(seat) = self.seats.at_mut(key) {
            seat.state = State::Aside(Box::new(taken));
            self.aside.push(key);
        }
    }

    /// Takes the oldest grant back if it is stale and somebody waits elsewhere; whether it
    /// was.
    fn revoke_stale(&mut self, wakes: &mut Wakes<W>) -> bool {
        let Some((key, owner, at)) = self.seats.oldest_grant() else { return false };
        if at.after(CLAIM_PATIENCE) > self.now || !self.seats.is_line_elsewhere(owner) {
            return false;
        }
        self.revoke_aside(key, owner);
        self.seats.wake(key, wakes);
        true
    }

    /// The same for somebody who is not in line.
    fn revoke_stale_for(&mut self, home: Option<Home>) -> bool {
        let Some(home) = home else { return false };
        let Some((key, owner, at)) = self.seats.oldest_grant() else { return false };
        if at.after(CLAIM_PATIENCE) > self.now || owner == home {
            return false;
        }
        self.revoke_aside(key, owner);
        true
    }

    fn revoke_aside(&mut self, key: u32, owner: Home) {
        if let Some(Grant { taken, permit }) = self.seats.revoke(key) {
            self.revoked += 1;
            self.take_back(permit);
            if !self.blocked.contains(&owner) {
                self.blocked.push(owner);
            }
            self.put_aside(key, taken);
        }
    }

    /// Notes that a home is not blocked: those of it who were set aside wait again.
    fn show_alive(&mut self, home: Home, wakes: &mut Wakes<W>) {
        let Some(place) = self.blocked.iter().position(|blocked| *blocked == home) else {
            return;
        };
        self.blocked.swap_remove(place);
        let (here, elsewhere) = std::mem::take(&mut self.aside)
            .into_iter()
            .partition(|key| self.seats.at(*key).is_some_and(|seat| seat.home == home));
        self.aside = elsewhere;
        for key in here {
            self.stand_again(key);
        }
        self.look(self.now, wakes);
    }

    /// Puts somebody back into the line, into his place.
    fn stand_again(&mut self, key: u32) {
        let Some(seat) = self.seats.at_mut(key) else { return };
        let nowhere = State::Waiting(ItemId::from_bits(0));
        match std::mem::replace(&mut seat.state, nowhere) {
            State::Aside(taken) => {
                self.seats.enter_line(key, taken.id());
                self.queue.put_back(*taken);
            }
            state => seat.state = state,
        }
    }

    /// Lets a late claimer who is next have what those behind him elsewhere were granted and
    /// have not claimed: whoever comes first. So homes that are all slow still make
    /// progress.
    fn take_over(&mut self, ticket: Ticket, wakes: &mut Wakes<W>) {
        while self.queue.peek(self.now).copied() == Some(ticket.key()) {
            let is_newest_first = self.queue.is_standing();
            let Some(key) = self.seats.younger_grant(ticket, is_newest_first) else { return };
            let Some(Grant { taken, permit }) = self.seats.revoke(key) else { return };
            self.revoked += 1;
            self.take_back(permit);
            self.seats.enter_line(key, taken.id());
            self.queue.put_back(taken);
            self.look(self.now, wakes);
        }
    }

    fn retry_later(&mut self) {
        let retry = self.now.after(CLAIM_PATIENCE);
        self.retry_at = Some(self.retry_at.map_or(retry, |at| at.min(retry)));
    }

    fn reject(&mut self, reason: Reason, criticality: Criticality) -> Rejection {
        let retry_after = self.refusals.note(self.now, reason, criticality);
        Rejection { retry_after, ..self.rejection(reason, criticality) }
    }

    fn reject_below(&mut self, level: Criticality, criticality: Criticality) -> Rejection {
        let rejection = self.reject(Reason::Priority, criticality);
        Rejection { threshold: Some(level), ..rejection }
    }

    fn reject_late(&mut self, ask: &GateAsk<'_>) -> Rejection {
        let time_left = ask.deadline.map(|deadline| deadline.since(self.now));
        Rejection { time_left, ..self.reject(Reason::Deadline, ask.ask.criticality) }
    }

    fn rejection(&self, reason: Reason, criticality: Criticality) -> Rejection {
        Rejection {
            limit: self.limit(),
            in_flight: self.in_flight(),
            waiting: self.waiting(),
            max_waiting: Some(self.max_waiting()),
            ..Rejection::new(reason, criticality)
        }
    }
}

impl<W> Waitable<W> for Gate<W> {
    fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.tick(now);
        if ticket.key() == DRAINS {
            let place = self.drains.iter().position(|drain| drain.serial == ticket.serial());
            if let Some(place) = place {
                wakes.discard(self.drains.swap_remove(place).waiter);
            }
            return wakes;
        }
        self.look(now, &mut wakes);
        if let Some(home) = self.seats.find(ticket).map(|seat| seat.home) {
            // Who leaves is not blocked.
            self.show_alive(home, &mut wakes);
            if let Some(Grant { permit, .. }) = self.seats.revoke(ticket.key()) {
                self.take_back(permit);
            }
            if let Some(seat) = self.seats.leave(ticket, &mut wakes) {
                self.owed += seat.tokens;
                if let State::Waiting(item) = seat.state
                    && self.queue.cancel(self.now, item).is_some()
                {
                    self.seats.leave_line(seat.home);
                }
                self.aside.retain(|key| *key != ticket.key());
            }
            self.look(now, &mut wakes);
        }
        wakes
    }

    fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.tick(now);
        if ticket.key() == DRAINS {
            let drain = self.drains.iter_mut().find(|drain| drain.serial == ticket.serial());
            match drain {
                Some(drain) => {
                    wakes.discard(drain.waiter.replace(waiter));
                    // A look would wake him at once again, and so on for ever.
                    let retry = self.now.after(CLAIM_PATIENCE);
                    drain.due = drain.until.map(|until| until.max(retry));
                    self.retry_later();
                }
                None => wakes.discard(Some(waiter)),
            }
            return wakes;
        } else if let Some(seat) = self.seats.find(ticket) {
            let before = seat.waiter.replace(waiter);
            let home = seat.home;
            wakes.discard(before);
            self.revoke_aside(ticket.key(), home);
            if !self.blocked.contains(&home) {
                self.blocked.push(home);
            }
        } else {
            wakes.discard(Some(waiter));
            return wakes;
        }
        self.retry_later();
        self.look(now, &mut wakes);
        wakes
    }

    fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
        let mut wakes = Wakes::none();
        let now = self.tick(now);
        if let Some(home) = home {
            self.show_alive(home, &mut wakes);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            // All are tried again: who cannot be reached now says so again.
            for home in std::mem::take(&mut self.blocked) {
                self.blocked.push(home);
                self.show_alive(home, &mut wakes);
            }
            let refused = |(key, seat): (u32, &seats::Seat<W>)| {
                matches!(seat.state, State::Refused(_)).then_some(key)
            };
            let refused: Vec<u32> = self.seats.iter().filter_map(refused).collect();
            for key in refused {
                self.seats.wake(key, &mut wakes);
            }
        }
        self.look(now, &mut wakes);
        for drain in &mut self.drains {
            if drain.due.is_some_and(|due| due <= now) {
                let ticket = Ticket::new(DRAINS, drain.serial);
                let waiter = drain.waiter.take();
                wakes.extend(waiter.map(|waiter| super::Wake { ticket, waiter }));
            }
        }
        wakes
    }

    fn next_expiry(&self) -> Option<Time> {
        if self.is_calm() {
            return None;
        }
        let is_in_line = self.queue.depth() > 0;
        let stale = self.seats.oldest_grant();
        let stale = stale.filter(|(_, owner, _)| self.seats.is_line_elsewhere(*owner));
        let stale = stale.map(|(_, _, at)| at.after(CLAIM_PATIENCE));
        let room = if is_in_line { self.limit.room_at() } else { None };
        let drain = self.drains.iter().filter(|drain| drain.waiter.is_some());
        let drain = drain.filter_map(|drain| drain.due);
        let queue = self.queue.next_expiry().filter(|_| is_in_line);
        let all = queue.into_iter().chain(stale).chain(room).chain(drain).chain(self.retry_at);
        all.chain(self.departures.next()).min().filter(|at| *at < Time::MAX)
    }

    /// Always: what is admitted and given back is timed.
    #[inline]
    fn needs_time(&self) -> bool {
        true
    }

    fn latest(&self) -> Time {
        self.now
    }

    fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
        if ticket.key() == DRAINS {
            let is_idle = self.is_idle();
            let drain = self.drains.iter_mut().find(|drain| drain.serial == ticket.serial());
            return match drain {
                Some(drain) if !is_idle => {
                    drain.due = drain.until;
                    Ok(drain.waiter.replace(waiter))
                }
                _ => Err(waiter),
            };
        }
        match self.seats.find(ticket) {
            Some(seat) if matches!(seat.state, State::Waiting(_) | State::Aside(_)) => {
                Ok(seat.waiter.replace(waiter))
            }
            _ => Err(waiter),
        }
    }

    /// What waits in line may fall due on any loop.
    fn waits(&self, home: Home) -> bool {
        self.queue.depth() > 0
            || !self.departures.is_empty()
            || self.seats.iter().any(|(_, seat)| seat.home == home)
            || self.drains.iter().any(|drain| drain.home == home)
    }

    fn has_unclaimed(&self) -> bool {
        let is_unclaimed = |seat: &seats::Seat<W>| {
            matches!(seat.state, State::Granted(..) | State::Refused(_) | State::Aside(_))
        };
        self.seats.iter().any(|(_, seat)| is_unclaimed(seat))
            || self.drains.iter().any(|drain| drain.waiter.is_none())
    }

    fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a,
    {
        let seats = self.seats.iter().filter_map(|(_, seat)| seat.waiter.as_ref());
        seats.chain(self.drains.iter().filter_map(|drain| drain.waiter.as_ref()))
    }

    fn take_waiters(&mut self) -> Vec<W> {
        let mut waiters = self.seats.take_waiters();
        waiters.extend(self.drains.iter_mut().filter_map(|drain| drain.waiter.take()));
        waiters
    }

    /// Tickets and permits given so far are worth nothing; what was learned is kept.
    fn reset(&mut self) -> Vec<W> {
        self.epoch = self.epoch.wrapping_add(1);
        let mut waiters = self.seats.clear();
        let drains = std::mem::take(&mut self.drains);
        waiters.extend(drains.into_iter().filter_map(|drain| drain.waiter));
        self.limit.reset();
        let _ = self.queue.clear();
        self.departures = Departures::new();
        self.shedding.reset();
        self.in_flight = [0; 4];
        self.blocked.clear();
        self.aside.clear();
        self.retry_at = None;
        self.owed = 0.0;
        waiters
    }
}
