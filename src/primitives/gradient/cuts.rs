use super::shift::Slow;

/// Slowdown is steady if it grows by no more than this from cut to cut.
const STEADY: f64 = 1.25;

/// Cuts in a row, and what was seen of the service while they were made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cuts {
    count: u32,
    /// The limit before the first of them.
    before: Option<f64>,
    slow: Slow,
    /// The slowdown at the last one.
    slowdown: f64,
}

/// What a window that leads to a cut has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) slowdown: f64,
    /// How long its samples should have taken together, in nanoseconds.
    pub(super) expected: f64,
    pub(super) completions: f64,
    /// How long it was, in nanoseconds.
    pub(super) span: f64,
}

impl Cuts {
    /// Counts a cut. Whether slowdown has stopped to rise: what still rises cannot be compared
    /// with what comes of a test.
    pub(super) fn add(&mut self, limit: f64, seen: &Seen) -> bool {
        self.before.get_or_insert(limit);
        if self.count < 2 {
            // What the first one has seen is of the time before, in part.
            self.slow = Slow::default();
        }
        self.slow.forget_half();
        self.slow.took += seen.slowdown * seen.expected;
        self.slow.expected += seen.expected;
        self.slow.completions += seen.completions;
        self.slow.span += seen.span;
        self.count = self.count.saturating_add(1);
        let is_steady = seen.slowdown <= STEADY * self.slowdown;
        self.slowdown = seen.slowdown;
        is_steady
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// The limit before the first of them.
    pub(super) const fn before(&self) -> Option<f64> {
        self.before
    }

    /// What was seen, the last of it most.
    pub(super) const fn slow(&self) -> Slow {
        self.slow
    }
}
