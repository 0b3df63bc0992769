//! The guests that pvticket brings along.

pub mod artifacts;
pub mod initrd;
mod initrd_check;
pub mod payload;
