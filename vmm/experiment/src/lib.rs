//! Runs experiments: plans the cells of a spec, prepares the hosts that they need, opens the store, starts the
//! workers that measure them, and gathers the results.
//!
//! `study` defines experiments and keeps their figures; `report` shows them. User commands start at [`plan`]
//! and [`open_run`] for a run, [`mod@measure`] for an experiment defined by options, [`reproduce`] for
//! published figures, and [`rung2`] to compare the simulator with this host. [`engine`] passes cells to
//! worker processes and stores their results. [`worker_process`] measures them, here or in the emulated host;
//! [`cell`] measures one point once. [`mod@bench`] measures the VMM's own costs, [`calibrate`] the host's
//! costs for the simulator. [`mod@doctor`] reports the host's features; [`host`] describes the host in stores.
//!
//! Options are plain values; the command line parses them. Progress goes to stderr, results are returned.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bar;
pub mod bench;
pub mod calibrate;
pub mod cell;
pub mod cpus;
pub mod doctor;
pub mod engine;
pub mod host;
pub mod host_choice;
pub mod inside;
pub mod kernel;
pub mod measure;
pub mod open_run;
pub mod plan;
pub mod prepare;
pub mod programs;
pub mod progress;
pub mod recording;
pub mod reproduce;
pub mod run;
pub mod rung2;
pub mod sim_watchdog;
pub mod tables;
mod two_threads;
mod usage;
pub mod worker_pool;
pub mod worker_process;

pub use cell::{Cell, CellError, Measurement, linux::LinuxCell, payload::PayloadCell};
pub use os::signals::Interrupt;
pub use usage::Usage;

/// Exit status of a failure.
pub const FAILURE: u8 = 1;
