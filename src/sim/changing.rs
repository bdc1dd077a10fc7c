use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::Value;

use crate::primitives::Time;

/// Something that changes at given moments: `x`, or `[[0, x], [60, y]]` for x until
/// 60 s, then y. It begins at 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changing<T>(Vec<(Time, T)>);

impl<T> Changing<T> {
    pub(super) fn always(value: T) -> Self {
        Self(vec![(Time::ZERO, value)])
    }

    /// What it is at `now`.
    pub(super) fn at(&self, now: Time) -> &T {
        let changed = self.0.partition_point(|(from, _)| *from <= now);
        &self.0[changed.saturating_sub(1)].1
    }

    /// What it is, and from when on.
    pub(super) fn steps(&self) -> &[(Time, T)] {
        &self.0
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Changing<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if !value.is_array() {
            return serde_json::from_value(value).map(Self::always).map_err(D::Error::custom);
        }
        let steps: Vec<(f64, T)> = serde_json::from_value(value).map_err(D::Error::custom)?;
        let is_ordered = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let starts_at_0 = steps.first().is_some_and(|(at, _)| *at == 0.0);
        if !starts_at_0 || !is_ordered || steps.iter().any(|(at, _)| !(0.0..=1e6).contains(at)) {
            let times: Vec<f64> = steps.iter().map(|(at, _)| *at).collect();
            return Err(D::Error::custom(format!(
                "steps must be [[0, value], [seconds, value], …] in order of time, up to 1e6 s, \
                 got {times:?}"
            )));
        }
        let steps = steps.into_iter().map(|(at, value)| (Time::from_secs_f64(at), value));
        Ok(Self(steps.collect()))
    }
}
