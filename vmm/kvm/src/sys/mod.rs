//! System calls and instructions without safe wrappers, not related to KVM.

pub mod advice;
pub mod clock;
pub mod disposition;
pub mod fatal;
pub mod fpu;
pub mod heap;
pub mod inherited;
pub mod landlock;
pub mod overlay;
pub mod program;
pub mod ptrace;
pub mod ram;
pub mod sigsys;
pub mod spawn;
pub mod timer;
pub mod tsc;
