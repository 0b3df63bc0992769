//! The pvticket VMM as a library.

pub mod boot;
pub mod cli;
pub mod clock;
pub mod cpio;
pub mod doctor;
pub mod emulated;
pub mod guest;
pub mod kvm;
pub mod lab;
pub mod machine;
pub mod report;
pub mod rng;
pub mod sched;
pub mod units;
pub mod vcpu;
pub mod vm;
