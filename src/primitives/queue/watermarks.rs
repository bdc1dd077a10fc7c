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
    low: usize,
    high: usize,
    is_high: bool,
}

impl Watermarks {
    /// With shares of a capacity.
    pub(crate) fn new(capacity: usize, low: f64, high: f64) -> Self {
        let mut marks = Self { low: 0, high: 0, is_high: false };
        marks.set(capacity, low, high);
        marks
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // shares are from 0 to 1
    pub(crate) fn set(&mut self, capacity: usize, low: f64, high: f64) {
        // A share such as 0.7 is a little more or less than that.
        let depth = |share: f64| share * capacity as f64;
        self.low = (depth(low) + 1e-6).floor() as usize;
        self.high = if capacity == 0 { usize::MAX } else { (depth(high) - 1e-6).ceil() as usize };
    }

    pub(crate) const fn clear(&mut self) {
        self.is_high = false;
    }

    /// The level that is reached with this depth, if it is another one.
    #[inline]
    pub(crate) const fn check(&mut self, depth: usize) -> Option<Level> {
        if self.is_high && depth <= self.low {
            self.is_high = false;
            Some(Level::Low)
        } else if !self.is_high && depth >= self.high {
            self.is_high = true;
            Some(Level::High)
        } else {
            None
        }
    }
}
