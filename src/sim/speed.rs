use super::changing::Changing;
use super::scenario::Stops;
use crate::primitives::Time;

/// How fast a server works over time, and so when work is done.
#[derive(Debug)]
pub(super) struct Speed {
    /// From when on, and how fast.
    segments: Vec<(Time, f64)>,
}

impl Speed {
    /// `end` is how far the stops are laid out.
    pub(super) fn new(speed: &Changing<f64>, stops: Option<Stops>, end: Time) -> Self {
        let mut bounds: Vec<Time> = speed.steps().iter().map(|(at, _)| *at).collect();
        let mut pauses = Vec::new();
        if let Some(Stops { every, length }) = stops {
            let starts = (1_u32..).map(|round| f64::from(round) * every);
            for start in starts.take_while(|start| *start <= end.as_secs_f64()) {
                let pause = (Time::from_secs_f64(start), Time::from_secs_f64(start + length));
                bounds.extend([pause.0, pause.1]);
                pauses.push(pause);
            }
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut pauses = pauses.into_iter().peekable();
        let segments = bounds.into_iter().map(|at| {
            while pauses.next_if(|(_, end)| *end <= at).is_some() {}
            let is_paused = pauses.peek().is_some_and(|(start, _)| *start <= at);
            (at, if is_paused { 0.0 } else { *speed.at(at) })
        });
        Self { segments: segments.collect() }
    }

    /// When work of so many seconds is done that begins at `start`, if ever.
    pub(super) fn done_at(&self, start: Time, work: f64) -> Option<Time> {
        let first = self.segments.partition_point(|(at, _)| *at <= start).saturating_sub(1);
        let (mut now, mut left) = (start, work);
        for (position, (_, speed)) in self.segments.iter().enumerate().skip(first) {
            let end = self.segments.get(position + 1).map_or(Time::MAX, |(at, _)| *at);
            let span = end.since(now).as_secs_f64();
            if *speed > 0.0 && left / speed <= span {
                return Some(now.after(super::seconds(left / speed)));
            }
            left -= span * speed;
            now = end;
        }
        None
    }
}
