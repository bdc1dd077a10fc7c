use std::collections::BTreeSet;

use sluicegate::primitives::{CLAIM_PATIENCE, Criticality, Home, Waitable};

use super::{Before, Fault, Play, Waiter};

impl Play {
    /// What is granted and was not claimed; with shadows in it in a dry run.
    fn granted(&self) -> i128 {
        i128::from(self.gate.in_flight()) - i128::from(self.in_hands())
    }

    fn in_hands(&self) -> u64 {
        self.held.values().filter(|held| held.life == self.life).map(|held| held.cost).sum()
    }

    pub(super) fn has_unreached(&self) -> bool {
        !self.unreached.is_empty() || self.waiters.values().any(|waiter| waiter.is_unreached)
    }

    /// Whether nothing can be in the way of a home: no signal is on its way there.
    fn is_surely_alive(&self, home: u64) -> bool {
        let is_in_doubt =
            |waiter: &Waiter| waiter.asked.home == home && (waiter.is_woken || waiter.is_unreached);
        !self.unreached.contains(&home) && !self.waiters.values().any(is_in_doubt)
    }

    /// Who waits, and could answer.
    fn in_line(&self) -> Vec<usize> {
        { self.waiters.iter() }
            .filter(|(_, waiter)| !waiter.is_woken && self.is_surely_alive(waiter.asked.home))
            .map(|(&name, _)| name)
            .collect()
    }

    pub(super) fn before(&self) -> Before {
        Before {
            in_flight: self.gate.in_flight(),
            waiting: self.gate.waiting(),
            granted: self.granted(),
            waiters: self.in_line(),
        }
    }

    /// Nobody is admitted for whom there is no room, or who overtakes somebody.
    pub(super) fn check_admissions(&self, before: &Before) {
        let (in_flight, limit) = (self.gate.in_flight(), self.gate.limit());
        let has_granted = self.granted() > before.granted - self.claimed;
        let has_begun = !self.began.is_empty() && self.claimed == 0;
        // A shadow that ends in the same moment may have changed a limit that moves.
        let is_certain = self.is_fixed || !self.has_shadows;
        if (has_granted || has_begun || in_flight > before.in_flight) && is_certain {
            let is_over = in_flight as f64 > limit;
            assert!(!is_over || self.may_be_alone(), "{in_flight} of {limit} may be in flight");
            assert!(limit > 0.0 || self.has_shadows, "nobody may be in flight");
        }
        for &name in self.began.iter().filter(|_| self.claimed == 0) {
            let held = &self.held[&name];
            let others = in_flight - held.cost;
            // In a standing line the newest goes first, and has to fit.
            let is_like_him = |waiter: &&Waiter| waiter.asked.criticality == held.criticality;
            let newest = self.waiters.values().rev().find(is_like_him);
            let is_too_large = newest.is_some_and(|newest| {
                newest.is_woken || (others + u64::from(newest.asked.cost)) as f64 > limit
            });
            let may_pass = |waiter: &Waiter| {
                waiter.is_woken
                    || waiter.asked.criticality < held.criticality
                    || self.is_in_line_first && is_like_him(&waiter) && is_too_large
            };
            let still =
                |other: &&usize| self.waiters.get(other).is_some_and(|waiter| !may_pass(waiter));
            let overtaken = before.waiters.iter().find(still);
            assert_eq!(overtaken, None, "{name} has overtaken him");
            if before.waiting == self.gate.waiting() && self.is_prompt && !self.has_shadows {
                let kept = self.kept_from(held.criticality, Some(name));
                assert!(others == 0 || (in_flight + kept) as f64 <= limit, "of a reserve");
            }
        }
    }

    /// Whether one who is too large may be the only one in flight.
    fn may_be_alone(&self) -> bool {
        let in_hands =
            { self.held.values() }.filter(|held| held.life == self.life && held.cost > 0).count();
        let granted = self.granted();
        let is_one_granted = || {
            let mut costs = self.waiters.values().map(|waiter| i128::from(waiter.asked.cost));
            self.has_shadows || costs.any(|cost| cost == granted)
        };
        in_hands == 1 && granted == 0 || in_hands == 0 && is_one_granted()
    }

