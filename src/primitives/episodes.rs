use std::time::Duration;

use super::{Criticality, Reason, Time};

/// For how long nothing may be rejected until an episode is over.
const QUIET: Duration = Duration::from_secs(5);

/// How often it is said that an episode goes on.
const STILL: Duration = Duration::from_secs(10);

/// Episodes of rejection, so that a log says when rejecting began and how much was
/// rejected, and has no line for each of them.
///
/// Tell it what is asked and what is rejected; [`look`](Self::look) until there is nothing
/// to say, after a rejection and when [`next_look`](Self::next_look) has come. Moments that
/// stand still or go back count as the latest.
#[derive(Clone, Debug, Default)]
pub struct Episodes {
    /// How much was asked for, ever.
    asked: u64,
    /// The latest moment seen.
    now: Time,
    current: Option<Episode>,
    /// The one before, if it is over and nobody was told. Of several only the last is
    /// kept: each is preceded by a rejection, after which one looks.
    over: Option<Episode>,
}

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejecting {
    /// The first rejection after none for 5 s or more.
    Began {
        /// When.
        at: Time,
        /// Why.
        reason: Reason,
        /// Of what was rejected.
        criticality: Criticality,
    },
    /// Rejecting goes on: every 10 s.
    Still(Tally),
    /// Nothing was rejected for 5 s; told as of the last rejection.
    Stopped(Tally),
}

/// What came of an episode until a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// For how long there were rejections.
    pub lasted: Duration,
    /// How much was rejected.
    pub rejected: u64,
    /// Of how much that was asked for meanwhile; not less than what was rejected, some
    /// of which may have been asked for before.
    pub asked: u64,
    /// The rejections, by the [`index`](Reason::index) of their reason.
    pub by_reason: [u64; Reason::ALL.len()],
    /// The most critical work that was rejected.
    pub up_to: Criticality,
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Time,
    reason: Reason,
    criticality: Criticality,
    is_told: bool,
    /// When it is to be said next that it goes on.
    still_at: Time,
    /// When the last rejection was.
    last: Time,
    /// How much was asked for before it began, and until the last rejection.
    asked_before: u64,
    asked_at_last: u64,
    by_reason: [u64; Reason::ALL.len()],
    up_to: Criticality,
}

impl Episodes {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that something is asked for, whatever comes of it.
    #[inline]
    pub const fn note_ask(&mut self) {
        self.asked = self.asked.wrapping_add(1);
    }

    /// Notes that it is rejected: after [`note_ask`](Self::note_ask), at once or when it
    /// has waited.
    #[inline]
    pub fn note(&mut self, now: Time, reason: Reason, criticality: Criticality) {
        self.advance(now);
        let (now, asked) = (self.now, self.asked);
        let episode = self.current.get_or_insert_with(|| Episode {
            began: now,
            reason,
            criticality,
            is_told: false,
            still_at: now.after(STILL),
            last: now,
            asked_before: asked.saturating_sub(1),
            asked_at_last: asked,
            by_reason: [0; Reason::ALL.len()],
            up_to: criticality,
        });
        episode.last = now;
        episode.asked_at_last = asked;
        episode.up_to = episode.up_to.max(criticality);
        let count = &mut episode.by_reason[reason.index()];
        *count = count.saturating_add(1);
    }

    /// What there is to say now, one at a time and in order.
    #[inline]
    pub fn look(&mut self, now: Time) -> Option<Rejecting> {
        self.advance(now);
        if self.next_look().is_some_and(|next| next <= self.now) { self.tell() } else { None }
    }

    /// When there may be something to say; `None` while nothing is rejected. It may move
    /// on with each rejection.
    #[must_use]
    pub fn next_look(&self) -> Option<Time> {
        if self.over.is_some() {
            return Some(self.now);
        }
        let episode = self.current.as_ref()?;
        Some(if episode.is_told {
            episode.still_at.min(episode.last.after(QUIET))
        } else {
            self.now
        })
    }

    /// What is going on, if anything.
    #[must_use]
    pub fn current(&self, now: Time) -> Option<Tally> {
        let now = now.max(self.now);
        let episode = self.current.filter(|episode| !episode.is_over(now))?;
        Some(episode.tally(now, self.asked))
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.current.as_ref().is_some_and(|episode| episode.is_over(self.now)) {
            self.over = self.current.take();
        }
    }

