//! The orderings of memory that the slot of a permit relies on, under a model of the
//! memory that shows every value that a thread may see. The file is the one that the
//! bindings are built from.

// Once over what loom has, and once over what is careless.
#![allow(clippy::duplicate_mod, clippy::expect_used)]

mod careless;
mod sync;

#[allow(dead_code)]
#[path = "../../src/bindings/slot.rs"]
mod slot;

use loom::sync::Arc;
use loom::thread;

/// One fills, and two take: one of them has it, whole.
macro_rules! filler_and_takers {
    ($slot:path) => {
        use $slot as Slot;

        let slot = Arc::new(Slot::vacant());
        let filler = thread::spawn({
            let slot = slot.clone();
            move || drop(slot.fill(Box::new(7)))
        });
        let taker = thread::spawn({
            let slot = slot.clone();
            move || slot.take()
        });
        let mut found = vec![slot.take()];
        filler.join().expect("it does not panic");
        found.push(taker.join().expect("it does not panic"));
        assert!(!slot.is_vacant());
        found.push(slot.take());
        let found: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(found, [Box::new(7)]);
    };
}

#[test]
fn a_value_is_taken_once_and_whole() {
    loom::model(|| {
        filler_and_takers!(slot::Slot);
    });
}

#[test]
fn two_takers_find_one_value() {
    loom::model(|| {
        let slot = Arc::new(slot::Slot::full(Box::new(7)));
        let taker = thread::spawn({
            let slot = slot.clone();
            move || slot.take()
        });
        let found = [slot.take(), taker.join().expect("it does not panic")];
        assert!(!slot.is_there());
        let found: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(found, [Box::new(7)]);
    });
}

#[test]
fn the_last_owner_takes_what_is_left() {
    loom::model(|| {
        let slot = Arc::new(slot::Slot::vacant());
        let filler = thread::spawn({
            let slot = slot.clone();
            move || drop(slot.fill(Box::new(7)))
        });
        let early = slot.take();
        filler.join().expect("it does not panic");
        let Ok(mut slot) = Arc::try_unwrap(slot) else { unreachable!("nobody else has it") };
        let late = slot.take_mut();
        assert!(early.is_some() != late.is_some());
        assert_eq!(slot.take_mut(), None);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_value_that_is_not_released_is_found() {
    loom::model(|| {
        filler_and_takers!(careless::slot::Slot);
    });
}
