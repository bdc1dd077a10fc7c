pub use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicU8, Ordering};
