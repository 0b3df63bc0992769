//! Measurements of the VMM itself, and of what a host makes it pay, which no experiment does.

pub mod boot_times;
pub mod hypercall_times;
pub mod thread_wakeup;
