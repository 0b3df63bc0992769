//! Code shared by the guest's measuring programs, `bench` and `pgbench-table`.

#![forbid(unsafe_code)]

pub mod stats;
pub mod steal;
pub mod window;
pub mod words;
