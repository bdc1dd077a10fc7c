//! The step scenarios: their format and how they are played.

mod format;
mod player;

/// # Errors
/// What is wrong with the scenario, or with what is played: the first thing that
/// did not come as expected, and in which step.
pub fn play(text: &str) -> Result<(), String> {
    let scenario: format::Scenario = toml::from_str(text).map_err(|error| error.to_string())?;
    if scenario.about.trim().is_empty() {
        return Err("it says nothing about itself".into());
    }
    player::Player::new(&scenario.limiter)?.play(&scenario.steps)
}
