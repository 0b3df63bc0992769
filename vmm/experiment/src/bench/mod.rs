//! Measurements of the VMM itself, and of its costs on a host, that no experiment makes.

pub mod boot_times;
pub mod hypercall_times;
pub mod thread_wakeup;
