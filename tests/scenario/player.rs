use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate::primitives::Time;

use super::checks::{Played, check_answer};
use super::format::{Action, Answer, Common, File, Step};

/// What a scenario is about.
pub trait Subject: Sized {
    /// The table of the file that makes one.
    type Config: DeserializeOwned;
    /// What only it can do.
    type Action: DeserializeOwned;
    /// What can be seen of it.
    type Then: DeserializeOwned + Default;

    fn new(config: Self::Config) -> Played<Self>;

    /// Forgets what came of the last step.
    fn begin_step(&mut self) {}

    /// Only what tells of a longer time moves the clock.
    fn act(&mut self, now: &mut Time, action: &Self::Action) -> Played<Answer>;

    /// Lets happen what the passing of time brings.
    fn advance(&mut self, _from: Time, _to: Time) -> Played {
        Ok(())
    }

    /// Becomes what it is in the child of a fork.
    fn fork(&mut self) -> Played;

    fn look(&mut self, now: Time, then: &Self::Then) -> Played;

    /// After the last step nothing may be left when all is cancelled and given
    /// back.
    fn end(self, _now: Time) -> Played {
        Ok(())
    }
}

pub fn play<S: Subject>(file: File) -> Played {
    let config = S::Config::deserialize(file.config).map_err(|error| error.to_string())?;
    let steps: Vec<_> = file
        .steps
        .into_iter()
        .enumerate()
        .map(|(index, keys)| Ok((index + 1, naming_step(index + 1, Step::read(keys))?)))
        .collect::<Played<_>>()?;
    let mut now = Time::ZERO;
    let mut subject = S::new(config)?;
    for (number, step) in &steps {
        naming_step(*number, play_step(&mut subject, &mut now, step))?;
    }
    subject.end(now)
}

fn naming_step<T>(number: usize, played: Played<T>) -> Played<T> {
    played.map_err(|error| format!("step {number}: {error}"))
}

fn play_step<S: Subject>(
    subject: &mut S,
    now: &mut Time,
    step: &Step<S::Action, S::Then>,
) -> Played {
    subject.begin_step();
    let answer = match &step.action {
        Action::Own(action) => subject.act(now, action)?,
        Action::Common(common) => {
            act_common(subject, now, common)?;
            "done".into()
        }
    };
    check_answer(step.expect.as_ref(), &answer)?;
    subject.look(*now, &step.then)
}

fn act_common<S: Subject>(subject: &mut S, now: &mut Time, action: &Common) -> Played {
    match action {
        Common::At { at } if (0.0..f64::INFINITY).contains(at) => {
            let to = Time::from_secs_f64(*at);
            if to < *now {
                return Err("the clock does not go back".into());
            }
            subject.advance(*now, to)?;
            *now = to;
            Ok(())
        }
        Common::At { at } => Err(format!("no such time: {at}")),
        Common::Fork { fork: true } => subject.fork(),
        Common::Fork { fork: false } => Err("fork is true or not there".into()),
        Common::Look {} => Ok(()),
    }
}
