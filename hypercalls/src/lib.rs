//! The contract between a guest and the pvticket VMM.
//!
//! Everything both sides must agree on lives here and nowhere else: how a guest
//! discovers the VMM ([`cpuid`]), which I/O ports it writes ([`ports`]), the
//! memory a ring-3 payload shares with the VMM ([`payload`]), what a vCPU says of its
//! locks ([`telemetry`]) and the one-bit [`WakeLatch`](latch::WakeLatch) between a kick and a
//! halt. The crate does no
//! I/O, allocates nothing and needs no `std`; [`header`] renders the same facts
//! as the C header that the Linux patch includes.

#![no_std]
#![forbid(unsafe_code)]

pub mod cpuid;
pub mod header;
pub mod histogram;
pub mod latch;
pub mod payload;
pub mod ports;
pub mod telemetry;

/// Version of this contract, reported in EDX of [`cpuid::LEAF_FEATURES`].
/// A guest that does not know the version must not use the ports.
pub const ABI_VERSION: u32 = 1;

/// Most vCPUs a machine may have. A 16-bit PV ticketlock (increments of two)
/// counts far more; the bound is the one the product promises and tests.
pub const MAX_VCPUS: u32 = 128;