    #[cold]
    fn tell(&mut self) -> Option<Rejecting> {
        if let Some(event) = self.over.as_mut().and_then(Episode::begin) {
            return Some(event);
        }
        if let Some(over) = self.over.take() {
            return Some(Rejecting::Stopped(over.tally(over.last, over.asked_at_last)));
        }
        let episode = self.current.as_mut()?;
        if let Some(event) = episode.begin() {
            return Some(event);
        }
        // At the end of time it would be said for ever.
        if episode.still_at > self.now || episode.still_at == Time::MAX {
            return None;
        }
        let missed = self.now.since(episode.still_at).as_nanos() / STILL.as_nanos();
        let periods = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        episode.still_at = episode.still_at.after(STILL.saturating_mul(periods));
        Some(Rejecting::Still(episode.tally(self.now, self.asked)))
    }
}

impl Episode {
    #[inline]
    fn is_over(&self, now: Time) -> bool {
        now.since(self.last) >= QUIET
    }

    /// That it began, unless that is told already.
    fn begin(&mut self) -> Option<Rejecting> {
        let is_told = std::mem::replace(&mut self.is_told, true);
        let Self { began: at, reason, criticality, .. } = *self;
        (!is_told).then_some(Rejecting::Began { at, reason, criticality })
    }

    fn tally(&self, until: Time, asked: u64) -> Tally {
        let rejected = self.by_reason.iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        Tally {
            lasted: until.since(self.began),
            rejected,
            asked: asked.wrapping_sub(self.asked_before).max(rejected),
            by_reason: self.by_reason,
            up_to: self.up_to,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn reject(episodes: &mut Episodes, now: Time) {
        episodes.note_ask();
        episodes.note(now, Reason::Full, Criticality::Critical);
    }

    fn tally(lasted: u64, rejected: u64, asked: u64) -> Tally {
        let mut by_reason = [0; Reason::ALL.len()];
        by_reason[Reason::Full.index()] = rejected;
        let lasted = Duration::from_millis(lasted);
        Tally { lasted, rejected, asked, by_reason, up_to: Criticality::Critical }
    }

    const BEGAN: Rejecting = Rejecting::Began {
        at: Time::ZERO,
        reason: Reason::Full,
        criticality: Criticality::Critical,
    };

    #[test]
    fn nothing_is_said_while_nothing_is_rejected() {
        let mut episodes = Episodes::new();
        for second in 0..100 {
            episodes.note_ask();
            assert_eq!(episodes.look(at(second * 1000)), None);
        }
        assert_eq!(episodes.next_look(), None);
        assert_eq!(episodes.current(at(100_000)), None);
    }

    #[test]
    fn an_episode_begins_goes_on_and_stops() {
        let mut episodes = Episodes::new();
        for _ in 0..7 {
            episodes.note_ask();
        }
        let mut said = Vec::new();
        // One in four is rejected, for 24 s.
        for millis in (0..60_000).step_by(100) {
            episodes.note_ask();
            if millis <= 24_000 && millis % 400 == 0 {
                episodes.note(at(millis), Reason::Full, Criticality::Critical);
            }
            while let Some(event) = episodes.look(at(millis)) {
                said.push((millis, event));
            }
        }
        let expected = [
            (0, BEGAN),
            (10_000, Rejecting::Still(tally(10_000, 26, 101))),
            (20_000, Rejecting::Still(tally(20_000, 51, 201))),
            (29_000, Rejecting::Stopped(tally(24_000, 61, 241))),
        ];
        assert_eq!(said, expected);
        assert_eq!(episodes.next_look(), None);
    }

    #[test]
    fn it_counts_by_reason_and_names_the_most_critical() {
        let mut episodes = Episodes::new();
        for (reason, criticality) in [
            (Reason::Wait, Criticality::Sheddable),
            (Reason::Full, Criticality::SheddablePlus),
            (Reason::Wait, Criticality::Sheddable),
        ] {
            episodes.note_ask();
            episodes.note(at(1000), reason, criticality);
        }
        let (reason, criticality) = (Reason::Wait, Criticality::Sheddable);
        assert_eq!(
            episodes.look(at(1000)),
            Some(Rejecting::Began { at: at(1000), reason, criticality })
        );
        let Some(Rejecting::Stopped(tally)) = episodes.look(at(6000)) else { panic!("it is over") };
        assert_eq!(tally.by_reason[Reason::Wait.index()], 2);
        assert_eq!(tally.by_reason[Reason::Full.index()], 1);
        assert_eq!((tally.rejected, tally.asked), (3, 3));
        assert_eq!((tally.lasted, tally.up_to), (Duration::ZERO, Criticality::SheddablePlus));
    }

    #[test]
    fn the_next_look_is_where_there_is_something_to_say() {
        let mut episodes = Episodes::new();
        reject(&mut episodes, at(0));
        assert_eq!(episodes.next_look(), Some(at(0)));
        assert_eq!(episodes.look(at(0)), Some(BEGAN));
        assert_eq!(episodes.next_look(), Some(at(5000)));
        reject(&mut episodes, at(4000));
        assert_eq!(episodes.next_look(), Some(at(9000)));
        reject(&mut episodes, at(8000));
        assert_eq!(episodes.look(at(8000)), None);
        assert_eq!(episodes.next_look(), Some(at(10_000)));
        assert_eq!(episodes.look(at(10_000)), Some(Rejecting::Still(tally(10_000, 3, 3))));
        assert_eq!(episodes.next_look(), Some(at(13_000)));
        assert_eq!(episodes.look(at(12_999)), None);
        assert_eq!(episodes.look(at(13_000)), Some(Rejecting::Stopped(tally(8000, 3, 3))));
    }

    #[test]
    fn what_was_missed_is_told_once_and_in_order() {
        let mut episodes = Episodes::new();
        for second in 0..=35 {
            reject(&mut episodes, at(second * 1000));
        }
        assert_eq!(episodes.look(at(35_000)), Some(BEGAN));
        assert_eq!(episodes.look(at(35_000)), Some(Rejecting::Still(tally(35_000, 36, 36))));
        assert_eq!(episodes.look(at(35_000)), None);
        // The next rejection is an hour later.
        reject(&mut episodes, at(3_635_000));
        let now = at(3_635_000);
        assert_eq!(episodes.next_look(), Some(now));
        assert_eq!(episodes.look(now), Some(Rejecting::Stopped(tally(35_000, 36, 36))));
        assert!(matches!(episodes.look(now), Some(Rejecting::Began { at, .. }) if at == now));
        assert_eq!(episodes.look(now), None);
    }

    #[test]
    fn an_episode_that_nobody_saw_is_told_whole() {
        let mut episodes = Episodes::new();
        reject(&mut episodes, at(0));
        reject(&mut episodes, at(60_000));
        let now = at(60_000);
        assert_eq!(episodes.look(now), Some(BEGAN));
        assert_eq!(episodes.look(now), Some(Rejecting::Stopped(tally(0, 1, 1))));
        assert!(matches!(episodes.look(now), Some(Rejecting::Began { .. })));
        assert_eq!(episodes.look(now), None);
    }

    #[test]
    fn what_waited_was_asked_for_before() {
        let mut episodes = Episodes::new();
        for _ in 0..5 {
            episodes.note_ask();
        }
        for _ in 0..5 {
            episodes.note(at(0), Reason::Full, Criticality::Critical);
        }
        assert_eq!(episodes.current(at(0)), Some(tally(0, 5, 5)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Looked at whenever one should, all that is rejected is told, in turn.
        #[test]
        fn every_rejection_is_told_once(
            steps in prop::collection::vec((0_u64..8000, 0_usize..4, any::<bool>()), 1..200),
            is_timed in any::<bool>(),
        ) {
            let mut episodes = Episodes::new();
            let mut said = Vec::new();
            let (mut now, mut rejected, mut last) = (0, 0, 0);
            for (pause, class, is_rejected) in steps {
                let then = now + pause;
                while let Some(next) = episodes.next_look().filter(|&next| is_timed && next <= at(then)) {
                    said.extend(episodes.look(next));
                }
                now = then;
                episodes.note_ask();
                if is_rejected {
                    episodes.note(at(now), Reason::ALL[class], Criticality::ALL[class]);
                    (rejected, last) = (rejected + 1, now);
                    while let Some(event) = episodes.look(at(now)) {
                        said.push(event);
                    }
                }
            }
            while let Some(event) = episodes.look(at(now + 5000)) {
                said.push(event);
            }
            let (mut told, mut since) = (0, None);
            for event in said {
                match (event, since) {
                    (Rejecting::Began { at, .. }, None) => since = Some(at),
                    (Rejecting::Still(_), Some(_)) => {}
                    (Rejecting::Stopped(tally), Some(began)) => {
                        told += tally.rejected;
                        prop_assert_eq!(tally.by_reason.iter().sum::<u64>(), tally.rejected);
                        prop_assert!(tally.asked >= tally.rejected);
                        prop_assert!(began.after(tally.lasted) <= at(last));
                        since = None;
                    }
                    (event, since) => prop_assert!(false, "{event:?} since {since:?}"),
                }
            }
            prop_assert_eq!((told, since), (rejected, None));
        }

        #[test]
        fn any_clock_will_do(steps in prop::collection::vec((any::<u64>(), 0..3), 1..200)) {
            let mut episodes = Episodes::new();
            for (now, what) in steps {
                let now = if what == 0 { Time::MAX } else { Time::from_nanos(now) };
                reject(&mut episodes, now);
                // A bound, since a look at the end of time must not go on for ever.
                let looks = (0..10).take_while(|_| episodes.look(now).is_some()).count();
                prop_assert!(looks < 10);
            }
        }
    }
}
