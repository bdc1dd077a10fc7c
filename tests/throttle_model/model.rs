use std::collections::VecDeque;

use sluicegate::primitives::{Outcome, ThrottleConfig};

const BUCKETS: u64 = 30;

#[derive(Clone, Copy, Debug)]
enum Event {
    Attempt { at: u64, class: usize, is_admitted: bool },
    Answer { at: u64, is_accepted: bool },
    Fork,
}

/// The formula, over a list of all that ever happened.
pub struct Model {
    config: ThrottleConfig,
    seen: u64,
    events: Vec<Event>,
}

impl Model {
    pub fn new(config: ThrottleConfig) -> Self {
        Self { config, seen: 0, events: Vec::new() }
    }

    /// What it would answer, unless rounding decides. It goes on with the answer that
    /// was given.
    pub fn allow(&mut self, now: u64, class: usize, draw: f64, is_admitted: bool) -> Option<bool> {
        let probability = self.probability(now, class);
        let is_below = matches!(draw.partial_cmp(&probability), Some(std::cmp::Ordering::Less));
        let expected = !is_below || self.is_probe_due();
        self.events.push(Event::Attempt { at: self.seen, class, is_admitted });
        ((draw - probability).abs() > 1e-9 || draw.is_nan() || probability <= 0.0)
            .then_some(expected)
    }

    pub fn record(&mut self, now: u64, outcome: Outcome) {
        self.see(now);
        let is_accepted = matches!(outcome, Outcome::Success | Outcome::Ignored);
        self.events.push(Event::Answer { at: self.seen, is_accepted });
    }

    pub fn update(&mut self, k: f64, max_rejection: f64, min_requests: u32) {
        self.config = ThrottleConfig { k, max_rejection, min_requests, ..self.config };
    }

    pub fn reset(&mut self) {
        self.events.push(Event::Fork);
    }

    pub fn in_flight(&mut self, now: u64) -> u64 {
        self.see(now);
        self.unanswered().len() as u64
    }

    pub fn probability(&mut self, now: u64, class: usize) -> f64 {
        self.see(now);
        let (mut requests, mut accepts) = (0.0, 0.0);
        let mut attempts = [0.0; 4];
        for event in &self.events {
            match *event {
                Event::Attempt { at, class, is_admitted } if self.counts(at, BUCKETS) => {
                    attempts[class] += 1.0;
                    requests += f64::from(u8::from(!is_admitted));
                }
                Event::Answer { at, is_accepted } if self.counts(at, BUCKETS) => {
                    requests += 1.0;
                    accepts += f64::from(u8::from(is_accepted));
                }
                _ => {}
            }
        }
        let young =
            self.unanswered().iter().filter(|&&at| self.counts(at, BUCKETS / 5)).count() as f64;
        requests += young;
        accepts += young;
        if requests < f64::from(self.config.min_requests) {
            return 0.0;
        }
        let excess = requests - self.config.k * accepts;
        let overall = (excess / (requests + 1.0)).clamp(0.0, self.config.max_rejection);
        self.share(class, overall, attempts)
    }

    /// Takes what is to be refused from one class after the other.
    fn share(&self, asked: usize, overall: f64, mut attempts: [f64; 4]) -> f64 {
        let all: f64 = attempts.iter().sum();
        if attempts[asked] >= all {
            return overall;
        }
        let mut left = overall * all;
        attempts[asked] = attempts[asked].max(1.0);
        for (class, count) in attempts.into_iter().enumerate() {
            let taken = left.min(count * self.config.max_rejection);
            if class == asked {
                return taken / count;
            }
            left -= taken;
        }
        0.0
    }

    fn is_probe_due(&self) -> bool {
        let mut refused = 0;
        for event in self.events.iter().rev() {
            match *event {
                Event::Attempt { is_admitted: false, .. } => refused += 1,
                Event::Attempt { at, .. } => {
                    return refused >= 9 && self.seen - at >= self.width();
                }
                _ => {}
            }
        }
        refused >= 9
    }

    /// When those were admitted that are not answered, if the oldest is answered
    /// first.
    fn unanswered(&self) -> VecDeque<u64> {
        let mut waiting = VecDeque::new();
        for event in &self.events {
            match *event {
                Event::Attempt { at, is_admitted: true, .. } => waiting.push_back(at),
                Event::Answer { at, .. } => {
                    while waiting.front().is_some_and(|&since| !self.counted(since, at)) {
                        waiting.pop_front();
                    }
                    waiting.pop_front();
                }
                Event::Fork => waiting.clear(),
                Event::Attempt { .. } => {}
            }
        }
        waiting.retain(|&at| self.counts(at, BUCKETS));
        waiting
    }

    fn see(&mut self, now: u64) {
        self.seen = self.seen.max(now);
    }

    /// Whether a moment is within so many buckets from now.
    fn counts(&self, at: u64, buckets: u64) -> bool {
        at / self.width() + buckets > self.seen / self.width()
    }

    fn counted(&self, at: u64, then: u64) -> bool {
        at / self.width() + BUCKETS > then / self.width()
    }

    fn width(&self) -> u64 {
        let nanos = u64::try_from(self.config.window.as_nanos()).unwrap_or(u64::MAX);
        (nanos / BUCKETS).max(1)
    }
}
