//! The command's input, output and result files.

pub(super) mod output;
pub(super) mod results;
pub(super) mod source;
pub(super) mod stdin;
