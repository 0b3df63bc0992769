//! Readings of a simulation: sums, wait times, decisions.

use sched::extensions::Extensions;
use sched::log::Turn;
use sched::policy::{Divergence, Hits};
use sched::recording::Recording;

use super::*;

impl Sim {
    /// The figures so far.
    pub fn figures(&mut self) -> SimFigures {
        self.sample_all();
        let all = self.shared.all();
        let sum = |count: fn(&guest::Doing) -> u64| all.iter().map(count).sum();
        SimFigures {
            time: self.now,
            operations: all.iter().map(|doing| doing.operations.get()).collect(),
            slow: sum(|doing| doing.slow.get()),
            halts: sum(|doing| doing.halts.get()),
            kicks: sum(|doing| doing.kicks.get()),
            retries: sum(|doing| doing.retries.get()),
            stolen: self.stolen,
            polled: self.polled,
            sleeps: self.sleeps,
            shootdowns: self.shootdowns,
            pause_exits: self.pause_exits,
            violations: sum(|doing| doing.violations.get()),
            disorder: sum(|doing| doing.disorder.get()),
            looks: self.looks,
            transfers: self.lines.transfers(),
            events: self.counted,
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

    /// Hits and misses so far of a policy that targets certain preemptions.
    pub fn hits(&self) -> Option<Hits> {
        self.core.policy().hits()
    }

    /// The operations of each vCPU so far.
    pub fn operations_by_vcpu(&self) -> Vec<u64> {
        self.shared.all().iter().map(|doing| doing.operations.get()).collect()
    }

    /// The lock activity of each vCPU.
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
        Recording::of(&self.core, self.vcpus.len() as u32)
    }

    /// The schedule for a timeline, with all times on the simulation's clock. Slices are included only
    /// if they are recorded.
    pub fn kept(&self) -> Kept {
        let log = self.core.log();
        let turn = |turn: &Turn| Turn { at: log.start().after(turn.at), ..*turn };
        let accounting = self.core.accounting();
        let (handoffs, lost_handoffs) =
            self.handoffs.as_ref().map(Handoffs::kept).unwrap_or_default();
        Kept {
            handoffs,
            lost_handoffs,
            now: self.now.to_clock(),
            turns: log.turns().iter().map(turn).collect(),
            lost_turns: log.lost(),
            preemptions: accounting.records().to_vec(),
            totals: accounting.totals_at(self.now.to_clock()),
        }
    }
}