    /// How many units of idle reserves are kept from somebody; if all grants are claimed.
    fn kept_from(&self, criticality: usize, without: Option<usize>) -> u64 {
        let limit = self.gate.limit();
        let used = |from: usize| {
            { self.held.iter() }
                .filter(|&(&name, held)| {
                    held.life == self.life && held.criticality >= from && Some(name) != without
                })
                .map(|(_, held)| held.cost)
                .sum::<u64>()
        };
        let is_kept = |class: &usize| {
            let share = self.reserve.share(Criticality::ALL[*class]);
            limit >= 4.0 && (limit * share).floor() > used(*class) as f64
        };
        (criticality + 1..4).filter(is_kept).count() as u64
    }

    /// After all who were woken have come: nobody is left behind by who is less critical.
    pub(super) fn check_order(&self, before: &Before) {
        if self.has_shadows {
            return;
        }
        let came = self.began.iter().filter(|name| before.waiters.contains(name));
        for name in came {
            let criticality = self.held[name].criticality;
            let behind = { self.waiters.iter() }.find(|(_, waiter)| {
                waiter.asked.criticality > criticality && !waiter.is_new && !waiter.is_unreached
            });
            assert!(behind.is_none(), "{name} was admitted before {behind:?}");
        }
    }

    /// Nobody joins a full line; who comes back into it had his place already.
    pub(super) fn check_depth(&self, before: usize) {
        let (waiting, most) = (self.gate.waiting(), self.gate.snapshot(self.time()).max_waiting);
        let woken = self.waiters.values().filter(|waiter| waiter.is_woken).count();
        let unreached = self.waiters.values().filter(|waiter| waiter.is_unreached).count();
        assert!(
            waiting <= most.max(before) + woken + unreached,
            "{waiting} wait, {most} may; {before} did before"
        );
    }

    /// Who waits after an expiry is not over his bound.
    pub(super) fn check_bounds(&self) {
        for name in self.in_line() {
            let waiter = &self.waiters[&name];
            assert!(waiter.bound > self.gate.latest(), "{name} waits for too long: {waiter:?}");
        }
    }

    pub(super) fn check(&mut self) {
        self.check_who_is_woken();
        self.check_in_flight();
        self.check_that_nobody_waits_in_vain();
        self.check_drains();
        self.check_counts();
        self.check_tokens();
    }

    fn check_in_flight(&self) {
        let granted = self.granted();
        let woken = self.waiters.values().filter(|waiter| waiter.is_woken);
        let most: i128 = woken.map(|waiter| i128::from(waiter.asked.cost)).sum();
        let is_right = granted >= 0 && (self.has_shadows || granted <= most);
        assert!(is_right, "in flight is not what was given: {granted}");
        if self.is_prompt && !self.has_shadows {
            assert_eq!(granted, 0, "in flight is not what was given");
        }
    }

    /// Everybody who has an answer was told to come for it, and nobody else is lost.
    fn check_who_is_woken(&mut self) {
        let unwoken: Vec<usize> = { self.waiters.iter() }
            .filter(|(_, waiter)| !waiter.is_woken)
            .map(|(&name, _)| name)
            .chain(self.drains.iter().filter(|(_, drain)| !drain.is_woken).map(|(&name, _)| name))
            .collect();
        let known: Vec<usize> = self.gate.waiters().copied().collect();
        let distinct: BTreeSet<usize> = known.iter().copied().collect();
        assert_eq!(known.len(), distinct.len());
        assert_eq!(distinct, unwoken.into_iter().collect(), "is not who was not woken");
        let waiters = self.waiters.iter().filter(|(_, waiter)| !waiter.is_woken);
        for (&name, waiter) in waiters {
            match self.gate.renew(waiter.ticket, name) {
                Ok(before) => assert_eq!(before, Some(name), "a waiter is lost"),
                Err(_) => assert!(waiter.is_unreached, "{name} has an answer and was not woken"),
            }
        }
        let waiting = self.gate.waiting();
        let unanswered = self.waiters.values().filter(|waiter| !waiter.is_woken);
        let least = unanswered.filter(|waiter| !waiter.is_unreached).count();
        let is_right = least <= waiting && (self.has_shadows || waiting <= self.waiters.len());
        assert!(is_right, "{waiting} wait, of {}", self.waiters.len());
        if !self.waiters.is_empty() {
            let has_time = self.gate.next_expiry().is_some();
            let is_on_its_way = self.waiters.values().any(|waiter| waiter.is_woken);
            assert!(has_time || is_on_its_way, "nobody will look after those who wait");
        }
        if self.granted() > 0 && !self.has_shadows && !self.in_line().is_empty() {
            // What is granted elsewhere may be stale by then.
            self.check_retry();
        }
        for waiter in self.waiters.values() {
            assert!(self.gate.waits(Home(waiter.asked.home)));
        }
        if waiting < self.waiters.len() {
            assert!(self.gate.has_unclaimed(None));
        }
    }

