use std::time::Duration;

use super::error::shown;
use super::{ConfigError, Time};

/// The most tokens that a bucket can hold, that can be taken at once, and that can
/// be owed.
pub const MAX_TOKENS: f64 = 1e9;

/// Nano-tokens in a token.
pub(crate) const NANO: u64 = 1_000_000_000;
const RATE: &str = "a number that makes 1e-6 to 1e9 tokens a second";
const PER: &str = "a number of seconds from 1e-9 to 1e9";
const BURST: &str = "a number of tokens from 1e-9 to 1e9";

/// A rate of refill and a burst, held exactly.
///
/// Amounts are whole nano-tokens, and the rate is a fraction of two integers: a
/// nanosecond brings `gain` parts, of which `parts` make a nano-token. What is
/// counted in parts is a whole number at every nanosecond, so that nothing is ever
/// rounded and no error can grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    rate: f64,
    per: f64,
    /// `None` follows the rate.
    chosen_burst: Option<f64>,
    gain: i64,
    parts: i64,
    /// In nano-tokens.
    burst: u64,
    /// In which an empty bucket is full, rounded up.
    seconds: u64,
}

impl Refill {
    /// `rate` tokens in every `per` seconds, of which at most `burst` at once; by
    /// default those of one second, and at least 1.
    pub(crate) fn new(rate: f64, per: f64, burst: Option<f64>) -> Result<Self, ConfigError> {
        if !(1e-9..=1e9).contains(&per) {
            return Err(ConfigError::new("per", shown(per), PER));
        }
        // Division rounds: the bounds themselves belong to the range.
        if !(rate > 0.0 && (1e-6..=1e9).contains(&(rate / per))) {
            return Err(ConfigError::new("rate", shown(rate), RATE));
        }
        if let Some(burst) = burst.filter(|burst| !(1e-9..=MAX_TOKENS).contains(burst)) {
            return Err(ConfigError::new("burst", shown(burst), BURST));
        }
        let (gain, parts) = ratio(rate, per);
        let tokens = nano_tokens(burst.unwrap_or((rate / per).max(1.0)));
        let fill = u128::from(tokens) * u128::from(parts.unsigned_abs());
        let seconds = fill.div_ceil(u128::from(gain.unsigned_abs()) * u128::from(NANO));
        Ok(Self {
            rate,
            per,
            chosen_burst: burst,
            gain,
            parts,
            burst: tokens,
            seconds: u64::try_from(seconds).unwrap_or(u64::MAX),
        })
    }

    /// The same with another rate or burst.
    pub(crate) fn with(&self, rate: Option<f64>, burst: Option<f64>) -> Result<Self, ConfigError> {
        Self::new(rate.unwrap_or(self.rate), self.per, burst.or(self.chosen_burst))
    }

    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    pub(crate) const fn per(&self) -> f64 {
        self.per
    }

    pub(crate) fn burst(&self) -> f64 {
        self.burst as f64 / NANO as f64
    }

    /// The burst in nano-tokens.
    pub(crate) const fn whole(&self) -> u64 {
        self.burst
    }

    /// How many whole tokens can be in the bucket at once.
    pub(crate) const fn whole_burst(&self) -> u64 {
        self.burst / NANO
    }

    /// Whether this much, in nano-tokens, can be in the bucket at once.
    pub(crate) const fn can_hold(&self, cost: u64) -> bool {
        cost <= self.burst
    }

    /// In how many seconds an empty bucket is full, rounded up.
    pub(crate) const fn seconds_until_full(&self) -> u64 {
        self.seconds
    }

    /// The parts that came since the origin of the clock.
    fn gained(&self, now: Time) -> i128 {
        i128::from(now.as_nanos()) * i128::from(self.gain)
    }

    /// What comes within a span, in nano-tokens, rounded up; at most [`MAX_TOKENS`].
    pub(crate) fn gained_within(&self, span: Duration) -> u64 {
        let span = Time::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        divide_up(self.gained(span), self.parts).min(nano_tokens(MAX_TOKENS))
    }

    /// A tick of which at most 2 to the power of `bits` fill an empty bucket, and of at
    /// least a nanosecond.
    pub(crate) fn tick(&self, bits: u32) -> Tick {
        let bits_of = |parts: i128| i128::BITS - parts.leading_zeros();
        let fills = bits_of(self.parts(self.burst)).saturating_sub(bits);
        // One more: what comes after the last moment of all must fit, too.
        Tick { shift: fills.max(bits_of(self.gain.into()) + 1) }
    }

