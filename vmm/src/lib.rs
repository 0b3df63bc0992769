//! The pvticket VMM as a library.

// Unsafe code is only in other crates.
#![forbid(unsafe_code)]
// print!/eprint! panic on a closed stream: `cli` prints through `streams`.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod check;
pub mod cli;
