//! A deterministic stepper for locks.
//!
//! The lock library's own sources run on simulated vCPUs ([`sim_cell::Vcpu`]) of one [`Machine`],
//! one step at a time, in one thread; all random choices are drawn from one seed. A [`Harness`]
//! gives the vCPUs their work and sees every step; [`Waits`] is the one that counts acquisitions,
//! and for each how many others came before it. A [`Case`] is a lock with a machine and a load, and
//! [`Case::run`] runs it.

#![forbid(unsafe_code)]

mod bound;
mod case;
pub mod cases;
mod machine;
mod subject;
mod trace;
pub mod verdicts;
mod waits;

pub use bound::{Bound, Since};
pub use case::{Case, Failure, Outcome, Trouble};
pub use locks::Handoff;
pub use machine::{Counts, Fate, Harness, Machine, MachineSpec, Stuck};
pub use subject::{Guest, LOCKS, Subject, subject};
pub use trace::Trace;
pub use verdicts::Verdict;
pub use waits::{Bypassed, Load, Times, Waits};
