//! What a process of pvticket owes its terminal, and what it has from its system.
//!
//! The one: signals, raw mode, output that waits for slow readers, result files that are whole or absent.
//! The other: limits of memory, CPU time and threads, files built before, and who else may change them.

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
pub mod results;
pub mod runtime;
pub mod signals;
pub mod streams;
pub mod terminal;
