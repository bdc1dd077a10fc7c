use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::Criticality;

/// Published, so that everybody places a caller alike.
const KEY: [u8; 16] = *b"sluicegatecohort";
const HOUR: u64 = 3_600;
const COHORT_BITS: u32 = 7;

/// The epoch of a moment, given in seconds since 1970: whole hours.
///
/// Who is rejected first changes with the epoch, so that it is not always the same
/// callers.
#[must_use]
pub const fn epoch(wall_seconds: u64) -> u64 {
    wall_seconds / HOUR
}

/// Where a caller stands among all of its criticality; what stands lower is rejected
/// sooner.
///
/// The upper seven bits are its *cohort*, 0 to 127. The rest makes positions all but
/// unique, so that any share of a criticality lies below some position.
///
/// The place of a caller is the same at every stage that it passes and for all that it
/// does, so that under overload some callers are served wholly, instead of all of them
/// in part. That is the user priority of DAGOR (Zhou et al. 2018) and the cohort of
/// Uber's Cinnamon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u32);

impl Position {
    /// The one that is rejected first.
    pub const LOWEST: Self = Self(0);
    /// The one that is rejected last.
    pub const HIGHEST: Self = Self(u32::MAX);

    /// The position of whoever is known by `key`, such as a user, a session or a tenant,
    /// within an [`epoch`]: the same in every process and on every machine.
    ///
    /// It is the upper half of the SipHash-1-3, under the key `sluicegatecohort`, of the
    /// epoch in eight bytes, the least first, followed by the bytes of `key`. Since that
    /// is public, whoever may choose his own key can choose a high position for an hour.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the upper half of 64 bits
    pub fn of_key(key: impl AsRef<[u8]>, epoch: u64) -> Self {
        let mut hasher = SipHasher13::new_with_key(&KEY);
        hasher.write(&epoch.to_le_bytes());
        hasher.write(key.as_ref());
        Self((hasher.finish() >> 32) as u32)
    }

    /// A position for one decision, where no key is known: `draw` is a random number from
    /// 0 up to 1. What is below, and not-a-number, gives the lowest; what is above the
    /// highest.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    pub fn random(draw: f64) -> Self {
        Self((draw * 2.0_f64.powi(32)) as u32)
    }

    /// The position of these 32 bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// As 32 bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The cohort, from 0 to 127.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // seven bits
    pub const fn cohort(self) -> u8 {
        (self.0 >> (u32::BITS - COHORT_BITS)) as u8
    }
}

/// How early a decision is rejected under overload: by criticality, then by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u64);

impl Priority {
    /// Nothing is below it.
    pub const LOWEST: Self = Self::new(Criticality::Sheddable, Position::LOWEST);
    /// Nothing is above it.
    pub const HIGHEST: Self = Self::new(Criticality::CriticalPlus, Position::HIGHEST);

    /// That of a caller of `criticality` who stands at `position` in it.
    #[must_use]
    #[inline]
    pub const fn new(criticality: Criticality, position: Position) -> Self {
        Self(((criticality as u64) << u32::BITS) | position.0 as u64)
    }

    /// The criticality.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // two bits are left
    pub const fn criticality(self) -> Criticality {
        Criticality::ALL[(self.0 >> u32::BITS) as usize]
    }

    /// The position within the criticality.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the lower half
    pub const fn position(self) -> Position {
        Position(self.0 as u32)
    }

    /// The lowest of the same criticality.
    pub(super) const fn lowest_of_class(self) -> Self {
        Self::new(self.criticality(), Position::LOWEST)
    }

    /// The highest of the same criticality.
    pub(super) const fn highest_of_class(self) -> Self {
        Self::new(self.criticality(), Position::HIGHEST)
    }

    /// What lies at `share`, from 0 to 1, of the way to `higher`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative
    pub(super) fn towards(self, higher: Self, share: f64) -> Self {
        let way = higher.0.saturating_sub(self.0);
        Self(self.0 + ((way as f64 * share) as u64).min(way))
    }

    /// The one just above; [`HIGHEST`](Self::HIGHEST) has none and stays.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1).min(Self::HIGHEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// (key, epoch, position), by a SipHash-1-3 written down from its paper in Python.
    const PLACES: [(&str, u64, u32); 6] = [
        ("", 0, 0x02ff_39bc),
        ("alice", 0, 0x6ac9_3506),
        ("alice", 500_000, 0x1bdf_7240),
        ("bob", 500_000, 0x64a8_3970),
        ("tenant-é", 500_001, 0xc96e_3b01),
        ("a key that is longer than a block of the hash", 500_001, 0xcf71_cafe),
    ];

    #[test]
    fn a_key_has_its_place_everywhere_and_for_ever() {
        for (key, epoch, bits) in PLACES {
            assert_eq!(Position::of_key(key, epoch).bits(), bits, "{key:?} in epoch {epoch}");
            assert_eq!(Position::of_key(key.as_bytes(), epoch), Position::of_key(key, epoch));
        }
    }

    #[test]
    fn keys_are_spread_evenly_over_the_cohorts() {
        for epoch in [0, 480_000] {
            let mut callers = [0_u32; 128];
            for number in 0..128_000 {
                let position = Position::of_key(format!("user-{number}"), epoch);
                callers[usize::from(position.cohort())] += 1;
            }
            // Five standard deviations.
            assert!(callers.iter().all(|count| (840..=1160).contains(count)), "{callers:?}");
        }
    }

    #[test]
    fn places_change_with_the_hour_and_not_within_it() {
        let (hour, next) = (epoch(7_200), epoch(10_800));
        assert_eq!((epoch(3_599), epoch(3_600), hour, epoch(10_799)), (0, 1, 2, 2));
        let low = |epoch| {
            (0..1_000)
                .filter(|n| Position::of_key(format!("user-{n}"), epoch).cohort() < 64)
                .count()
        };
        let stays = (0..1_000).filter(|n| {
            let low = |epoch| Position::of_key(format!("user-{n}"), epoch).cohort() < 64;
            low(hour) && low(next)
        });
        // Half of the half that was low stays low.
        assert!((400..600).contains(&low(hour)));
        assert!((200..300).contains(&stays.count()));
    }

    #[test]
    fn odd_draws_give_positions() {
        for (draw, bits) in [
            (0.0, 0),
            (0.5, 1 << 31),
            (1.0, u32::MAX),
            (2.0, u32::MAX),
            (-1.0, 0),
            (f64::NAN, 0),
            (f64::INFINITY, u32::MAX),
        ] {
            assert_eq!(Position::random(draw).bits(), bits, "{draw}");
        }
        assert_eq!(Position::random(1.0 / 128.0).cohort(), 1);
        assert_eq!(Position::HIGHEST.cohort(), 127);
    }

    fn class() -> impl Strategy<Value = Criticality> {
        (0..4_usize).prop_map(|index| Criticality::ALL[index])
    }

    proptest! {
        #[test]
        fn criticality_comes_before_position(
            (one, other) in (class(), class()),
            (here, there) in any::<(u32, u32)>(),
            share in 0.0..=1.0,
        ) {
            let (here, there) = (Position::from_bits(here), Position::from_bits(there));
            let (low, high) = (Priority::new(one, here), Priority::new(other, there));
            prop_assert_eq!(low.cmp(&high), (one, here).cmp(&(other, there)));
            prop_assert_eq!((low.criticality(), low.position()), (one, here));
            let (low, high) = (low.min(high), low.max(high));
            let between = low.towards(high, share);
            prop_assert!(low <= between && between <= high);
            prop_assert!(high.next() > high || high == Priority::HIGHEST);
        }
    }
}
