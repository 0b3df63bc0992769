//! Specs that commands make up: those of the benches.

pub mod handoffs;
pub mod rounds;
pub mod schedules;
pub mod trace;
