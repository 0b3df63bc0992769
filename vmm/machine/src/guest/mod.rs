//! Guests: the payload, kernels, initial RAM disks.

pub mod initrd;
pub mod kernel_symbols;
pub mod linux;
pub mod payload;
pub mod programs;
pub mod queued_lock;
pub mod symbols;
pub mod unpackable;
