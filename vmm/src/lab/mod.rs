//! Experiments: what to run, in which order, and what the figures say.
//!
//! [`plan`] -> [`compare`] runs a [`cell`] over and over -> [`analysis`] of the
//! samples with [`stats`]. Nothing here prints; `report` does.

pub mod analysis;
pub mod boot_bench;
pub mod cell;
pub mod compare;
pub mod contender;
pub mod handoffs;
pub mod host;
pub mod hyper_bench;
pub mod latencies;
pub mod linux_cell;
mod linux_outcome;
pub mod live;
mod machines;
pub mod payload_cell;
pub mod plan;
pub mod point;
pub mod run;
pub mod sched_bench;
pub mod soak;
pub mod spec;
pub mod stats;
pub mod store;
pub mod study;
pub mod sync_counters;
pub mod thread_wakeup;
pub mod timeline;
pub mod timings;
pub mod trace_bench;
mod window;

pub use crate::signals::Interrupt;
pub use analysis::LevelReport;
pub use cell::{Cell, CellError, Sample};
pub use compare::{Comparison, LabError, LevelSamples, Observer};
pub use contender::Contender;
pub use linux_cell::{GuestWorkload, LinuxCell};
pub use payload_cell::PayloadCell;
pub use plan::{Plan, PlanError};
