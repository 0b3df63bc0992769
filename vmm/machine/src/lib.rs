//! A minimal VMM: VMs with memory, devices and vCPUs, and the drivers that schedule the vCPUs.

#![forbid(unsafe_code)]
// Guest output goes to the VM's console. Callers print messages.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod clock;
pub mod devices;
pub mod driver;
pub mod guest;
pub mod vcpu;
pub mod vm;
