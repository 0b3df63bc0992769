//! Words of every floor: ids, units of time and size, what a guest is asked to do and what is
//! counted of it, a seeded generator; and how files that users name are read. No clock, no threads.

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
pub mod names;
pub mod other_vms;
pub mod plural;
pub mod program;
pub mod rng;
pub mod shown;
pub mod text;
pub mod text_lines;
pub mod threads;
pub mod units;
pub mod work;
