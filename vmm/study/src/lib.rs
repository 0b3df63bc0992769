//! Experiments: their specs, points and order, their stores, and the analysis of their figures.
//!
//! ```text
//! text of a spec ── [`spec`] ── [`point`]s in an order ── (measured by `experiment`) ── [`store`]
//!                ── [`findings`] with [`stats`] ── (shown by `report`)
//! ```
//!
//! No KVM, no threads, no guests: runs of other hosts can be read wherever this crate builds.

#![forbid(unsafe_code)]

pub mod axis;
pub mod disturbance;
pub mod findings;
pub mod guest;
pub mod host_facts;
pub mod host_window;
pub mod latencies;
pub mod plan;
pub mod point;
pub mod published;
pub mod reproduction;
pub mod spec;
pub mod stats;
pub mod store;
pub mod sync_counters;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeline;
pub mod timings;
