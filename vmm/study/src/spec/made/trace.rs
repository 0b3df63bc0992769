//! `bench trace`: the cost of recording a timeline.
//!
//! Each round runs every policy three times: once traced and twice plain. The two plain runs show
//! the error of the measurement: the same case compared with itself.

use std::time::Duration;

use super::rounds::Rounds;
use crate::spec::SpecText;
use base::units::{Nanos, VcpuCount};
use sched::PolicySpec;

/// What to measure, and how.
#[derive(Debug)]
pub struct TracePlan {
    /// Number of slots.
    pub slots: u32,
    /// Number of vCPUs, with PV locks.
    pub vcpus: VcpuCount,
    /// The scheduling policies.
    pub policies: Vec<PolicySpec>,
    /// The time slice.
    pub slice: Nanos,
    /// How often and how long every point is measured.
    pub rounds: Rounds,
}

/// Contention before each window.
pub const WARM_UP: Duration = Duration::from_millis(50);

/// Labels of the runs without a timeline. The first is the baseline of the others.
pub const PLAIN: [&str; 2] = ["plain", "again"];

/// Label of the traced runs.
pub const TRACED: &str = "traced";

impl TracePlan {
    /// The spec.
    pub fn spec(&self) -> String {
        let mut spec = SpecText::default();
        spec.one("slots", self.slots)
            .one("vcpus", self.vcpus)
            .text("locks", ["pv-ticket"])
            .text("labels", [PLAIN[0], PLAIN[1], TRACED])
            .text("policies", &self.policies)
            .text("slice", [self.slice]);
        self.rounds.put(&mut spec);
        spec.into()
    }
}
