//! The guests that pvticket brings along.

pub mod payload;
