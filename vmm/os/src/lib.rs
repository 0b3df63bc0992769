//! Interfaces of a pvticket process to its user and its system.
//!
//! To the user: signals, raw mode, output that waits for slow readers, result files that are complete or
//! absent. To the system: limits of memory, CPU time, threads and open files; other processes; files that are
//! already built, and users who could have changed them.

#![forbid(unsafe_code)]
// print!/eprint! panic on a closed stream: `streams` does not.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod artifacts;
pub mod cpu_quota;
pub mod groups;
pub mod keeper;
pub mod limits;
pub mod memory;
pub mod owners;
pub mod processes;
pub mod results;
pub mod runtime;
pub mod signals;
pub mod streams;
pub mod terminal;