    fn parts(&self, cost: u64) -> i128 {
        i128::from(cost) * i128::from(self.parts)
    }
}

/// A unit of time in which moments are counted by 63 bits, and found without a division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// It brings two to the power of this in parts.
    shift: u32,
}

// None is shorter than a nanosecond, of which 64 bits count all.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
impl Tick {
    /// How many are over.
    pub(crate) fn count(self, refill: &Refill, now: Time) -> u64 {
        (refill.gained(now) >> self.shift) as u64
    }

    /// After how many of them it is full.
    pub(crate) fn count_until_full(self, contents: Contents) -> u64 {
        (-(-contents.full_at >> self.shift)) as u64
    }
}

/// What is in a bucket.
///
/// As in the generic cell rate algorithm (ITU-T I.371) it is one number: when the
/// bucket is full, in parts gained since the origin of the clock. So it refills by
/// the mere passing of time, and a bucket that was left alone is full however long
/// that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contents {
    full_at: i128,
}

impl Contents {
    /// Full from the origin of the clock on.
    pub(crate) const FULL: Self = Self { full_at: 0 };

    /// Parts that are missing from a full bucket; above its burst in debt.
    fn missing(self, refill: &Refill, now: Time) -> i128 {
        self.full_at.saturating_sub(refill.gained(now)).max(0)
    }

    /// Whole nano-tokens that are missing from a full bucket.
    pub(crate) fn room(self, refill: &Refill, now: Time) -> u64 {
        let room = self.missing(refill, now) / i128::from(refill.parts);
        u64::try_from(room).unwrap_or(u64::MAX)
    }

    /// Whether `cost` is there. What the bucket cannot hold, since it was larger
    /// once, is there when the bucket is full.
    pub(crate) fn has(self, refill: &Refill, now: Time, cost: u64) -> bool {
        self.missing(refill, now) <= refill.parts(refill.burst.saturating_sub(cost))
    }

    /// Takes `cost`, whether it is there or not; of what is owed above
    /// [`MAX_TOKENS`] nothing is remembered.
    pub(crate) fn take(&mut self, refill: &Refill, now: Time, cost: u64) {
        let most = refill.parts(refill.burst.saturating_add(nano_tokens(MAX_TOKENS)));
        let missing = self.missing(refill, now).saturating_add(refill.parts(cost)).min(most);
        self.full_at = refill.gained(now).saturating_add(missing);
    }

    /// Puts `cost` back; what does not fit is lost.
    pub(crate) fn put_back(&mut self, refill: &Refill, cost: u64) {
        self.full_at = self.full_at.saturating_sub(refill.parts(cost));
    }

    /// When `cost` is there, which may be before the latest take.
    pub(crate) fn has_at(self, refill: &Refill, cost: u64) -> Time {
        let spare = refill.parts(refill.burst.saturating_sub(cost));
        Time::from_nanos(divide_up(self.full_at.saturating_sub(spare), refill.gain))
    }

    /// When `cost` is there after `before` has been taken, of which each part is
    /// taken as soon as it is there.
    pub(crate) fn has_after(self, refill: &Refill, now: Time, before: u128, cost: u64) -> Time {
        let before = i128::try_from(before).unwrap_or(i128::MAX);
        let full_at = { self.full_at.max(refill.gained(now)) }
            .saturating_add(before.saturating_mul(i128::from(refill.parts)));
        Self { full_at }.has_at(refill, cost)
    }

    /// The tokens in the bucket; negative in debt.
    pub(crate) fn tokens(self, refill: &Refill, now: Time) -> f64 {
        let there = refill.parts(refill.burst) - self.missing(refill, now);
        let parts = i128::from(refill.parts);
        let rest = there.rem_euclid(parts) as f64 / parts as f64;
        (there.div_euclid(parts) as f64 + rest) / NANO as f64
    }

    /// Whole tokens in the bucket, none in debt.
    pub(crate) fn whole_tokens(self, refill: &Refill, now: Time) -> u64 {
        let there = refill.parts(refill.burst) - self.missing(refill, now);
        let token = refill.parts(NANO);
        // Seldom more than 64 bits, and 128 are slow to divide.
        match (u64::try_from(there), u64::try_from(token)) {
            (Ok(there), Ok(token)) => there / token,
            _ => u64::try_from(there / token).unwrap_or(0),
        }
    }

