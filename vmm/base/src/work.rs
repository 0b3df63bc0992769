//! Defaults for the work of a payload's vCPUs.

/// Increments in the critical section.
pub const CRITICAL: u32 = 50;
/// Increments between two operations.
pub const THINK: u32 = 200;
/// Additions per vCPU between two sums of a counter.
pub const SUM_EVERY: u32 = 1000;
/// Spin iterations before a PV waiter halts, as in the listings of the PV ticketlock series of 2012.
pub const SPINS: u32 = 2048;
