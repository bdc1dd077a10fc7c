use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::checks::Played;

/// A scenario before it is known what its subject can do.
pub struct File {
    /// The name of the one table that makes what is played.
    pub subject: String,
    pub config: Value,
    pub steps: Vec<Table>,
}

impl File {
    pub fn read(text: &str) -> Played<Self> {
        let mut file: Table = text.parse().map_err(|error| format!("no TOML: {error}"))?;
        let about: String = take(&mut file, "about")?.ok_or("it does not say what it is about")?;
        if about.trim().is_empty() {
            return Err("it says nothing about itself".into());
        }
        let steps = take(&mut file, "step")?.ok_or("it has no steps")?;
        let mut subjects = file.into_iter();
        match (subjects.next(), subjects.next()) {
            (Some((subject, config)), None) => Ok(Self { subject, config, steps }),
            found => Err(format!("one table has to say what is played: {found:?}")),
        }
    }

    /// Which kind of its subject.
    pub fn kind(&self) -> Option<&str> {
        self.config.get("kind")?.as_str()
    }
}

/// What is done and what must come of it.
pub struct Step<A, T> {
    pub action: Action<A>,
    pub expect: Option<Answer>,
    pub then: T,
}

/// What a step does: told by its keys, of which only `expect` and `then` go with
/// every action.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Action<A> {
    Common(Common),
    Own(A),
}

/// What can be done whatever the subject.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Common {
    At { at: f64 },
    Fork { fork: bool },
    Look {},
}

/// The answer to a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Word(String),
    Number(f64),
}

impl From<&str> for Answer {
    fn from(word: &str) -> Self {
        Self::Word(word.into())
    }
}

impl<A: DeserializeOwned, T: DeserializeOwned + Default> Step<A, T> {
    pub fn read(mut keys: Table) -> Played<Self> {
        let expect = take(&mut keys, "expect")?;
        let then = take(&mut keys, "then")?.unwrap_or_default();
        let names: Vec<_> = keys.keys().cloned().collect();
        // An untagged enum only says that nothing fits.
        let action = Action::deserialize(Value::Table(keys)).map_err(|_| {
            format!("no action has just these keys, or a value is of a wrong type: {names:?}")
        })?;
        Ok(Self { action, expect, then })
    }
}

fn take<T: DeserializeOwned>(keys: &mut Table, key: &str) -> Played<Option<T>> {
    let value = keys.remove(key).map(T::deserialize).transpose();
    value.map_err(|error| format!("{key}: {error}"))
}
