//! The channel under random programs: no item is lost or doubled, everybody is
//! answered once and in order, and nobody waits for what is there.

#![allow(clippy::expect_used, clippy::panic)]

mod hall;
mod steps;

use hall::{DEAD, Hall};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use steps::step;

fn cases() -> ProptestConfig {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    ProptestConfig {
        cases: if full { 10_000 } else { 300 },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/proptest-regressions/channel_model.txt",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn nothing_is_lost_whoever_comes(
        capacity in 0..4usize,
        steps in prop::collection::vec(step(DEAD + 1), 1..120),
    ) {
        let mut hall = Hall::new(capacity, false);
        for step in &steps {
            hall.play(step);
        }
        hall.end();
    }

    #[test]
    fn those_who_come_at_once_are_served_in_order(
        capacity in 0..4usize,
        steps in prop::collection::vec(step(DEAD), 1..120),
    ) {
        let mut hall = Hall::new(capacity, true);
        for step in &steps {
            hall.play(step);
        }
        hall.end();
    }
}
