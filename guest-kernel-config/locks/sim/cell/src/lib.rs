//! The interface between lock code and a machine that simulates its CPUs.
//!
//! A [`Vcpu`] runs such code as a coroutine. Each atomic operation of [`atomic`], and each pause,
//! halt, kick or piece of work requested with [`request()`], suspends it with a [`Request`]
//! *before* it takes effect. Resuming the vCPU grants that step: the operation is done on ordinary
//! memory, and the code continues, through all private work, to its next request.
//!
//! So the machine alone determines the order of the vCPUs' steps, memory is sequentially
//! consistent, and the same decisions repeat a run exactly. This crate decides nothing; it is also
//! the only part of the simulator with `unsafe`.
//!
//! All functions on the way to a suspension are `#[inline(always)]`: coroutines switch by a paired
//! call and return, and a suspension inside a callee costs a mispredicted return for each level (2
//! to 6 times the price of a switch, measured).

pub mod atomic;
pub mod cover;
mod request;
mod vcpu;

pub use request::{Access, Answer, Mark, Request, Work};
pub use vcpu::{Vcpu, request};
