//! Tables and JSON of figures that no store keeps: boots, hypercalls, a schedule's account.

pub mod boot;
pub mod confinement;
mod handoffs;
pub mod hypercalls;
mod peers;
pub mod schedule;
