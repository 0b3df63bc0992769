//! The guests that pvticket brings along.

pub mod artifacts;
pub mod handoff;
pub mod initrd;
pub mod kernels;
pub mod linux;
pub mod payload;
pub mod symbols;
pub mod systems;
