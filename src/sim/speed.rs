use super::changing::Changing;
use super::scenario::Stops;
use crate::primitives::Time;

/// So many rounds of a stop are gone through one by one; more are passed at once.
const ROUNDS: f64 = 1_000.0;

/// How fast a server works over time, and so when work is done.
#[derive(Debug)]
pub(super) struct Speed {
    steps: Changing<f64>,
    stops: Option<Stops>,
    /// No stop begins later.
    end: Time,
}

impl Speed {
    pub(super) fn new(speed: &Changing<f64>, stops: Option<Stops>, end: Time) -> Self {
        Self { steps: speed.clone(), stops, end }
    }

    /// When work of so many seconds is done that begins at `start`, if ever.
    pub(super) fn done_at(&self, start: Time, work: f64) -> Option<Time> {
        let (mut now, mut left) = (start, work);
        loop {
            let speed = self.at(now);
            let end = self.next_change(now);
            let span = end.since(now).as_secs_f64();
            if speed > 0.0 && left / speed <= span {
                return Some(now.after(super::seconds(left / speed)));
            }
            if end == Time::MAX {
                return None;
            }
            (now, left) = self.pass_rounds(end, left - span * speed);
        }
    }

    fn at(&self, now: Time) -> f64 {
        let is_stopped = self.near(now).any(|(start, end)| start <= now && now < end);
        if is_stopped { 0.0 } else { *self.steps.at(now) }
    }

    /// The next moment at which anything may change.
    fn next_change(&self, now: Time) -> Time {
        let bounds = self.near(now).flat_map(|(start, end)| [start, end]);
        bounds.chain([self.next_step(now)]).filter(|at| *at > now).min().unwrap_or(Time::MAX)
    }

    fn next_step(&self, now: Time) -> Time {
        let steps = self.steps.steps();
        let position = steps.partition_point(|(at, _)| *at <= now);
        steps.get(position).map_or(Time::MAX, |(at, _)| *at)
    }

    /// The stops around `now`, and the next one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn near(&self, now: Time) -> impl Iterator<Item = (Time, Time)> {
        self.stops.into_iter().flat_map(move |Stops { every, length }| {
            let round = (now.as_secs_f64() / every) as u64;
            let starts =
                (round.saturating_sub(1).max(1)..=round + 2).map(move |it| it as f64 * every);
            starts
                .take_while(|start| *start <= self.end.as_secs_f64())
                .map(move |start| (Time::from_secs_f64(start), Time::from_secs_f64(start + length)))
        })
    }

    /// Many rounds in which nothing else changes are one like the other.
    fn pass_rounds(&self, now: Time, left: f64) -> (Time, f64) {
        let Some(Stops { every, length }) = self.stops else { return (now, left) };
        let moment = now.as_secs_f64();
        if moment < every {
            return (now, left); // The first round has no stop.
        }
        let work = self.steps.at(now) * (every - length);
        let until = self.next_step(now).min(self.end).as_secs_f64();
        let rounds = ((until - moment) / every).min(left / work).floor() - 2.0;
        if rounds <= ROUNDS {
            return (now, left);
        }
        (Time::from_secs_f64(moment + rounds * every), left - rounds * work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    fn speed(speed: f64, every: f64, length: f64) -> Speed {
        Speed::new(&Changing::always(speed), Some(Stops { every, length }), at(2e6))
    }

    #[test]
    fn a_stop_holds_work_up() {
        let speed = speed(2.0, 10.0, 4.0);
        assert_eq!(speed.done_at(at(0.0), 20.0), Some(at(10.0)));
        assert_eq!(speed.done_at(at(9.0), 4.0), Some(at(15.0)));
        assert_eq!(speed.done_at(at(12.0), 1.0), Some(at(14.5)));
        assert_eq!(speed.done_at(at(0.0), 20.0 + 12.0 * 3.0), Some(at(40.0)));
    }

    #[test]
    fn a_billion_stops_are_passed_at_once() {
        // Half of the time, so that work takes twice as long.
        let half = speed(1.0, 1e-3, 5e-4);
        let done = half.done_at(at(1.0), 9e5).map(Time::as_secs_f64);
        assert!(done.is_some_and(|done| (done - 1_800_001.0).abs() < 1e-3), "{done:?}");
        // Never while there are stops.
        let never = speed(1.0, 1e-3, 1e-3);
        let done = never.done_at(at(1.0), 1.0).map(Time::as_secs_f64);
        assert!(done.is_some_and(|done| (done - 2_000_001.0).abs() < 0.01), "{done:?}");
        assert_eq!(speed(0.0, 1e-3, 1e-4).done_at(at(1.0), 1.0), None);
        assert_eq!(half.done_at(at(1.0), f64::INFINITY), None);
    }
}
