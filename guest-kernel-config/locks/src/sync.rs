//! The atomics of this crate, in one place: a model checker compiles these sources with its own
//! (see `model/`), and so does the simulator (see `sim/`, whose build sets `simulated`).

#[cfg(not(simulated))]
pub(crate) use core::sync::atomic::{
    AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(simulated)]
pub(crate) use sim_cell::atomic::{
    AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// Number of CPUs that a [`WaitTable`](crate::WaitTable) supports.
#[cfg(not(simulated))]
pub const MAX_CPUS: usize = 128;
/// Set by the package that compiles these sources for the simulator.
#[cfg(simulated)]
pub const MAX_CPUS: usize = match usize::from_str_radix(env!("SIMULATED_CPUS"), 10) {
    Ok(cpus) => cpus,
    Err(_) => panic!("SIMULATED_CPUS is a number"),
};
