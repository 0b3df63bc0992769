//! Carries out experiments: plans the cells of a spec, prepares the hosts that they need, opens their store,
//! starts the workers that measure them, and gathers what they measured.
//!
//! `study` says what an experiment is and keeps its figures; `lab` measures one cell. This crate is what lies between a
//! command of the user and the cells: [`plan`] and [`open_run`] for a run, [`mod@measure`] for commands that define their experiment by options, [`reproduce`] for published figures,
//! [`rung2`] for the simulator's comparison with this host. [`worker`] is the other side: the process that measures
//! cells, here or in the emulated host.
//!
//! Options are plain values: the command line parses them. Progress and notes go to stderr, results are returned.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bar;
pub mod cpus;
pub mod host;
pub mod inside;
pub mod kernel;
pub mod measure;
pub mod open_run;
pub mod plan;
pub mod prepare;
pub mod progress;
pub mod recording;
pub mod reproduce;
pub mod run;
pub mod rung2;
mod usage;
pub mod worker;
pub mod workers;

pub use usage::Usage;

/// Exit status of a failure.
pub const FAILURE: u8 = 1;
