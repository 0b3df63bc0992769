//! The pvticket VMM as a library.

pub mod units;