    /// The same contents under another rate and burst, rounded down; what does not
    /// fit is lost.
    pub(crate) fn convert(self, now: Time, from: &Refill, to: &Refill) -> Self {
        let there = from.parts(from.burst) - self.missing(from, now);
        let (old, new) = (i128::from(from.parts), i128::from(to.parts));
        let there = there.div_euclid(old) * new + there.rem_euclid(old) * new / old;
        let missing = (to.parts(to.burst) - there).max(0);
        Self { full_at: to.gained(now).saturating_add(missing) }
    }
}

/// Tokens in nano-tokens, to the nearest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
pub(crate) fn nano_tokens(tokens: f64) -> u64 {
    (tokens * NANO as f64).round() as u64
}

/// `rate / per` as a fraction of integers up to 2⁶², never above what it stands for.
fn ratio(rate: f64, per: f64) -> (i64, i64) {
    let ((rate, rate_scale), (per, per_scale)) = (decimal(rate), decimal(per));
    // Below 2¹²⁷ both, since a decimal has 2⁵³ · 10²² at most.
    let (mut gain, mut parts) = (rate * per_scale, per * rate_scale);
    let divisor = greatest_common_divisor(gain, parts);
    (gain, parts) = (gain / divisor, parts / divisor);
    let excess = 66_u32.saturating_sub(gain.max(parts).leading_zeros());
    (gain, parts) = (gain >> excess, parts.div_ceil(1 << excess));
    (i64::try_from(gain).unwrap_or(i64::MAX), i64::try_from(parts).unwrap_or(i64::MAX))
}

