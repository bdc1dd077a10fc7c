//! How what came is compared with what must come.

use std::collections::BTreeMap;
use std::fmt::Debug;

use sluicegate::primitives::Reason;

use super::format::Answer;

/// What was done, or what is wrong.
pub type Played<T = ()> = Result<T, String>;

#[allow(clippy::needless_pass_by_value)] // what is got is made to be compared
pub fn check<T: PartialEq + Debug>(what: &str, expected: Option<T>, got: T) -> Played {
    match expected {
        Some(expected) if expected != got => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}

pub fn check_near(what: &str, expected: Option<f64>, got: f64) -> Played {
    match expected {
        Some(expected) if !is_near(expected, got) => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}

pub fn check_least<T: Copy + PartialOrd + Debug>(
    what: &str,
    expected: Option<T>,
    got: Option<T>,
) -> Played {
    match expected {
        Some(expected) if got.is_none_or(|got| got < expected) => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}

pub fn check_most<T: Copy + PartialOrd + Debug>(
    what: &str,
    expected: Option<T>,
    got: Option<T>,
) -> Played {
    match expected {
        Some(expected) if got.is_none_or(|got| got > expected) => {
            Err(format!("{what}: expected {expected:?}, got {got:?}"))
        }
        _ => Ok(()),
    }
}

pub fn check_answer(expected: Option<&Answer>, got: &Answer) -> Played {
    let is_as = |expected: &Answer| match (expected, got) {
        (Answer::Word(expected), Answer::Word(got)) => expected == got,
        (Answer::Number(expected), Answer::Number(got)) => is_near(*expected, *got),
        _ => false,
    };
    match expected {
        Some(expected) if !is_as(expected) => Err(format!("expected {expected:?}, got {got:?}")),
        _ => Ok(()),
    }
}

/// Names in any order.
pub fn check_names<'a>(
    what: &str,
    expected: Option<&Vec<String>>,
    got: impl IntoIterator<Item = &'a str>,
) -> Played {
    let mut got: Vec<_> = got.into_iter().map(String::from).collect();
    got.sort();
    let sorted = |names: &Vec<String>| {
        let mut names = names.clone();
        names.sort();
        names
    };
    check(what, expected.map(sorted), got)
}

/// All counts that are not 0.
pub fn check_counts(
    what: &str,
    expected: Option<&BTreeMap<String, u64>>,
    names: &[&str],
    counts: &[u64],
) -> Played {
    let counted = names.iter().zip(counts).filter(|&(_, &count)| count > 0);
    let got = counted.map(|(name, &count)| ((*name).to_string(), count)).collect();
    check(what, expected.cloned(), got)
}

pub fn check_rejected(expected: Option<&BTreeMap<String, u64>>, counts: &[u64; 12]) -> Played {
    check_counts("rejected", expected, &Reason::ALL.map(Reason::as_str), counts)
}

/// Decimal fractions of a file are not those of a sum.
#[allow(clippy::float_cmp)] // infinity is exact
fn is_near(expected: f64, got: f64) -> bool {
    expected == got || (expected - got).abs() <= 1e-12 * expected.abs().max(1.0)
}
