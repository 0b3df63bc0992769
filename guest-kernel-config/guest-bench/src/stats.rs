//! What our kernel counts of its locks.

use std::fs;

use guest_init::stats::Stats;
use serde_json::Value;

const FILE: &str = "/sys/kernel/debug/pvticket/stats";

/// The counters now; None on other kernels.
pub fn read() -> Option<String> {
    fs::read_to_string(FILE).ok()
}

/// What was counted since `before`.
pub fn since(before: &str) -> Option<Value> {
    let after = read()?;
    let mut json = String::new();
    Stats::parse(&after).since(&Stats::parse(before)).write_json(&mut json);
    serde_json::from_str(&json).ok()
}
