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
    /// The least depth that is not low; 0 if none is.
    above_low: usize,
    /// The least depth that is high.
    high: usize,
    is_high: bool,
}

impl Watermarks {
    /// With shares of a capacity.
    pub(crate) fn new(capacity: usize, low: f64, high: f64) -> Self {
        let mut marks = Self { above_low: 0, high: 0, is_high: false };
        marks.set(capacity, low, high);
        marks
    }

    pub(crate) fn set(&mut self, capacity: usize, low: f64, high: f64) {
        // The least depth whose share is high, and the most whose share is low. A
        // product such as 0.7 × 10 may be a little more or less than that.
        let is_high = |depth| share(depth, capacity) >= high;
        let is_low = |depth| share(depth, capacity) <= low;
        let near = |share: f64| (near(share, capacity).saturating_sub(1)..).take(3);
        self.high = near(high).find(|&depth| is_high(depth)).unwrap_or(usize::MAX);
        self.above_low = near(low).filter(|&depth| is_low(depth)).last().unwrap_or(0) + 1;
        if capacity == 0 {
            (self.above_low, self.high) = (0, usize::MAX);
        }
    }

    pub(crate) const fn clear(&mut self) {
        self.is_high = false;
    }

    /// The level that is reached with this depth, if it is another one.
    #[inline]
    pub(crate) const fn check(&mut self, depth: usize) -> Option<Level> {
        if self.is_high && depth < self.above_low {
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

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // shares are from 0 to 1
fn near(share: f64, capacity: usize) -> usize {
    (share * capacity as f64).round() as usize
}
