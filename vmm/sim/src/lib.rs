//! A simulator of machines with many CPUs.
//!
//! The simulator makes all decisions with the product's own code: the scheduler's core and its policies
//! ([`sched`]) assign the CPUs, and the vCPUs execute the sources of the lock library. It models the
//! machine between them: cache lines and their transfers, exits, switches and wakeups, with costs from
//! a [`machine`] file. A ticketlock collapses here only because each release invalidates the copies of
//! all waiters.
//!
//! A [`Sim`] is a pure function of its [`Spec`], which includes a seed. It uses no clock, file, thread
//! or other source of nondeterminism. Unit tests compare simulations with analytical models and with
//! the costs of machine files. The guide is `vmm/sim/README.md`.

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

pub use engine::{Brake, Decisions, ScheduleRecord, Sim, Stuck};
pub use figures::SimFigures;
pub use guest::{LongestWaits, WaitTimes};
pub use host_model::{HaltPoll, HostModel, Noise, Ple};
pub use lines::LineLaw;
pub use load::{Load, LockLoad, Shootdown, Sleep};
pub use machine::Machine;
pub use random::Span;
pub use simulated_locks::{Family, Handoff, System};
pub use spec::{STARTS, SimSpecError, Spec, handoff};
pub use time::Picos;
