//! System calls that have no safe form and nothing to do with KVM.

pub mod dump;
pub mod spawn;
