//! What a simulation under way shows to who looks on.

use sched::accounting::Totals;
use sched::core::State as Turn;
use sched::event::LockActivity;

use super::*;

/// A vCPU at one moment, with its counts since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VcpuSnapshot {
    /// The vCPU's state for the schedule.
    pub state: Turn,
    /// What it does with locks.
    pub activity: LockActivity,
    /// Operations.
    pub operations: u64,
    /// Calls of `lock_spinning`.
    pub halts: u64,
    /// Calls of `unlock_kick`.
    pub kicks: u64,
}

/// A simulation at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SimSnapshot {
    /// The simulated time, by the schedule's clock.
    pub at: Nanos,
    /// All vCPUs.
    pub vcpus: Vec<VcpuSnapshot>,
    /// Which vCPU each CPU has.
    pub slots: Vec<Option<VcpuIndex>>,
    /// The schedule's account since the start.
    pub totals: Totals,
}

impl Sim {
    /// Where it is. Changes nothing.
    pub fn snapshot(&self) -> SimSnapshot {
        let at = self.now.to_clock();
        let vcpu = |v: usize| {
            let doing = self.shared.doing(v);
            VcpuSnapshot {
                state: self.core.state(VcpuIndex(v as u32)),
                activity: self.activity(v),
                operations: doing.operations.get(),
                halts: doing.halts.get(),
                kicks: doing.kicks.get(),
            }
        };
        SimSnapshot {
            at,
            vcpus: (0..self.vcpus.len()).map(vcpu).collect(),
            slots: self.core.slots().to_vec(),
            totals: self.core.accounting().totals_at(at),
        }
    }
}
