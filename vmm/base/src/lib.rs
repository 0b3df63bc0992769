//! Types shared by all crates: ids, units of time and size, settings and counters of a guest, a
//! seeded random number generator; and reading of user-supplied files. No clock, no threads.

#![forbid(unsafe_code)]

pub mod backend;
pub mod cgroups;
pub mod chain;
pub mod counters;
pub mod escape;
pub mod events;
pub mod faults;
pub mod files;
pub mod guest_kernel;
pub mod handoff;
pub mod host_counts;
pub mod host_extras;
pub mod io_errors;
pub mod label;
pub mod names;
pub mod other_vms;
pub mod plural;
pub mod program;
pub mod rng;
pub mod sanitize;
pub mod steal_source;
pub mod text;
pub mod text_lines;
pub mod threads;
pub mod units;
pub mod work;
