use std::mem::MaybeUninit;

use super::sync::{AtomicU8, Ordering, UnsafeCell};

/// A value that is put in once and taken once, by whoever comes first: half the
/// cost of a lock.
pub(crate) struct Slot<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

const VACANT: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;
const TAKEN: u8 = 3;

// SAFETY: the value is touched only by the one call that turns VACANT into
// FILLING and the one that turns FULL into TAKEN.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(crate) fn vacant() -> Self {
        Self { state: AtomicU8::new(VACANT), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    pub(crate) fn full(value: T) -> Self {
        Self { state: AtomicU8::new(FULL), value: UnsafeCell::new(MaybeUninit::new(value)) }
    }

    pub(crate) fn is_vacant(&self) -> bool {
        self.state.load(Ordering::Relaxed) == VACANT
    }

    pub(crate) fn is_there(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FULL
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    /// Hands a second value back: it would be a permit given twice for one wish.
    #[must_use = "it would be lost"]
    pub(crate) fn fill(&self, value: T) -> Option<T> {
        if !self.turn(VACANT, FILLING, Ordering::Relaxed) {
            return Some(value);
        }
        // SAFETY: only this call got from VACANT to FILLING.
        self.value.with_mut(|slot| unsafe { (*slot).write(value) });
        // Release: whoever sees FULL sees the value.
        self.state.store(FULL, Ordering::Release);
        None
    }

    pub(crate) fn take(&self) -> Option<T> {
        // Acquire: pairs with the release above.
        let turned = self.turn(FULL, TAKEN, Ordering::Acquire);
        // SAFETY: only one call gets from FULL to TAKEN, and FULL means written.
        turned.then(|| self.value.with_mut(|slot| unsafe { (*slot).assume_init_read() }))
    }

    /// The same for the last owner, without the cost of an atomic exchange if nothing
    /// is there.
    pub(crate) fn take_mut(&mut self) -> Option<T> {
        if self.is_there() { self.take() } else { None }
    }

    fn turn(&self, from: u8, to: u8, success: Ordering) -> bool {
        self.state.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
    }
}
