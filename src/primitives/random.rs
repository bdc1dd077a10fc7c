/// A small generator of numbers that look random, the same for the same seed
/// (`SplitMix64`, Steele, Lea and Flood 2014). Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 up to and without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// 64 of them.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn units_are_spread_evenly_over_their_range() {
        let mut random = Random::new(7);
        let units: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        let mean = units.iter().sum::<f64>() / units.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let (mut one, mut same, mut other) = (Random::new(1), Random::new(1), Random::new(2));
        let first = one.unit();
        assert_eq!(first.to_bits(), same.unit().to_bits());
        assert_ne!(first.to_bits(), other.unit().to_bits());
    }
}
