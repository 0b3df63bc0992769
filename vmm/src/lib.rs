//! The pvticket VMM as a library.
