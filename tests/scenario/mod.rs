//! The step scenarios: their format and how they are played.

mod format;
mod player;

pub fn play(text: &str) -> Result<(), String> {
    let scenario: format::Scenario = toml::from_str(text).map_err(|error| error.to_string())?;
    player::Player::new(&scenario)?.play(&scenario.step)
}
