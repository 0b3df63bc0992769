//! Figures counted by a simulation.

use std::ops::Sub;

use base::counters::FaultCounts;
use sched::accounting::Totals;

use crate::time::Picos;

/// Sums since the start of a simulation, or over a window: the difference of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimFigures {
    /// Time of the reading, or length of the window.
    pub time: Picos,
    /// Operations of each vCPU.
    pub operations: Vec<u64>,
    /// Operations whose lock was not free at first; a counter's writes to shared lines.
    pub slow: u64,
    /// Calls of `lock_spinning`.
    pub halts: u64,
    /// Calls of `unlock_kick`.
    pub kicks: u64,
    /// Failed compare-exchanges of a lockref.
    pub retries: u64,
    /// Time in which a host thread ran on a vCPU's CPU.
    pub stolen: Picos,
    /// Halts ended by a kick while the vCPU polled.
    pub polled: u64,
    /// Sleeps of tasks.
    pub sleeps: u64,
    /// Shootdowns started.
    pub shootdowns: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Violations of mutual exclusion detected by the guest.
    pub violations: u64,
    /// Tickets served out of order.
    pub disorder: u64,
    /// Spin iterations, including skipped ones.
    pub spins: u64,
    /// Transfers of cache lines.
    pub transfers: u64,
    /// Events: requests of vCPUs that took effect, and completed transfers.
    pub events: u64,
    /// Injected faults.
    pub faults: FaultCounts,
    /// The schedule's account.
    pub schedule: Totals,
}

impl SimFigures {
    /// Operations of all vCPUs.
    pub fn total(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Operations per second of simulated time.
    pub fn rate(&self) -> f64 {
        self.total() as f64 / self.time.seconds()
    }

    /// `count` per operation; `count` without operations.
    pub fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.total().max(1) as f64
    }
}

impl Sub<&SimFigures> for SimFigures {
    type Output = SimFigures;

    fn sub(self, before: &SimFigures) -> SimFigures {
        let pairs = self.operations.iter().zip(&before.operations);
        SimFigures {
            time: self.time - before.time,
            operations: pairs.map(|(now, before)| now - before).collect(),
            slow: self.slow - before.slow,
            halts: self.halts - before.halts,
            kicks: self.kicks - before.kicks,
            retries: self.retries - before.retries,
            stolen: self.stolen - before.stolen,
            polled: self.polled - before.polled,
            sleeps: self.sleeps - before.sleeps,
            shootdowns: self.shootdowns - before.shootdowns,
            pause_exits: self.pause_exits - before.pause_exits,
            violations: self.violations - before.violations,
            disorder: self.disorder - before.disorder,
            spins: self.spins - before.spins,
            transfers: self.transfers - before.transfers,
            events: self.events - before.events,
            faults: self.faults - before.faults,
            schedule: self.schedule - before.schedule,
        }
    }
}
