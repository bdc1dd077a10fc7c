use crate::primitives::{ConfigError, Criticality};

/// From which limit on a unit of an idle reserve is kept free.
const KEPT_FROM: f64 = 4.0;

/// Shares of the limit that are there for a criticality and above.
///
/// Of a share, floor(limit × share) units are reserved. What of them is idle is lent to
/// the less critical, all but one unit where the limit is 4 or more: somebody who comes
/// finds room at once, and the next one as soon as anything is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reserve {
    shares: [f64; 4],
}

impl Reserve {
    /// No reserve.
    #[must_use]
    pub const fn none() -> Self {
        Self { shares: [0.0; 4] }
    }

    /// The same with `share` of the limit for `criticality` and above.
    #[must_use]
    pub const fn with(mut self, criticality: Criticality, share: f64) -> Self {
        self.shares[criticality.index()] = share;
        self
    }

    /// The share for a criticality and above.
    #[must_use]
    pub const fn share(&self, criticality: Criticality) -> f64 {
        self.shares[criticality.index()]
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let range = "shares from 0 to 1, of 1 at most together";
        let sum: f64 = self.shares.iter().sum();
        let bad = self.shares.iter().find(|share| !(0.0..=1.0).contains(*share)).copied();
        match bad.or((sum > 1.0).then_some(sum)) {
            Some(value) => Err(ConfigError::new("reserve", value, range)),
            None => Ok(()),
        }
    }

    /// Whether there is any for this criticality or a lower one.
    pub(super) fn is_for(&self, criticality: Criticality) -> bool {
        self.shares[..=criticality.index()].iter().any(|share| *share > 0.0)
    }

    /// How many units somebody of that criticality has to leave free, if so much is in
    /// flight of each.
    #[inline]
    pub(super) fn kept_from(
        &self,
        criticality: Criticality,
        limit: f64,
        in_flight: &[u64; 4],
    ) -> u64 {
        let above = criticality.index() + 1;
        if limit < KEPT_FROM || self.shares[above..].iter().all(|share| *share <= 0.0) {
            return 0;
        }
        let is_kept = |class: usize| {
            let used: u64 = in_flight[class..].iter().sum();
            (limit * self.shares[class]).floor() > used as f64
        };
        (above..4).map(|class| u64::from(is_kept(class))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Criticality::{Critical, CriticalPlus, Sheddable};

    #[test]
    fn one_unit_of_an_idle_reserve_is_kept() {
        let reserve = Reserve::none().with(Critical, 0.2);
        assert_eq!(reserve.kept_from(Sheddable, 10.0, &[0, 0, 0, 0]), 1);
        assert_eq!(reserve.kept_from(Sheddable, 10.0, &[9, 0, 1, 0]), 1);
        assert_eq!(reserve.kept_from(Sheddable, 10.0, &[5, 0, 1, 1]), 0, "it is in use");
        assert_eq!(reserve.kept_from(Critical, 10.0, &[0, 0, 0, 0]), 0, "it is for these");
        assert_eq!(reserve.kept_from(CriticalPlus, 10.0, &[0, 0, 0, 0]), 0);
        assert_eq!(reserve.kept_from(Sheddable, 4.0, &[0, 0, 0, 0]), 0, "floor(0.8) is none");
        assert_eq!(reserve.kept_from(Sheddable, 3.9, &[0, 0, 0, 0]), 0, "too small to keep one");
    }

    #[test]
    fn each_reserve_keeps_its_own() {
        let reserve = Reserve::none().with(Critical, 0.2).with(CriticalPlus, 0.2);
        assert_eq!(reserve.kept_from(Sheddable, 10.0, &[0, 0, 0, 0]), 2);
        assert_eq!(reserve.kept_from(Critical, 10.0, &[0, 0, 0, 0]), 1);
        assert_eq!(reserve.kept_from(Sheddable, 10.0, &[0, 0, 0, 2]), 0);
    }

    #[test]
    fn shares_are_shares() {
        for (share, is_good) in
            [(0.0, true), (1.0, true), (-0.1, false), (1.1, false), (f64::NAN, false)]
        {
            assert_eq!(Reserve::none().with(Critical, share).check().is_ok(), is_good, "{share}");
        }
        assert!(Reserve::none().with(Critical, 0.6).with(Sheddable, 0.6).check().is_err());
    }
}
