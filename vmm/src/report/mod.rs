//! What people and programs read: tables, JSON, progress.

pub mod boot_bench;
pub mod columns;
pub mod faults;
pub mod figures;
mod handoffs;
pub mod html;
pub mod hyper_bench;
pub mod json;
mod peers;
pub mod perfetto;
pub mod progress;
pub mod sched_bench;
pub mod schedule;
pub mod si;
pub mod study;
pub mod table;
pub mod top;
pub mod trace_bench;
pub mod trace_text;
mod work;
