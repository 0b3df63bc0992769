//! The atomics of this crate, in one place so that a model checker's can take
//! theirs.

pub(crate) use core::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
