use super::share;

/// How full a queue is, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// At or above the upper watermark.
    High,
    /// At or below the lower one, after it was high.
    Low,
}

/// Two watermarks: what lies between them changes nothing, so that a queue at the
/// brim does not raise the alarm again and again.
#[derive(Debug)]
pub(crate) struct Watermarks {
    low: f64,
    high: f64,
    is_high: bool,
}

impl Watermarks {
    pub(crate) const fn new(low: f64, high: f64) -> Self {
        Self { low, high, is_high: false }
    }

    pub(crate) const fn set(&mut self, low: f64, high: f64) {
        self.low = low;
        self.high = high;
    }

    pub(crate) const fn clear(&mut self) {
        self.is_high = false;
    }

    /// The level that is reached with this depth, if it is another one.
    pub(crate) fn check(&mut self, depth: usize, capacity: usize) -> Option<Level> {
        if capacity == 0 {
            return None;
        }
        let share = share(depth, capacity);
        if self.is_high && share <= self.low {
            self.is_high = false;
            Some(Level::Low)
        } else if !self.is_high && share >= self.high {
            self.is_high = true;
            Some(Level::High)
        } else {
            None
        }
    }
}
