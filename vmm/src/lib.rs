//! The pvticket VMM as a library.

// All of it is in pvticket-kvm.
#![forbid(unsafe_code)]
// print!/eprint! panic on a closed stream: `cli` prints through `streams`, the agent on its
// console.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod artifacts;
pub mod cli;
pub mod cpu_quota;
pub mod doctor;
pub mod emulated;
pub mod groups;
pub mod keeper;
pub mod lab;
pub mod limits;
pub mod memory;
pub mod owners;
pub mod results;
pub mod runtime;
pub mod signals;
pub mod streams;
pub mod tables;
pub mod terminal;
