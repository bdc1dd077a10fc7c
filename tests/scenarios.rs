//! Plays every step scenario of `tests/scenarios/` against the primitives.
//!
//! `tests/test_scenarios.py` plays the same files through the extension; the
//! format is described in `tests/scenarios/README.md`.

mod scenario;

#[allow(clippy::needless_pass_by_value)] // the harness gives it by value
fn play(path: &datatest_stable::Utf8Path, text: String) -> datatest_stable::Result<()> {
    scenario::play(&text).map_err(|error| format!("{path}: {error}").into())
}

datatest_stable::harness! {
    { test = play, root = "tests/scenarios", pattern = r"^(?!load/).*\.toml$" },
}
