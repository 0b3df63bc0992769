//! The pvticket VMM as a library.

// They panic where nobody reads: `cli` says what there is to say, the agent has a console.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod boot;
pub mod cli;
pub mod clock;
pub mod cpio;
pub mod doctor;
pub mod emulated;
pub mod files;
pub mod guest;
pub mod kvm;
pub mod lab;
pub mod machine;
pub mod report;
pub mod results;
pub mod rng;
pub mod runtime;
pub mod sched;
pub mod shown;
pub mod signals;
pub mod streams;
pub mod terminal;
pub mod text;
pub mod units;
pub mod vcpu;
pub mod vm;
