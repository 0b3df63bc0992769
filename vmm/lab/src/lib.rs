//! Measures: runs the cells of an experiment on this host, one machine after the other.
//!
//! `study` says what to run and keeps the figures, `report` shows them. Here is what needs a host:
//! [`cell`] measures one point once, [`mod@run`] gives cells to worker processes and appends what
//! they measured to a store, [`mod@bench`] measures what no experiment does, [`calibrate`] what
//! the simulator has to know of this host, and [`host`] is what this host is. Nothing here prints.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bench;
pub mod calibrate;
pub mod cell;
pub mod host;
pub mod patience;
pub mod run;
pub mod tables;
mod two_threads;

pub use cell::{Cell, CellError, Measurement, linux::LinuxCell, payload::PayloadCell};
pub use os::signals::Interrupt;
