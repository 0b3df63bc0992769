//! A simulator of machines with many CPUs.
//!
//! The simulator runs the product's own code for all decisions: the scheduler's core and its policies
//! ([`sched`]) hand out the CPUs, and the vCPUs execute the sources of the lock library. It models the
//! machine between them: cache lines and their transfers, exits, switches and wakeups, with costs
//! from a [`machine`] file. A ticketlock collapses here because a release invalidates the copies of
//! all waiters, and for no other reason.
//!
//! A [`Sim`] is a pure function of its [`Spec`], which has a seed: no clock, no file, no thread, and
//! no other source of randomness. Unit tests compare simulations with mathematics and with the costs of
//! machine files; the guide is `vmm/sim/README.md`.

#![forbid(unsafe_code)]

mod bits;
#[cfg(test)]
mod costs_tests;
mod engine;
mod figures;
mod guest;
#[cfg(test)]
mod guest_tests;
mod host_model;
mod lines;
mod load;
pub mod machine;
#[cfg(test)]
mod mathematics_tests;
pub mod profile;
mod queue;
#[cfg(test)]
mod queue_tests;
mod random;
#[cfg(test)]
mod replay_tests;
pub mod search;
mod spec;
#[cfg(test)]
mod tests;
mod time;
mod vcpu;

pub use engine::{Brake, Decisions, Kept, Sim, Stuck};
pub use figures::SimFigures;
pub use guest::{LongestWaits, WaitTimes};
pub use host_model::{HaltPoll, HostModel, Noise, Ple};
pub use lines::LineLaw;
pub use load::{Load, LockLoad, Shootdown, Sleep};
pub use machine::Machine;
pub use random::Span;
pub use simulated_locks::{Family, Handoff, System};
pub use spec::{SimSpecError, Spec, handoff};
pub use time::Picos;
