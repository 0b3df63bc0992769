//! What an errand reads and writes, carried between the user and the emulated host.

pub(super) mod output;
pub(super) mod results;
pub(super) mod source;
pub(super) mod stdin;
