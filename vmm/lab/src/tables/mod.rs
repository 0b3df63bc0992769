//! Tables and JSON of figures that no store keeps: boots, hypercalls, a schedule's account.

pub mod boot_times;
pub mod confinement;
mod handoffs;
pub mod hypercall_times;
mod peers;
pub mod schedule;

use serde::Serialize;
use study::stats::{self, Estimate};

/// A document as JSON for files, which end with a line end.
fn document(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// The ratio of `values` to `base`, round by round, each of which measured both.
fn by_rounds(values: &[f64], base: &[f64]) -> Option<Estimate> {
    let pairs: Vec<(f64, f64)> = values.iter().copied().zip(base.iter().copied()).collect();
    stats::ratio_of_pairs(&pairs)
}
