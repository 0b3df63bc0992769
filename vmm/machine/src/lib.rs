//! The minimal VMM: a machine with its memory, devices and vCPUs, and the drivers that schedule them.

#![forbid(unsafe_code)]
// A guest's output goes where its console says; messages are the caller's.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod clock;
pub mod devices;
pub mod driver;
pub mod guest;
pub mod vcpu;
pub mod vm;
