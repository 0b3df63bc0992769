//! The atomics of this crate, in one place: a model checker compiles these sources with its own
//! (see `model/`).

pub(crate) use core::sync::atomic::{
    AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// CPUs that one [`WaitTable`](crate::WaitTable) serves.
pub const MAX_CPUS: usize = 128;
