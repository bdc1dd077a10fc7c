use crate::primitives::random::Random;

/// What a draw is for: each has numbers of its own, so that a change of one part of
/// a scenario, or of the policy, leaves the chance of the others as it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Arrival = 1,
    Service = 2,
    Delay = 3,
    There = 4,
    Back = 5,
    Backoff = 6,
    Throttle = 7,
    Think = 8,
    Policy = 9,
}

/// The numbers of one purpose, for one thing: a request and its attempt, a source of
/// arrivals, …; the same for the same seed.
pub(super) fn draws(seed: u64, purpose: Purpose, thing: u64, part: u64) -> Random {
    let purpose = purpose as u64;
    Random::new([purpose, thing, part].into_iter().fold(seed, |state, word| {
        Random::new(state ^ word.wrapping_mul(0xd6e8_feb8_6659_fd93)).bits()
    }))
}

/// Exponential, with mean 1.
pub(super) fn exponential(random: &mut Random) -> f64 {
    -libm::log(above_zero(random))
}

/// Normal, with mean 0 and deviation 1 (Box and Muller).
pub(super) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * libm::log(above_zero(random))).sqrt();
    radius * libm::cos(std::f64::consts::TAU * random.unit())
}

/// Above 0, up to 1.
pub(super) fn above_zero(random: &mut Random) -> f64 {
    1.0 - random.unit()
}
