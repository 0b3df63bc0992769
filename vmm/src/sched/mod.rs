//! The overcommit scheduler: M slots carry N vCPUs, and who runs when is an input.
//!
//! [`Core`] decides and does nothing else: [`Event`]s and the time go in, [`Action`]s come out,
//! so the same core drives real threads and a simulation, and a recorded run replays. A
//! [`policy`] is one file; [`accounting`] keeps the account of what preemptions cost; [`log`] keeps
//! decisions, which [`recording`] writes to a file. [`driver`] is the only part with threads, clocks
//! and signals.

pub mod accounting;
pub mod core;
#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod deferred_tests;
pub mod driver;
pub mod event;
#[cfg(test)]
mod hlt_tests;
pub mod log;
#[cfg(test)]
mod outer_lock_tests;
pub mod policy;
pub mod recording;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod stranded_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod waiting_tests;
#[cfg(test)]
mod world;

pub use core::{Core, Member};
pub use driver::{Driver, SchedReport, ScheduleSpec, TelemetryView};
pub use event::{Action, Event, Kicker, LockActivity, LockId, Mode, Observation, VcpuIndex};
pub use policy::{Policy, PolicySpec};
