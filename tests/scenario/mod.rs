//! The step scenarios: their format and how they are played.

mod awaited;
mod bucket;
mod budget;
mod checks;
mod classic;
mod codel;
mod format;
mod gate;
mod gate_steps;
mod gradient;
mod keyed_bucket;
mod limiter;
mod loops;
mod player;
mod queue;
mod queue_steps;
mod retries;
mod semaphore;
mod throttle;
mod token_budget;
mod words;

use awaited::OnLoops;
use bucket::Bucket;
use budget::Budget;
use codel::Controller;
use gate::Gate;
use keyed_bucket::KeyedBucket;
use limiter::Limiter;
use queue::Queue;
use sluicegate::primitives::{ClassicLimiter, GradientLimiter, SemaphoreLimiter};
use throttle::Throttle;
use token_budget::TokenBudget;

/// # Errors
/// What is wrong with the scenario, or with what is played: the first thing that
/// did not come as expected, and in which step.
pub fn play(text: &str) -> Result<(), String> {
    let file = format::File::read(text)?;
    match file.subject.as_str() {
        "limiter" if file.kind() == Some("semaphore") => {
            player::play::<OnLoops<Limiter<SemaphoreLimiter<_>>>>(file)
        }
        "limiter" if file.kind() == Some("latency") => {
            player::play::<OnLoops<Limiter<GradientLimiter<_>>>>(file)
        }
        "limiter" => player::play::<OnLoops<Limiter<ClassicLimiter<_>>>>(file),
        "throttle" => player::play::<Throttle>(file),
        "budget" => player::play::<Budget>(file),
        "token_budget" => player::play::<TokenBudget>(file),
        "codel" => player::play::<Controller>(file),
        "bucket" => player::play::<OnLoops<Bucket>>(file),
        "keyed_bucket" => player::play::<KeyedBucket>(file),
        "gate" => player::play::<OnLoops<Gate>>(file),
        "queue" => player::play::<OnLoops<Queue>>(file),
        other => Err(format!("nothing to play is called {other}")),
    }
}
