//! What [`slot`](super::slot) is made of, with the surface that loom has: so its
//! orderings are tested with loom's in the place of these (`tests/orderings`).

pub(super) use std::sync::atomic::{AtomicU8, Ordering};

pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, action: impl FnOnce(*mut T) -> R) -> R {
        action(self.0.get())
    }
}
