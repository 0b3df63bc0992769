//! Atomics whose every operation is a step of the vCPU that executes it.
//!
//! They wrap the processor's atomics, so that their constructors are `const`, and behave like them
//! outside a [`Vcpu`](crate::Vcpu). One vCPU acts at a time, so every memory order is as strong as
//! the strongest.

pub use core::sync::atomic::Ordering;
use core::sync::atomic::{self, Ordering::Relaxed};

use crate::Access;
use crate::vcpu::access as step;

macro_rules! atomic {
    ($($name:ident $value:ty;)*) => { $(
        /// Like the type of the same name in `core`, in steps.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// Creates an atomic with this value.
            pub const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            /// Requests the step and waits until it is granted.
            #[inline(always)]
            #[track_caller]
            fn step(&self, access: Access) -> &atomic::$name {
                step(access, core::ptr::from_ref(self).addr());
                &self.0
            }

            /// The value. Not a step: no other code can access it.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn load(&self, _: Ordering) -> $value {
                self.step(Access::Load).load(Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, value: $value, _: Ordering) {
                self.step(Access::Store).store(value, Relaxed);
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn swap(&self, value: $value, _: Ordering) -> $value {
                self.step(Access::ReadModifyWrite).swap(value, Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.step(Access::ReadModifyWrite).fetch_add(value, Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, _: Ordering) -> $value {
                self.step(Access::ReadModifyWrite).fetch_sub(value, Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.step(Access::ReadModifyWrite).fetch_or(value, Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.step(Access::ReadModifyWrite).fetch_and(value, Relaxed)
            }

            /// See `core`.
            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                self.step(Access::ReadModifyWrite).compare_exchange(from, to, Relaxed, Relaxed)
            }
        }
    )* };
}

atomic! {
    AtomicI32 i32;
    AtomicI64 i64;
    AtomicU8 u8;
    AtomicU16 u16;
    AtomicU32 u32;
    AtomicU64 u64;
    AtomicUsize usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Vcpu};
    use std::rc::Rc;

    #[test]
    fn atomics_outside_a_vcpu_are_plain() {
        let word = AtomicU16::new(3);
        assert_eq!(word.fetch_add(2, Ordering::SeqCst), 3);
        assert_eq!(word.compare_exchange(5, 7, Ordering::AcqRel, Ordering::Relaxed), Ok(5));
        assert_eq!(word.compare_exchange(5, 9, Ordering::AcqRel, Ordering::Relaxed), Err(7));
        assert_eq!(word.into_inner(), 7);
    }

    #[test]
    fn an_operation_takes_effect_when_the_vcpu_is_resumed() {
        let word = Rc::new(AtomicU32::new(0));
        let of_vcpu = Rc::clone(&word);
        let address = core::ptr::from_ref(&*word).addr();
        let mut vcpu = Vcpu::new(move || {
            of_vcpu.store(1, Ordering::Relaxed);
            of_vcpu.fetch_add(1, Ordering::Relaxed);
        })
        .expect("a stack can be mapped");
        assert_eq!(vcpu.resume(0), Some(Request::Access(Access::Store, address)));
        assert_eq!(word.load(Ordering::Relaxed), 0);
        assert_eq!(vcpu.resume(0), Some(Request::Access(Access::ReadModifyWrite, address)));
        assert_eq!(word.load(Ordering::Relaxed), 1);
        assert_eq!(vcpu.resume(0), None);
        assert_eq!(word.load(Ordering::Relaxed), 2);
    }
}
