//! Every file of `tests/scenarios/` is played, and everything it expects is
//! looked at.

mod scenario;

use std::fs;
use std::path::{Path, PathBuf};

type Tested<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn files(folder: &Path) -> Tested<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.ends_with("load") {
            // Not of steps: `load.rs` plays them.
        } else if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// `scenarios.rs` plays what ends in `.toml`.
fn is_played(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

#[test]
fn nothing_lies_there_that_is_not_played() -> Tested {
    let files = files(&root())?;
    let readme = root().join("README.md");
    let others: Vec<_> = files.iter().filter(|path| !is_played(path) && **path != readme).collect();
    assert!(others.is_empty(), "not played: {others:?}");
    assert!(files.iter().any(|path| is_played(path)), "no scenarios");
    Ok(())
}

/// Plays each scenario with one expectation changed, for all its expectations.
#[test]
fn every_expectation_can_fail() -> Tested {
    for path in files(&root())?.iter().filter(|path| is_played(path)) {
        let scenario: toml::Table = fs::read_to_string(path)?.parse()?;
        let steps = scenario["step"].as_array().ok_or("no steps")?;
        for (index, step) in steps.iter().enumerate() {
            for key in expectations(step) {
                let mut changed = scenario.clone();
                spoil(&mut changed["step"][index], &key);
                let played = scenario::play(&toml::to_string(&changed)?);
                let what = if key == "expect" { "expected" } else { &key };
                let text = format!("step {}: {what}", index + 1);
                assert!(
                    played.as_ref().is_err_and(|error| error.starts_with(&text)),
                    "{}: not {text:?} but {played:?}",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

fn expectations(step: &toml::Value) -> Vec<String> {
    let then = step.get("then").and_then(toml::Value::as_table);
    let mut keys: Vec<_> = then.into_iter().flat_map(toml::Table::keys).cloned().collect();
    if step.get("expect").is_some() {
        keys.push("expect".into());
    }
    keys
}

fn spoil(step: &mut toml::Value, key: &str) {
    let expected = match key {
        "expect" => &mut step["expect"],
        key => &mut step["then"][key],
    };
    match expected {
        toml::Value::Integer(number) if key.ends_with("_at_least") => *number += 1_000_000,
        toml::Value::Integer(number) if key.ends_with("_at_most") => *number -= 1_000_000,
        toml::Value::Integer(number) => *number += 1,
        toml::Value::Float(number) if number.is_finite() => *number += 1.0,
        toml::Value::Float(number) => *number = 1.0,
        toml::Value::String(text) => text.push('?'),
        toml::Value::Array(names) => names.push("nobody".into()),
        toml::Value::Table(words) if matches!(key, "got" | "refused") => {
            words.insert("nobody".into(), "nothing".into());
        }
        toml::Value::Table(counts) => drop(counts.insert("nobody".into(), 1.into())),
        toml::Value::Boolean(truth) => *truth = !*truth,
        toml::Value::Datetime(_) => {}
    }
}

/// `scenario_faults.toml`, which says what each side has to refuse.
#[derive(serde::Deserialize)]
struct Faults {
    scenario: Vec<Faulty>,
}

#[derive(serde::Deserialize)]
struct Faulty {
    sound: String,
    faults: Vec<(String, String)>,
}

#[test]
fn what_is_not_of_the_format_is_refused() -> Tested {
    let path = root().with_file_name("scenario_faults.toml");
    let Faults { scenario: scenarios } = toml::from_str(&fs::read_to_string(path)?)?;
    for Faulty { sound, faults } in scenarios {
        assert_eq!(scenario::play(&sound), Ok(()), "{sound}");
        for (part, replacement) in faults {
            let broken = sound.replacen(&part, &replacement, 1);
            assert_ne!(broken, sound, "{part:?} is not there");
            assert!(scenario::play(&broken).is_err(), "{replacement:?} is taken");
        }
    }
    Ok(())
}
