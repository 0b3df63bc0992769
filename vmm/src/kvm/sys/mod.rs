//! System calls and instructions that have no safe form and nothing to do with KVM.

pub mod dump;
pub mod spawn;
pub mod tsc;
