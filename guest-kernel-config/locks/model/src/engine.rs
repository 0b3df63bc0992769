//! What the generated sources take from an engine.

/// CPUs of a machine, at most. The table of waiters is that long.
pub const MAX_CPUS: usize = 4;

/// An atomic of an engine that notices accesses to freed memory, and before which an interrupt may
/// come.
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

            /// A load that is one of a total order with read-modify-writes, whatever the engine
            /// makes of `SeqCst`.
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

/// The `sync` module of a variant.
macro_rules! atomics {
    ($from:path) => {
        pub mod atomics {
            pub use std::sync::atomic::Ordering;
            use $from as from;

            pub use crate::engine::MAX_CPUS;

            atomic!(AtomicU8, u8, from::AtomicU8);
            atomic!(AtomicI32, i32, from::AtomicI32);
            atomic!(AtomicI64, i64, from::AtomicI64);
            atomic!(AtomicU16, u16, from::AtomicU16);
            atomic!(AtomicU32, u32, from::AtomicU32);
            atomic!(AtomicU64, u64, from::AtomicU64);
            atomic!(AtomicUsize, usize, from::AtomicUsize);
        }
    };
}

// After the macros, which they use.
pub mod loom;
pub mod shuttle;
