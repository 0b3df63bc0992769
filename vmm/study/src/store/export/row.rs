//! A cell as one row of the exported table.

use super::super::record::{CellLine, Figures, Outcome, RunLine, SimCounts};
use crate::{
    disturbance::Disturbance,
    findings::{IMPOSSIBLE, VcpuTimeShares, point::fairness_of},
    sync_counters::WorkCounts,
};
use base::{
    counters::{Counts, FaultCounts},
    host_counts::{ThreadTimes, YieldCounts},
};
use sched::{
    accounting::Totals, directed_yields::DirectedYields, extensions::ExtensionCounts, policy::Hits,
};

#[derive(Debug)]
pub(crate) struct CellRow<'a> {
    pub store: &'a str,
    pub run: &'a RunLine,
    pub cell: &'a CellLine,
}

impl<'a> CellRow<'a> {
    pub fn figures(&self) -> Option<&'a Figures> {
        self.cell.figures()
    }

    /// Returns the figures if the guest's kernel counts halts and kicks.
    pub fn counted(&self) -> Option<&'a Figures> {
        self.figures().filter(|figures| !figures.halts_uncounted)
    }

    pub fn disturbance(&self) -> Option<Disturbance> {
        Some(Disturbance::new(&self.cell.point, [self.figures()?].into_iter()))
    }

    pub const fn status(&self) -> &'static str {
        match self.cell.outcome {
            Outcome::Done { .. } => "done",
            Outcome::Failed { .. } => "failed",
            Outcome::Aborted => "aborted",
        }
    }

    pub fn error(&self) -> Option<&'a str> {
        match &self.cell.outcome {
            Outcome::Failed { error, .. } => Some(error),
            Outcome::Done { .. } if self.figures().is_none() => Some(IMPOSSIBLE),
            Outcome::Done { .. } | Outcome::Aborted => None,
        }
    }

    pub fn vmm(&self) -> Option<&'a Counts> {
        self.figures().map(|figures| &figures.vmm)
    }

    pub fn totals(&self) -> Option<&'a Totals> {
        Some(&self.figures()?.schedule.as_ref()?.totals)
    }

    /// Returns the sums if their lock states are observed, or if the guest published them.
    fn totals_by(&self, is_observed: bool) -> Option<&'a Totals> {
        let schedule = self.figures()?.schedule.as_ref()?;
        let is_it = schedule.is_observed(self.cell.point.driver) == is_observed;
        is_it.then_some(&schedule.totals)
    }

    pub fn published(&self) -> Option<&'a Totals> {
        self.totals_by(false)
    }

    pub fn observed(&self) -> Option<&'a Totals> {
        self.totals_by(true)
    }

    /// Returns the directed yields of an observed cell.
    pub fn directed(&self) -> Option<&'a DirectedYields> {
        let figures = self.figures()?;
        let is_observed = self.cell.point.is_to_be_observed() && figures.no_yields.is_none();
        figures.schedule.as_ref().filter(|_| is_observed).map(|schedule| &schedule.totals.directed)
    }

    pub fn wasted_spin_ns(&self) -> Option<u64> {
        let schedule = self.figures()?.schedule.as_ref()?;
        (!schedule.waste_uncounted).then_some(schedule.totals.wasted_spin_ns)
    }

    pub fn hits(&self) -> Option<&'a Hits> {
        self.figures()?.schedule.as_ref()?.hits.as_ref()
    }

    pub fn extensions(&self) -> Option<&'a ExtensionCounts> {
        self.figures()?.schedule.as_ref()?.extensions.as_ref()
    }

    pub fn sim(&self) -> Option<&'a SimCounts> {
        self.figures()?.sim.as_ref()
    }

    pub fn faults(&self) -> Option<&'a FaultCounts> {
        self.figures()?.faults.as_ref()
    }

    pub fn work(&self) -> Option<&'a WorkCounts> {
        self.figures()?.work.as_ref()
    }

    /// Returns the times of all vCPU threads together; None if the host's kernel does not count them.
    pub fn threads(&self) -> Option<ThreadTimes> {
        VcpuTimeShares::new(&self.figures()?.host).map(|host| host.times)
    }

    /// Returns the sum of KVM's counts over all VMs.
    pub fn yields(&self) -> Option<YieldCounts> {
        self.figures()?.host.iter().map(|counts| counts.yields).reduce(YieldCounts::plus)
    }

    /// Returns the shares of time for which vCPUs had a CPU.
    pub fn ran(&self) -> Option<VcpuTimeShares> {
        VcpuTimeShares::new(&self.figures()?.host)
    }

    pub fn jain(&self) -> Option<f64> {
        fairness_of(&self.cell.point, self.figures()?).map(|fairness| fairness.jain)
    }
}