/// The decimal fraction with the fewest digits that is this number to a float, as
/// numerator and power of ten: 0.3 is 3 / 10, which no float is.
#[allow(clippy::float_cmp)] // exact on purpose
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and positive
fn decimal(value: f64) -> (u128, u128) {
    const WHOLE: f64 = 9_007_199_254_740_992.0; // 2⁵³
    const MOST_DIGITS: u32 = 22; // the last power of ten that is a float
    let (mut best, mut power) = (value.round(), 1.0);
    let mut digits = 0;
    while best / power != value && digits < MOST_DIGITS {
        let next = (value * power * 10.0).round();
        if next > WHOLE {
            break;
        }
        (best, power, digits) = (next, power * 10.0, digits + 1);
    }
    (best as u128, 10_u128.pow(digits))
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// At least 0, at most `u64::MAX`.
fn divide_up(dividend: i128, divisor: i64) -> u64 {
    let (dividend, divisor) = (dividend.max(0).unsigned_abs(), divisor.unsigned_abs());
    // Seldom more than 64 bits, and 128 are slow to divide.
    u64::try_from(dividend).map_or_else(
        |_| u64::try_from(dividend.div_ceil(u128::from(divisor))).unwrap_or(u64::MAX),
        |dividend| dividend.div_ceil(divisor),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp)] // exact on purpose

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn refill(rate: f64, per: f64, burst: f64) -> Refill {
        Refill::new(rate, per, Some(burst)).unwrap()
    }

    /// Empties a bucket, and says when the tokens are there.
    fn has_at(refill: &Refill, tokens: f64) -> u64 {
        let mut contents = Contents::FULL;
        contents.take(refill, Time::ZERO, refill.burst);
        let (cost, at) = (nano_tokens(tokens), contents.has_at(refill, nano_tokens(tokens)));
        assert!(contents.has(refill, at, cost));
        assert!(!contents.has(refill, Time::from_nanos(at.as_nanos() - 1), cost));
        at.as_nanos()
    }

    #[test]
    fn a_rate_is_that_of_the_decimals_as_written() {
        assert_eq!(has_at(&refill(0.3, 1.0, 3.0), 3.0), 10 * SECOND);
        assert_eq!(has_at(&refill(0.1, 1.0, 1.0), 1.0), 10 * SECOND);
        assert_eq!(has_at(&refill(100.0, 60.0, 100.0), 100.0), 60 * SECOND);
        assert_eq!(has_at(&refill(1.0, 0.7, 10.0), 10.0), 7 * SECOND);
        assert_eq!(has_at(&refill(200_000.0, 60.0, 1e6), 1e6), 300 * SECOND);
        assert_eq!(has_at(&refill(1e-6, 1.0, 1.0), 1.0), 1_000_000 * SECOND);
        assert_eq!(has_at(&refill(1e9, 1.0, 1e9), 1.0), 1);
        assert_eq!(has_at(&refill(1e9, 1.0, 1e9), 1e9), SECOND);
        // A nano-token in more than a nanosecond.
        assert_eq!(has_at(&refill(0.3, 1.0, 3.0), 1e-9), 4);
        assert_eq!(has_at(&refill(2.5e-6, 1.0, 1.0), 1e-9), 400_000);
    }

    #[test]
    fn a_rate_with_too_many_digits_is_rounded_down_and_hardly() {
        for (rate, per) in [
            (1.234_567_890_123_456_7e-6, 1.0),
            (100_000_000.123_456_78, 0.123_456_789_012_345_68),
            (std::f64::consts::PI, std::f64::consts::E),
            (1.0 / 3.0, 1e-9 / 7.0 + 1e-9),
            (1e18 / 3.0, 1e9),
            (1e-15, 1e-9),
        ] {
            let (gain, parts) = ratio(rate, per);
            assert!(gain > 0 && parts > 0);
            let error = gain as f64 / parts as f64 / (rate / per) - 1.0;
            assert!(error.abs() < 1e-9, "{rate} / {per} by {error}");
            let Refill { burst, .. } = refill(rate, per, MAX_TOKENS);
            assert_eq!(burst, 1_000_000_000_000_000_000);
        }
    }

    #[test]
    fn no_extreme_overflows() {
        for (rate, per) in [
            (1e-6, 1.0),
            (1e9, 1.0),
            (1.234_567_890_123_456_7e-6, 1.0),
            (999_999_999.999_999_9, 1.0),
            (1e-15, 1e-9),
            (1e18, 1e9),
        ] {
            let refill = refill(rate, per, MAX_TOKENS);
            let burst = refill.burst;
            for now in [Time::ZERO, Time::from_nanos(1_000_000_000 * SECOND), Time::MAX] {
                let mut contents = Contents::FULL;
                for _ in 0..5 {
                    contents.take(&refill, now, burst);
                }
                // Of a debt no more is remembered than this.
                assert!((contents.tokens(&refill, now) + MAX_TOKENS).abs() < 1e-3);
                assert!(contents.has_at(&refill, burst) >= now);
                let _ = contents.has_after(&refill, now, u128::MAX, burst);
                let other = Refill::new(1e9, 1.0, Some(1e-9)).unwrap();
                let converted = contents.convert(now, &refill, &other);
                assert!(converted.tokens(&other, now) < -0.999 * MAX_TOKENS);
                assert!(converted.convert(now, &other, &refill).tokens(&refill, now) < 0.0);
                for _ in 0..3 {
                    contents.put_back(&refill, burst);
                }
                assert!(contents.missing(&refill, now) == 0);
            }
        }
    }

    #[test]
    fn a_thousand_million_seconds_fill_it_and_no_more() {
        let refill = refill(1e9, 1.0, 1.5);
        let mut contents = Contents::FULL;
        contents.take(&refill, Time::ZERO, NANO);
        let later = Time::from_nanos(1_000_000_000 * SECOND);
        assert_eq!(contents.tokens(&refill, later), 1.5);
        contents.take(&refill, later, NANO);
        assert!(!contents.has(&refill, later, NANO));
        assert!(contents.has(&refill, later, NANO / 2));
    }

    #[test]
    fn nothing_drifts() {
        // A third of a nano-token in a nanosecond, taken as it comes.
        let refill = refill(1.0, 3.0, 1.0);
        let mut contents = Contents::FULL;
        contents.take(&refill, Time::ZERO, NANO);
        let (mut taken, mut now) = (0, 0);
        while now < 1_000_000 {
            now += 1 + now % 7;
            while contents.has(&refill, Time::from_nanos(now), 1) {
                contents.take(&refill, Time::from_nanos(now), 1);
                taken += 1;
            }
            assert_eq!(taken, now / 3);
        }
    }

    #[test]
    fn whole_tokens_are_those_that_can_be_taken() {
        for refill in [refill(0.3, 1.0, 3.5), refill(1e9, 1.0, 1e9), refill(1e-6, 1.0, 1e-9)] {
            let mut contents = Contents::FULL;
            let mut now = Time::ZERO;
            for _ in 0..50 {
                let whole = contents.whole_tokens(&refill, now);
                assert!(whole == 0 || contents.has(&refill, now, whole * NANO));
                let more = (whole + 1) * NANO;
                assert!(!refill.can_hold(more) || !contents.has(&refill, now, more));
                contents.take(&refill, now, refill.burst / 3);
                now = Time::from_nanos(now.as_nanos() + SECOND / 7);
            }
            contents.take(&refill, now, refill.burst * 2);
            assert_eq!(contents.whole_tokens(&refill, now), 0);
        }
    }

    #[test]
    fn the_seconds_until_full_are_rounded_up() {
        for (rate, burst, seconds) in [
            (0.3, 3.0, 10),
            (0.3, 3.000_000_001, 11),
            (100.0, 1.0, 1),
            (1e9, 1e-9, 1),
            (1e-6, 1e9, 1_000_000_000_000_000),
        ] {
            assert_eq!(refill(rate, 1.0, burst).seconds_until_full(), seconds);
        }
    }

    #[test]
    fn what_is_there_survives_a_change() {
        let (slow, fast) = (refill(1.0, 3.0, 10.0), refill(7.0, 0.1, 10.0));
        let now = Time::from_nanos(5 * SECOND + 1);
        let mut contents = Contents::FULL;
        contents.take(&slow, Time::ZERO, 10 * NANO);
        // 5.000000001 / 3 tokens, to a whole part of a nano-token.
        let changed = contents.convert(now, &slow, &fast);
        assert_eq!(changed.room(&fast, now), 10 * NANO - 1_666_666_667);
        assert_eq!(changed.convert(now, &fast, &slow).room(&slow, now), 10 * NANO - 1_666_666_667);
        // A smaller burst keeps what fits; a debt stays one.
        let small = refill(1.0, 3.0, 1.0);
        assert!(contents.convert(now, &slow, &small).missing(&small, now) == 0);
        contents.take(&slow, now, 10 * NANO);
        let debt = contents.tokens(&slow, now);
        assert!((contents.convert(now, &slow, &small).tokens(&small, now) - debt).abs() < 1e-8);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (rate, per, burst, parameter) in [
            (0.0, 1.0, None, "rate"),
            (-1.0, 1.0, None, "rate"),
            (f64::NAN, 1.0, None, "rate"),
            (f64::INFINITY, 1.0, None, "rate"),
            (0.9e-6, 1.0, None, "rate"),
            (1.1e9, 1.0, None, "rate"),
            (1.0, 2e6, None, "rate"),
            (1.0, 0.0, None, "per"),
            (1.0, -1.0, None, "per"),
            (1.0, f64::NAN, None, "per"),
            (1.0, 1e10, None, "per"),
            (1.0, 1.0, Some(0.0), "burst"),
            (1.0, 1.0, Some(-1.0), "burst"),
            (1.0, 1.0, Some(f64::NAN), "burst"),
            (1.0, 1.0, Some(1.1e9), "burst"),
        ] {
            let error = Refill::new(rate, per, burst).unwrap_err();
            assert_eq!(error.parameter(), parameter);
        }
        for (rate, per) in [(1e-6, 1.0), (1e9, 1.0), (1e-15, 1e-9), (1e18, 1e9), (1e3, 1e9)] {
            assert!(Refill::new(rate, per, None).is_ok(), "{rate} / {per}");
        }
    }

    #[test]
    fn the_burst_follows_the_rate_until_it_is_chosen() {
        let default = Refill::new(200_000.0, 60.0, None).unwrap();
        assert!((default.burst() - 200_000.0 / 60.0).abs() < 1e-8);
        assert_eq!(Refill::new(0.5, 1.0, None).unwrap().burst(), 1.0);
        let faster = default.with(Some(600_000.0), None).unwrap();
        assert_eq!((faster.rate(), faster.burst()), (600_000.0, 10_000.0));
        let chosen = faster.with(None, Some(5.0)).unwrap();
        assert_eq!(chosen.with(Some(60.0), None).unwrap().burst(), 5.0);
        assert_eq!(chosen.rate(), 600_000.0);
    }
}
