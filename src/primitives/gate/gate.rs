use std::time::Duration;

use super::aside::Aside;
use super::decision::Decision;
use super::drain::Drain;
use super::limit::Limit;
use super::refusals::Refusals;
use super::sampling::Sampling;
use super::seats::{Seats, State};
use super::shadow::Departures;
use super::shedding::Shedding;
use super::{GateAdmission, GateAsk, GateClaim, GateConfig, GateSnapshot, LimitUpdate, Rate};
use crate::primitives::gradient::{Because, GradientConfig};
use crate::primitives::random::Random;
use crate::primitives::{
    CoDelQueue, ConfigError, Criticality, Home, Outcome, Permit, QueueConfig, Reason, Rejecting,
    Rejection, Ticket, Time, Wakes,
};

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
/// - A grant is claimed by ticket. One that is not claimed within
///   [`CLAIM_PATIENCE`](crate::primitives::CLAIM_PATIENCE), since
///   its event loop is blocked, goes to whoever waits elsewhere; those who wait there are set
///   aside until one of them moves again.
///
/// `W` is whatever the caller wakes a waiter with. `now` may stand still or jump back: the
/// latest moment seen counts.
#[derive(Debug)]
pub struct Gate<W> {
    pub(super) config: GateConfig,
    pub(super) limit: Limit,
    pub(super) queue: CoDelQueue<u32>,
    pub(super) seats: Seats<W>,
    /// What is in flight of each criticality.
    pub(super) in_flight: [u64; 4],
    /// Whose grants went stale, and has not moved since.
    pub(super) blocked: Vec<Home>,
    pub(super) aside: Aside,
    /// When those are tried again who could not be reached.
    pub(super) retry_at: Option<Time>,
    pub(super) drains: Vec<Drain<W>>,
    pub(super) next_drain: u64,
    pub(super) departures: Departures,
    /// How many permits are out, whatever they occupy.
    pub(super) held: u64,
    /// What is in flight of those whom nobody asked whether there is room.
    pub(super) beside: u64,
    pub(super) is_dry_run: bool,
    /// For tests: why everybody is rejected.
    pub(super) forced: Option<(Reason, Duration)>,
    pub(super) is_closed: bool,
    pub(super) sampling: Sampling,
    pub(super) shedding: Shedding,
    pub(super) random: Random,
    /// Which life this is; permits of an earlier one release nothing.
    pub(super) epoch: u32,
    pub(super) now: Time,
    /// What of the rate is to be given back.
    pub(super) owed: f64,
    /// How much time callers give who say so, on the mean.
    pub(super) given: Option<Duration>,
    pub(super) admitted: u64,
    pub(super) refusals: Refusals,
    pub(super) outcomes: [u64; 3],
    pub(super) revoked: u64,
    pub(super) stray_releases: u64,
}

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
            aside: Aside::new(),
            retry_at: None,
            drains: Vec::new(),
            next_drain: 1,
            departures: Departures::new(),
            held: 0,
            beside: 0,
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
    pub fn estimate(&self) -> Option<(Because, GradientConfig)> {
        self.limit.estimate()
    }

    /// The cost in flight, granted and unclaimed included; in a dry run, of what would be.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.limit.in_flight() + self.beside
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.depth() + self.aside.len()
    }

    /// In flight / limit; 1 if the limit is 0.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        if self.beside == 0 || self.limit() <= 0.0 {
            return self.limit.saturation();
        }
        self.in_flight() as f64 / self.limit()
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
            Decision::Line { .. } => Err(self.reject(Reason::Limit, ask.ask.criticality)),
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
        let before = self.random.clone();
        let answer = match self.decide(now, ask, true, rate, &mut wakes) {
            Decision::Admitted(permit) => Some(Ok(permit)),
            Decision::Rejected(rejection) => Some(Err(rejection)),
            Decision::Line { until, priority } => {
                // Asked again, it is taken again.
                rate.give_back(self.now, ask.tokens);
                self.fit_for(ask);
                let offer = ask.offer(until);
                let is_full =
                    !self.queue.has_room_for(&offer) && self.coldest_aside_for(&offer).is_none();
                let is_stale = self.seats.oldest_grant().is_some();
                if is_full && !is_stale {
                    self.shedding.note_rejected(Reason::Full);
                    Some(Err(self.reject(Reason::Full, ask.ask.criticality)))
                } else {
                    // Asked again, it is decided once, and the same.
                    self.shedding.retract(priority);
                    self.random = before;
                    None
                }
            }
        };
        (answer, wakes)
    }

    /// Admits whatever there is, and counts nothing but that, how it ends, and what is in flight.
    pub fn admit_unasked(&mut self, now: Time, ask: &GateAsk<'_>) -> Permit {
        self.tick(now);
        let cost = ask.ask.cost();
        self.beside += u64::from(cost);
        Permit { cost, ..self.pass(None) }
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
            Decision::Line { until, .. } => {
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
                    Err(rejection) => GateAdmission::Rejected(rejection),
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
    /// from before a [`reset`](crate::primitives::Waitable::reset) gives nothing back.
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
        self.held = self.held.saturating_sub(1);
        self.refusals.note_done(now);
        match permit.shadow {
            None => self.end(now, permit, operation, outcome),
            Some(ticket) => {
                self.beside = self.beside.saturating_sub(u64::from(permit.cost));
                self.depart(ticket, operation, outcome);
            }
        }
        if !self.is_calm() {
            self.look(now, &mut wakes);
        }
        wakes
    }

    /// Takes back what was not used, as if it had never been given.
    pub fn annul(&mut self, now: Time, permit: Permit) -> Wakes<W> {
        self.annul_paid(now, permit).1
    }

    /// The same, and whether what was taken of the rate for it is to be given back: not
    /// for who would have been rejected if this were no dry run, since he has it already.
    pub fn annul_paid(&mut self, now: Time, permit: Permit) -> (bool, Wakes<W>) {
        let mut wakes = Wakes::none();
        if permit.epoch != self.epoch {
            return (false, wakes);
        }
        self.tick(now);
        self.admitted = self.admitted.saturating_sub(1);
        self.held = self.held.saturating_sub(1);
        let has_paid = match permit.shadow {
            None => {
                self.take_back(permit);
                true
            }
            Some(ticket) => {
                self.beside = self.beside.saturating_sub(u64::from(permit.cost));
                // So that what falls due now is counted.
                self.look(now, &mut wakes);
                self.annul_shadow(ticket, &mut wakes)
            }
        };
        self.look(now, &mut wakes);
        (has_paid, wakes)
    }

    /// Counts a release that came twice; for callers whose permits are shared.
    pub fn count_stray_release(&mut self) {
        self.stray_releases += 1;
    }

    /// Changes what is given. A raised limit admits at once whom it makes room for; a
    /// lowered one admits nobody until enough has drained; 0 admits nobody. A limit that
    /// follows latency stays from then on, until it is told to follow again; `max_waiting` and
    /// `max_wait` are as in [`GateConfig`], where `Some(None)` is automatic.
    ///
    /// # Errors
    /// If one is out of its range; then nothing is changed.
    pub fn update(
        &mut self,
        now: Time,
        limit: Option<LimitUpdate>,
        max_waiting: Option<Option<usize>>,
        max_wait: Option<Option<Duration>>,
    ) -> Result<Wakes<W>, ConfigError> {
        let mut wakes = Wakes::none();
        let config = GateConfig {
            max_waiting: max_waiting.unwrap_or(self.config.max_waiting),
            max_wait: max_wait.unwrap_or(self.config.max_wait),
            ..self.config.clone()
        };
        config.check()?;
        let now = self.tick(now);
        if let Some(limit) = limit {
            self.limit.update(now, limit)?;
        }
        self.config = config;
        self.aside.due = Time::ZERO;
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
        if is_dry_run && !self.is_dry_run {
            self.look(now, &mut wakes);
            self.let_all_pass(&mut wakes);
        }
        self.is_dry_run = is_dry_run;
        self.look(now, &mut wakes);
        wakes
    }

    /// Rejects whoever comes from now on, for that reason and with that span, whatever room
    /// there is; for tests. `None`: no more. Returns what was said before.
    pub fn reject_all_who_come(
        &mut self,
        with: Option<(Reason, Duration)>,
    ) -> Option<(Reason, Duration)> {
        std::mem::replace(&mut self.forced, with)
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
        // While the shadows are still there that it is about.
        self.hear(&mut wakes);
        for key in std::mem::replace(&mut self.aside, Aside::new()).keys() {
            self.reject_aside(key, Reason::Closed, &mut wakes);
        }
        if self.is_dry_run {
            // Nobody is judged any more, and what really runs is waited for.
            self.end_dry_run(&mut wakes);
        }
        self.look(now, &mut wakes);
        wakes
    }

    /// Rejects if it is closed, and decides nothing else: for who waits elsewhere before he
    /// asks here.
    pub fn reject_if_closed(&mut self, now: Time, criticality: Criticality) -> Option<Rejection> {
        self.tick(now);
        self.is_closed.then(|| self.reject(Reason::Closed, criticality))
    }

    /// Tells all who wait to come and look; they go on waiting.
    pub fn call_all(&mut self, now: Time) -> Wakes<W> {
        let mut wakes = Wakes::none();
        self.tick(now);
        self.seats.wake_all(&mut wakes);
        wakes
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

    /// When there may be something to tell of rejections if nothing happens until then: that
    /// they go on, or have stopped.
    #[must_use]
    #[inline]
    pub fn next_news(&self) -> Option<Time> {
        self.refusals.next_news()
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
        let aside = self.aside.keys().filter_map(|key| self.seats.at(key));
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
            service_estimate: line.service_estimate,
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
    pub(super) fn max_waiting(&self) -> usize {
        if self.config.is_without_line() {
            return 0;
        }
        let mean = self.queue.service().mean();
        self.config.capacity(self.limit(), self.queue.given(), mean)
    }

    pub(super) fn wait_bound(&self) -> Duration {
        if self.config.is_without_line() {
            return Duration::ZERO;
        }
        match self.config.max_wait {
            Some(max_wait) => self.queue.wait_bound_of(max_wait).min(max_wait),
            None => self.queue.wait_bound(),
        }
    }

    #[inline]
    pub(super) fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Whether nobody waits for anything.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        self.seats.is_empty() && self.drains.is_empty() && self.departures.is_empty()
    }

    /// Whether nothing is at work, nor about to be, whatever is counted as in flight: in a dry
    /// run that is what would be.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held == 0 && self.seats.oldest_grant().is_none()
    }

    /// Counts a permit of the limiter as one of the gate.
    #[inline]
    pub(super) fn hold(&mut self, permit: &mut Permit, criticality: Criticality) {
        // The limiter is reset with the gate, so that its epochs are the same.
        debug_assert_eq!(permit.epoch, self.epoch);
        permit.criticality = criticality;
        self.in_flight[criticality.index()] += u64::from(permit.cost);
    }

    #[inline]
    pub(super) fn let_go(&mut self, permit: &Permit) {
        let in_flight = &mut self.in_flight[permit.criticality.index()];
        *in_flight = in_flight.saturating_sub(u64::from(permit.cost));
    }

    /// The end of work.
    #[inline]
    pub(super) fn end(
        &mut self,
        now: Time,
        permit: Permit,
        operation: Option<&str>,
        outcome: Outcome,
    ) {
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
    pub(super) fn take_back(&mut self, permit: Permit) {
        if permit.shadow.is_some() {
            // It occupied nothing.
            return;
        }
        self.let_go(&permit);
        let work = self.queue.work_since(permit.started, permit.operation, None);
        self.queue.abandon(work);
        self.limit.annul(self.now, permit);
    }
}
