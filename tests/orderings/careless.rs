//! The same slot, over stores that release nothing.

mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::Ordering;

    pub struct AtomicU8(loom::sync::atomic::AtomicU8);

    impl AtomicU8 {
        pub fn new(value: u8) -> Self {
            Self(loom::sync::atomic::AtomicU8::new(value))
        }

        pub fn load(&self, order: Ordering) -> u8 {
            self.0.load(order)
        }

        pub fn store(&self, value: u8, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }

        pub fn compare_exchange(
            &self,
            from: u8,
            to: u8,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u8, u8> {
            self.0.compare_exchange(from, to, success, failure)
        }
    }
}

#[allow(dead_code)]
#[path = "../../src/bindings/slot.rs"]
pub mod slot;
