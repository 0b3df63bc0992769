//! The pvticket VMM as a library.

pub mod cpio;
pub mod units;
