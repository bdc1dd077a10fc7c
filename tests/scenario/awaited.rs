use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate::primitives::{Home, Ticket, Time, Waitable, Wakes};

use super::checks::Played;
use super::format::Answer;
use super::loops::{Loops, Sleeper};
use super::player::Subject;

const LONGEST_WAIT: f64 = 3600.0;

/// Something that tasks wait at.
pub trait Awaited: Sized {
    type Config: DeserializeOwned;
    /// What it can do beyond what every such thing can.
    type Action: DeserializeOwned;
    type Then: DeserializeOwned + Default;
    type Primitive: Waitable<Sleeper>;
    /// What a task asks for.
    type Wish;

    fn new(config: Self::Config) -> Played<Self>;

    fn primitive(&self) -> &Self::Primitive;

    fn primitive_mut(&mut self) -> &mut Self::Primitive;

    fn begin_step(&mut self) {}

    /// Only what tells of a longer time moves the clock.
    fn act(
        &mut self,
        loops: &mut Loops<Self>,
        now: &mut Time,
        action: &Self::Action,
    ) -> Played<Answer>;

    /// The first step of a task. It takes the sleeper only if it has to wait.
    fn ask(
        &mut self,
        now: Time,
        home: Home,
        task: &Asking<Self::Wish>,
        sleeper: &mut Option<Sleeper>,
    ) -> (Reply, Wakes<Sleeper>);

    /// What has come of it for a task that was woken.
    fn claim(&mut self, now: Time, name: &str, ticket: Ticket) -> (Claimed, Wakes<Sleeper>);

    /// Whether the name of a task is still in use although it does not wait.
    fn is_taken(&self, _name: &str) -> bool {
        false
    }

    /// Becomes what it is in the child of a fork, in which nobody waits.
    fn fork(&mut self) {}

    fn look(&mut self, loops: &Loops<Self>, now: Time, then: &Self::Then) -> Played;

    /// Gives back all that is held, when nobody waits any more.
    fn end(&mut self, loops: &mut Loops<Self>, now: Time) -> Played;
}

/// The answer to a task that asks.
pub enum Reply {
    Answered(String),
    Waiting(Ticket),
}

/// The answer to a task that was woken.
pub enum Claimed {
    Answered(String),
    Waiting,
}

/// A task that is about to ask.
#[derive(Debug)]
pub struct Asking<T> {
    pub name: String,
    pub wish: T,
    /// Its cancellation is pending.
    pub is_cancelled: bool,
}

/// What can be done wherever tasks wait, or else by this one subject.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Action<A> {
    OnLoops(LoopAction),
    Own(A),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum LoopAction {
    Cancel {
        #[serde(rename = "cancel")]
        name: String,
    },
    Tick {
        #[serde(rename = "tick")]
        on: String,
    },
    Settle {
        #[serde(rename = "settle")]
        on: String,
    },
    CloseLoop {
        #[serde(rename = "close_loop")]
        on: String,
    },
}

/// A subject together with the loops of those who wait at it.
pub struct OnLoops<S: Awaited> {
    subject: S,
    loops: Loops<S>,
}

impl<S: Awaited> OnLoops<S> {
    fn act_on_loops(&mut self, now: Time, action: &LoopAction) -> Played {
        let (loops, subject) = (&mut self.loops, &mut self.subject);
        match action {
            LoopAction::Cancel { name } => loops.cancel(subject, now, name),
            LoopAction::Tick { on } => loops.tick(subject, now, loops.known(on)?),
            LoopAction::Settle { on } if on == "all" => loops.settle_all(subject, now),
            LoopAction::Settle { on } => loops.settle(subject, now, loops.known(on)?).map(drop),
            LoopAction::CloseLoop { on } => {
                loops.close(loops.known(on)?);
                Ok(())
            }
        }
    }
}

impl<S: Awaited> Subject for OnLoops<S> {
    type Config = S::Config;
    type Action = Action<S::Action>;
    type Then = S::Then;

    fn new(config: S::Config) -> Played<Self> {
        Ok(Self { subject: S::new(config)?, loops: Loops::new() })
    }

    fn begin_step(&mut self) {
        self.loops.begin_step();
        self.subject.begin_step();
    }

    fn act(&mut self, now: &mut Time, action: &Self::Action) -> Played<Answer> {
        match action {
            Action::OnLoops(action) => self.act_on_loops(*now, action).map(|()| "done".into()),
            Action::Own(action) => self.subject.act(&mut self.loops, now, action),
        }
    }

    fn advance(&mut self, from: Time, to: Time) -> Played {
        self.loops.advance(&mut self.subject, from, to)
    }

    fn fork(&mut self) -> Played {
        drop(self.subject.primitive_mut().reset());
        self.subject.fork();
        self.loops.fork();
        Ok(())
    }

    fn look(&mut self, now: Time, then: &S::Then) -> Played {
        self.subject.look(&self.loops, now, then)
    }

    fn end(mut self, now: Time) -> Played {
        self.loops.cancel_all(&mut self.subject, now)?;
        self.subject.end(&mut self.loops, now)?;
        if self.subject.primitive().has_unclaimed(None) {
            return Err("after the last step somebody has not heard what came".into());
        }
        Ok(())
    }
}

pub fn timeout(seconds: f64) -> Played<Duration> {
    if (0.0..=LONGEST_WAIT).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("no such timeout: {seconds}"))
    }
}
