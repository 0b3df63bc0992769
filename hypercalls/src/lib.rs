//! The contract between a guest and the pvticket VMM.
//!
//! Everything that both sides must agree on is defined here and nowhere else: how a guest discovers
//! the VMM ([`cpuid`]), the I/O ports that it uses ([`ports`]), the memory that a ring-3 payload
//! shares with the VMM ([`payload`]), the lock state that a vCPU publishes ([`telemetry`]), the
//! facts about a kernel that publishes no lock state ([`kernel_facts`]), and the sticky bit between a
//! kick and a halt ([`WakeLatch`](latch::WakeLatch)). The crate does no I/O, does not allocate and
//! needs no `std`; [`header`] renders the contract as the C header that the Linux patch includes.

#![no_std]
#![forbid(unsafe_code)]

pub mod cpuid;
pub mod header;
pub mod histogram;
pub mod kernel_facts;
pub mod latch;
pub mod payload;
pub mod ports;
pub mod telemetry;

/// Version of this contract, reported in EDX of [`cpuid::LEAF_FEATURES`]. A guest that does not
/// know the version must not use the ports.
pub const ABI_VERSION: u32 = 1;

/// Largest number of vCPUs of a machine. A 16-bit PV ticketlock (increments of two) could count far
/// more; this is the limit that pvticket guarantees and tests.
pub const MAX_VCPUS: u32 = 128;
