//! The parts of an engine that the generated sources need.

/// The largest number of CPUs of a machine, and the length of the table of waiters.
pub const MAX_CPUS: usize = 4;

/// Defines an engine's atomic, which detects accesses to freed memory. An interrupt may occur
/// before each of its operations.
macro_rules! atomic {
    ($name:ident, $value:ty, $inner:ty) => {
        #[derive(Debug, Default)]
        pub struct $name($inner);

        #[allow(dead_code)]
        impl $name {
            pub fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }

            fn touched(&self) -> &$inner {
                super::before_step();
                crate::memory::touch(std::ptr::from_ref(self).addr());
                &self.0
            }

            pub fn load(&self, order: Ordering) -> $value {
                self.touched().load(order)
            }

            /// Loads in one total order with read-modify-writes, even if the engine does not
            /// implement `SeqCst`.
            pub fn load_in_total_order(&self) -> $value {
                super::total_order();
                self.load(Ordering::SeqCst)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                super::store(
                    self.touched(),
                    |cell| cell.store(value, order),
                    |cell| _ = cell.swap(value, order),
                    order,
                );
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.touched().swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.touched().compare_exchange(from, to, success, failure)
            }
        }
    };
}

/// Defines arithmetic on an atomic of [`atomic!`], except `bool`.
macro_rules! arithmetic {
    ($name:ident, $value:ty) => {
        #[allow(dead_code)]
        impl $name {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.touched().fetch_add(value, order)
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.touched().fetch_sub(value, order)
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.touched().fetch_or(value, order)
            }

            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.touched().fetch_and(value, order)
            }
        }
    };
}

/// The `sync` module of a variant.
macro_rules! atomics {
    ($from:path) => {
        pub mod atomics {
            pub use std::sync::atomic::Ordering;
            use $from as from;

            pub use crate::engine::MAX_CPUS;

            atomic!(AtomicBool, bool, from::AtomicBool);
            atomic!(AtomicU8, u8, from::AtomicU8);
            arithmetic!(AtomicU8, u8);
            atomic!(AtomicI32, i32, from::AtomicI32);
            arithmetic!(AtomicI32, i32);
            atomic!(AtomicI64, i64, from::AtomicI64);
            arithmetic!(AtomicI64, i64);
            atomic!(AtomicU16, u16, from::AtomicU16);
            arithmetic!(AtomicU16, u16);
            atomic!(AtomicU32, u32, from::AtomicU32);
            arithmetic!(AtomicU32, u32);
            atomic!(AtomicU64, u64, from::AtomicU64);
            arithmetic!(AtomicU64, u64);
            atomic!(AtomicUsize, usize, from::AtomicUsize);
            arithmetic!(AtomicUsize, usize);
        }
    };
}

// After the macros, which they use.
pub mod loom;
pub mod shuttle;
