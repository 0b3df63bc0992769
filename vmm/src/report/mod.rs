//! What people and programs read: tables, JSON, progress.

pub mod boot_bench;
pub mod columns;
pub mod faults;
mod handoffs;
pub mod hyper_bench;
pub mod json;
mod peers;
pub mod progress;
pub mod sched_bench;
pub mod schedule;
pub mod si;
pub mod table;
mod work;
