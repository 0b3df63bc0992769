//! Conversion between the host CPU numbers that users see and the kernel's.
//!
//! They differ only in the emulated host. There the first CPU is kept free of guests
//! (`vmm/emulated/src/agent/spare.rs` explains why), and CPU 0 in this program's input and output is
//! the kernel's CPU 1, and so on. All code that passes a CPU number to the kernel converts it here.

use std::{env, sync::OnceLock};

use super::host::is_emulated;

/// Environment variable: number of leading CPUs that commands must not use. The agent of the
/// emulated host sets it for its commands.
pub const RESERVED_ENV: &str = "PVTICKET_SPARED_CPUS";

/// Number of the kernel's leading CPUs that are kept free of guests and have no user-visible
/// number.
pub fn reserved() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = env::var(RESERVED_ENV).ok().filter(|_| is_emulated());
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    })
}

/// Returns the kernel's number of a user-visible CPU.
pub fn to_kernel(cpu: usize) -> usize {
    cpu.saturating_add(reserved())
}

/// Returns the user-visible number of the kernel's CPU `cpu`, or None if that CPU is kept free.
pub fn from_kernel(cpu: usize) -> Option<usize> {
    cpu.checked_sub(reserved())
}
