//! What people and programs read: tables, JSON, progress.

pub mod json;
pub mod progress;
pub mod si;
pub mod table;
