//! Measurements of the VMM itself, and of what a host makes it pay, which no experiment does.

pub mod boot;
pub mod confinement;
pub mod hypercalls;
pub mod thread_wakeup;
