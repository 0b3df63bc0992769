//! The pvticket VMM as a library.

pub mod kvm;
pub mod units;
