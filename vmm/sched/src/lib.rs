//! The overcommit scheduler: M slots run N vCPUs, and the schedule is an input.
//!
//! [`Core`] only makes decisions: it takes [`Event`]s and the time, and returns [`Action`]s. The same core
//! therefore drives real threads and simulations, and replays recorded runs. Each [`policy`] is one file.
//! [`accounting`] sums up the cost of preemptions. [`log`] records the decisions, and [`recording`] is their
//! file format. Threads, clocks and signals belong to the driver in `vmm/machine/src/driver`. [`halts`] is
//! the protocol between halting threads and their kickers.

#![forbid(unsafe_code)]

pub mod accounting;
pub mod core;
#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod deferred_tests;
pub mod directed_yields;
pub mod driver;
pub mod event;
pub mod extensions;
pub mod halts;
#[cfg(test)]
mod hlt_tests;
pub mod log;
#[cfg(test)]
mod outer_lock_tests;
pub mod policy;
#[cfg(test)]
mod preempted_in_lock_tests;
pub mod recording;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod share_tests;
pub mod steal;
pub mod table;
#[cfg(test)]
mod test_support;
#[cfg(any(test, feature = "testing"))]
pub mod test_world;
pub mod times;
#[cfg(test)]
mod waiting_tests;

pub use core::{Core, Member};
pub use event::{Action, Event, Kicker, LockActivity, LockId, Mode, Observation, VcpuIndex};
pub use policy::{Policy, PolicySpec};