    fn check_that_nobody_waits_in_vain(&self) {
        let limit = self.gate.limit();
        let in_flight = self.gate.in_flight();
        if limit < 1.0 {
            return;
        }
        let waiting = self.in_line();
        // Whoever is next: for him there is no room.
        let all = self.waiters.values().map(|waiter| u64::from(waiter.asked.cost));
        let most = if self.has_shadows { 5 } else { all.max().unwrap_or(1) };
        let shares = (0..4).filter(|&class| self.reserve.share(Criticality::ALL[class]) > 0.0);
        let is_room = (in_flight + most + shares.count() as u64) as f64 <= limit || in_flight == 0;
        assert!(!is_room || waiting.is_empty(), "there is room, and they wait: {waiting:?}");
        if self.is_prompt && !self.has_shadows && !self.has_unreached() {
            let fits = |name: &usize| {
                let asked = &self.waiters[name].asked;
                let kept = self.kept_from(asked.criticality, None);
                (in_flight + u64::from(asked.cost) + kept) as f64 <= limit
            };
            let top = waiting.iter().map(|name| self.waiters[name].asked.criticality).max();
            let of_top = |name: &&usize| Some(self.waiters[name].asked.criticality) == top;
            let mut next = waiting.iter().filter(of_top).peekable();
            let has_next = next.peek().is_some();
            assert!(!has_next || !next.all(fits), "there is room for the next in line");
        }
    }

    /// Before long somebody looks.
    pub(super) fn check_retry(&self) {
        let soon = self.gate.latest().after(CLAIM_PATIENCE);
        let next = self.gate.next_expiry();
        assert!(next.is_some_and(|next| next <= soon), "nobody will look soon");
    }

    fn check_drains(&self) {
        let unwoken = self.drains.values().filter(|drain| !drain.is_woken);
        for drain in unwoken {
            let soon = self.gate.latest().after(CLAIM_PATIENCE);
            let is_over_soon = drain.until.is_some_and(|until| until <= soon);
            if drain.is_unreached && (is_over_soon || self.gate.is_idle()) {
                self.check_retry();
                continue;
            }
            assert!(!self.gate.is_idle(), "nothing is in flight, and nobody is told");
            let next = self.gate.next_expiry();
            assert!(drain.until.is_none_or(|until| next.is_some_and(|next| next <= until)));
        }
    }

    fn check_counts(&self) {
        let now = self.gate.latest();
        let snapshot = self.gate.snapshot(now);
        assert_eq!(snapshot.admitted, self.admitted, "admitted");
        assert_eq!(snapshot.outcomes, self.outcomes, "outcomes");
        assert_eq!(snapshot.in_flight, self.gate.in_flight());
        assert_eq!(snapshot.waiting, self.gate.waiting());
        assert_eq!((snapshot.stray_releases, snapshot.is_closed), (0, self.is_closed));
        if self.fault == Fault::AdmitsOneTooMany {
            return;
        }
        let heard: u64 = self.rejected.iter().sum();
        let counted: u64 = snapshot.rejected.iter().sum();
        let pairs = snapshot.rejected.iter().zip(self.rejected);
        assert!(pairs.clone().all(|(&counted, heard)| counted >= heard), "rejected");
        if !self.had_shadows {
            let open =
                self.waiters.values().filter(|waiter| waiter.is_woken || waiter.is_unreached);
            let most = heard + self.unheard + open.count() as u64;
            assert!(counted <= most, "rejected {counted}, at most {most}");
        }
    }

    fn check_tokens(&self) {
        let gone = self.purse.taken - self.purse.given_back - self.owed;
        let waiting: u64 = self.waiters.values().map(|waiter| u64::from(waiter.asked.tokens)).sum();
        assert!(gone >= self.spent, "tokens: {gone} gone, {} spent", self.spent);
        if !self.had_shadows {
            assert!(gone <= self.spent + waiting, "tokens: {gone} gone, {} spent", self.spent);
            if self.is_prompt && !self.has_unreached() {
                assert_eq!(gone, self.spent + waiting, "tokens");
            }
        }
    }
}
