//! The seam between lock code and a machine that simulates its CPUs.
//!
//! A [`Vcpu`] runs such code as a coroutine. Each atomic operation of [`atomic`], and each pause,
//! halt, kick or piece of work asked for with [`request()`], suspends it with a [`Request`]
//! *before* it takes effect. Resuming the vCPU grants that one step: the operation is done on
//! ordinary memory, and the code continues, through all private work, to its next request.
//!
//! So the machine alone decides in which order vCPUs act, memory is sequentially consistent, and a
//! run is repeated exactly by making the same decisions. This crate decides nothing; it is also the
//! only place of the simulator with `unsafe`.
//!
//! All functions on the way to a suspension are `#[inline(always)]`: coroutines switch by a paired
//! call and return, and a suspension inside of a callee costs a mispredicted return for each level
//! (2 to 6 times the price of a switch, measured).

pub mod atomic;
mod request;
mod vcpu;

pub use request::{Access, Answer, Mark, Request, Work};
pub use vcpu::{Vcpu, request};
