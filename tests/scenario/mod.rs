//! The step scenarios: their format and how they are played.

mod awaited;
mod checks;
mod format;
mod limiter;
mod loops;
mod player;

use awaited::OnLoops;
use limiter::Limiter;

/// # Errors
/// What is wrong with the scenario, or with what is played: the first thing that
/// did not come as expected, and in which step.
pub fn play(text: &str) -> Result<(), String> {
    let file = format::File::read(text)?;
    match file.subject.as_str() {
        "limiter" => player::play::<OnLoops<Limiter>>(file),
        other => Err(format!("nothing to play is called {other}")),
    }
}
