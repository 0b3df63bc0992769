//! A deterministic stepper for locks.
//!
//! The lock library's own sources run on simulated vCPUs ([`sim_cell::Vcpu`]) of one [`Stepper`],
//! one step at a time, in one thread; all random choices are drawn from one seed. A [`Harness`]
//! gives the vCPUs their work and sees every step; [`BypassCounter`] is the one that counts acquisitions,
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

pub use bound::{BypassBound, Since};
pub use case::{BrokenGuarantee, Case, CaseFailure, CaseOutcome};
pub use locks::Handoff;
pub use machine::{Fate, Harness, Standstill, StepCounts, Stepper, StepperSpec};
pub use subject::{LOCKS, SteppedLock, VcpuSettings, subject};
pub use trace::StepTrace;
pub use verdicts::CaseVerdict;
pub use waits::{BypassCounter, Bypassed, StepDuration, StepperLoad};
