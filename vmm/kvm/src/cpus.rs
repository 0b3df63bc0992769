//! Host CPUs: the numbers that users see, and the kernel's.
//!
//! They are the same except in the emulated host. There the machine's first CPU is kept free of
//! guests (`emulated/agent/spare.rs` says why), and what this program accepts and prints as CPU 0
//! is the kernel's CPU 1, and so on. All code that passes a CPU number to the kernel converts it
//! here.

use std::{env, sync::OnceLock};

use super::host::is_emulated;

/// Set by the agent of the emulated host for its commands: how many of the first CPUs they must not
/// use.
pub const SPARED: &str = "PVTICKET_SPARED_CPUS";

/// How many of the kernel's first CPUs are kept free of guests and have no number here.
pub fn spared() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let told = env::var(SPARED).ok().filter(|_| is_emulated());
        told.and_then(|count| count.parse().ok()).unwrap_or(0)
    })
}

/// The kernel's number of a CPU.
pub fn kernels(cpu: usize) -> usize {
    cpu.saturating_add(spared())
}

/// The number here of the kernel's CPU `kernels`; None if it is kept free.
pub fn ours(kernels: usize) -> Option<usize> {
    kernels.checked_sub(spared())
}
