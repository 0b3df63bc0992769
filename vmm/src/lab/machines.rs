//! The machines of one run: one or several alike, under one schedule.

use std::{sync::Arc, thread, time::Duration};

use super::{
    Interrupt,
    cell::{CellError, RunSpec},
};
use crate::{
    machine::counters::FaultCounts,
    sched::{Driver, SchedReport, truth::Totals},
    units::CpuList,
    vm::{Console, MachineSpec, Report, Running, Vm},
};

/// Between two looks at those who may wait for ever.
const DOUBT: Duration = Duration::from_millis(20);

/// Machines at work.
#[derive(Debug)]
pub(super) struct Machines {
    pub(super) running: Vec<Running>,
    schedule: Option<Arc<Driver>>,
}

impl Machines {
    /// Starts as many machines like `spec` as the run has, each with a console of its own.
    pub(super) fn start(
        run: &RunSpec<'_>,
        spec: &MachineSpec,
        mut console: impl FnMut(usize) -> Result<Console, CellError>,
    ) -> Result<Self, CellError> {
        let vms = run.vms as usize;
        let schedule = Driver::new(&run.schedule, &vec![run.vcpus.get(); vms]);
        // All are made before one starts: making them takes its time.
        let built = (0..vms).map(|_| Vm::build(spec)).collect::<Result<Vec<_>, _>>()?;
        let mut machines = Self { running: Vec::new(), schedule };
        for (ix, vm) in built.into_iter().enumerate() {
            let console = console(ix)?;
            machines.running.push(match &machines.schedule {
                Some(schedule) => vm.start_in(console, schedule, ix)?,
                None => vm.start(console)?,
            });
        }
        Ok(machines)
    }

    /// Has one of them ended by itself?
    pub(super) fn has_one_ended(&self) -> bool {
        self.running.iter().any(Running::has_ended)
    }

    /// Has one of them failed?
    pub(super) fn has_one_failed(&self) -> bool {
        self.running.iter().any(Running::has_failed)
    }

    /// Waits until it is known of everybody who halts now that he does not wait for ever, or a
    /// machine has ended for it: a run is not well because it was over sooner.
    pub(super) fn outwait_doubts(&self, interrupt: &Interrupt) {
        let watchdogs = self.running.iter().filter_map(Running::watchdog);
        let looks: Vec<_> = watchdogs.map(|watchdog| (watchdog, watchdog.look())).collect();
        for (watchdog, then) in looks {
            while watchdog.doubts(then) && !self.has_one_ended() && !interrupt.raised() {
                thread::sleep(DOUBT);
            }
        }
    }

    /// What went wrong on purpose so far, if anything is to.
    pub(super) fn fault_counts(&self) -> Option<FaultCounts> {
        let counts = self.running.iter().filter_map(Running::fault_counts);
        counts.reduce(|mut all, its| {
            all += its;
            all
        })
    }

    /// Have all of them?
    pub(super) fn have_all_ended(&self) -> bool {
        self.running.iter().all(Running::has_ended)
    }

    /// The schedule's sums now.
    pub(super) fn totals(&self) -> Totals {
        self.schedule.as_ref().map(|schedule| schedule.totals()).unwrap_or_default()
    }

    /// Ends them all; gives their reports and the schedule's.
    pub(super) fn stop(self) -> Result<(Vec<Report>, Option<SchedReport>), CellError> {
        let report = self.schedule.as_ref().map(|schedule| schedule.report());
        self.running.iter().for_each(Running::stop);
        let reports = self.running.into_iter().map(Running::wait).collect::<Result<_, _>>()?;
        Ok((reports, report))
    }
}

/// The CPUs that vCPU threads may use by themselves: a schedule places them.
pub(super) fn affinity(run: &RunSpec<'_>) -> Option<CpuList> {
    run.schedule.policy.is_host().then(|| run.cpus.clone())
}
