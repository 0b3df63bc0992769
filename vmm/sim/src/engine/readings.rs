//! Readings of a simulation: sums, wait times, decisions.

use sched::extensions::Extensions;
use sched::log::Slice;
use sched::policy::{Divergence, Hits};
use sched::recording::Recording;

use super::*;

impl Sim {
    /// The figures so far.
    pub fn figures(&mut self) -> SimFigures {
        self.sample_all();
        let vcpus = self.shared.vcpus();
        let sum = |count: fn(&guest::VcpuActivity) -> u64| vcpus.iter().map(count).sum();
        SimFigures {
            time: self.now,
            operations: vcpus.iter().map(|state| state.operations.get()).collect(),
            slow: sum(|state| state.slow.get()),
            halts: sum(|state| state.halts.get()),
            kicks: sum(|state| state.kicks.get()),
            retries: sum(|state| state.retries.get()),
            stolen: self.stolen,
            polled: self.polled,
            sleeps: self.sleeps,
            shootdowns: self.shootdowns,
            pause_exits: self.pause_exits,
            violations: sum(|state| state.violations.get()),
            disorder: sum(|state| state.disorder.get()),
            spins: self.spins,
            transfers: self.lines.transfers(),
            events: self.num_events,
            faults: self.faults.counts(),
            schedule: self.core.accounting().totals_at(self.now.to_clock()),
        }
    }

    /// Wait times of vCPUs so far. Counters have no wait times, and lockrefs only if they are locked.
    pub fn wait_times(&self) -> WaitTimes {
        self.shared.waits.times(self.now)
    }

    /// Divergence of a replay from its recording so far; `None` for all other policies.
    pub fn divergence(&self) -> Option<Divergence> {
        self.core.policy().divergence()
    }

    /// Hits and misses so far of a policy that targets certain preemptions; `None` for all other policies.
    pub fn hits(&self) -> Option<Hits> {
        self.core.policy().hits()
    }

    /// The operations of each vCPU so far.
    pub fn operations_by_vcpu(&self) -> Vec<u64> {
        self.shared.vcpus().iter().map(|state| state.operations.get()).collect()
    }

    #[cfg(test)]
    pub(crate) fn activities(&self) -> Vec<sched::LockActivity> {
        (0..self.vcpus.len()).map(|vcpu| self.activity(vcpu)).collect()
    }

    /// Slice extensions so far, for a policy that grants them.
    pub fn extensions(&self) -> Option<&Extensions> {
        self.core.policy().extensions()
    }

    /// The decisions so far, without slices if these are not recorded.
    pub fn recording(&self) -> Recording {
        Recording::from_core(&self.core, self.vcpus.len() as u32)
    }

    /// The schedule for a timeline, with all times on the simulation's clock. Slices are included only
    /// if they are recorded.
    pub fn schedule_record(&self) -> ScheduleRecord {
        let log = self.core.log();
        let slice = |slice: &Slice| Slice { at: log.start().after(slice.at), ..*slice };
        let accounting = self.core.accounting();
        let (handoffs, lost_handoffs) =
            self.handoffs.as_ref().map(Handoffs::records).unwrap_or_default();
        ScheduleRecord {
            handoffs,
            lost_handoffs,
            now: self.now.to_clock(),
            slices: log.slices().iter().map(slice).collect(),
            lost_slices: log.lost(),
            preemptions: accounting.records().to_vec(),
            totals: accounting.totals_at(self.now.to_clock()),
        }
    }
}
