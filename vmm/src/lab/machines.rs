//! The machines of one run: one or several alike, under one schedule.

use std::{sync::Arc, thread, time::Duration};

use super::{
    Interrupt,
    cell::{CellError, RunSpec},
    timeline::{Span, Timeline},
    window::Gathering,
};
use crate::{
    clock::Moment,
    machine::counters::MachineCounts,
    sched::{
        Driver, SchedReport,
        driver::{Account, Meter, Snapshot},
    },
    units::CpuList,
    vm::{Console, MachineSpec, Report, Running, Vm},
};

/// Between two looks at those who may wait for ever.
const DOUBT: Duration = Duration::from_millis(20);

/// Machines at work.
#[derive(Debug)]
pub(super) struct Machines {
    pub(super) running: Vec<Running>,
    /// Where guests announce their benchmarks.
    pub(super) gathering: Arc<Gathering>,
    schedule: Option<Arc<Driver>>,
    started: Moment,
}

/// What became of them.
#[derive(Debug)]
pub(super) struct Ended {
    /// Of each machine.
    pub(super) reports: Vec<Report>,
    /// Of their schedule, if it was ours.
    pub(super) schedule: Option<SchedReport>,
    /// What happened, if it was to be traced.
    pub(super) timeline: Option<Timeline>,
}

impl Machines {
    /// Starts as many machines like `spec` as the run has, each with a console of its own.
    pub(super) fn start(
        run: &RunSpec<'_>,
        spec: &MachineSpec,
        mut console: impl FnMut(usize) -> Result<Console, CellError>,
    ) -> Result<Self, CellError> {
        let vms = run.vms as usize;
        let make = if run.trace { Driver::traced } else { Driver::new };
        let schedule = make(&run.schedule, &vec![run.vcpus.get(); vms]);
        // All are made before one starts: making them takes its time.
        let built = (0..vms).map(|_| Vm::build(spec)).collect::<Result<Vec<_>, _>>()?;
        let gathering = Gathering::new(vms, schedule.clone());
        let (running, started) = (Vec::new(), Moment::now());
        let mut machines = Self { running, gathering, schedule, started };
        for (ix, vm) in built.into_iter().enumerate() {
            let bench = Some(machines.gathering.seat(ix));
            let console = Console { bench, ..console(ix)? };
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

    /// What the VMM has counted of all of them until now.
    pub(super) fn counts(&self) -> MachineCounts {
        let mut counts = MachineCounts::default();
        self.running.iter().for_each(|running| counts += running.machine_counts());
        counts
    }

    /// Have all of them?
    pub(super) fn have_all_ended(&self) -> bool {
        self.running.iter().all(Running::has_ended)
    }

    /// Those that have ended keep nobody waiting any more.
    pub(super) fn let_others_go(&self) {
        let ended = self.running.iter().enumerate().filter(|(_, running)| running.has_ended());
        ended.for_each(|(vm, _)| self.gathering.gone(vm));
    }

    /// Has the schedule, if it is ours and traced, read how far each machine has come.
    pub(super) fn meter(&self, meters: impl IntoIterator<Item = Meter>) {
        if let Some(schedule) = &self.schedule {
            schedule.meter(meters.into_iter().collect());
        }
    }

    /// The same by the locks that the guests' kernels take, which they count where the schedule
    /// sees it.
    pub(super) fn meter_locks(&self) {
        let Some(schedule) = &self.schedule else { return };
        let meter = |vm| -> Meter {
            // The schedule keeps its meters.
            let schedule = Arc::downgrade(schedule);
            Box::new(move || schedule.upgrade().and_then(|its| its.taken(vm)).unwrap_or(0))
        };
        self.meter((0..self.running.len()).map(meter));
    }

    /// The schedule's account now, if it is one of ours.
    pub(super) fn account(&self) -> Option<Account> {
        self.schedule.as_ref().map(|schedule| schedule.account())
    }

    /// The schedule now, if it is one of ours.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.schedule.as_ref().map(|schedule| schedule.snapshot())
    }

    /// Ends them all; `run` is what they were started for.
    pub(super) fn stop(self, run: &RunSpec<'_>) -> Result<Ended, CellError> {
        let schedule = self.schedule.as_ref().map(|schedule| schedule.report());
        let span = Span { from: self.started.reading(), to: Moment::now().reading() };
        self.running.iter().for_each(Running::stop);
        let mut reports =
            self.running.into_iter().map(Running::wait).collect::<Result<Vec<_>, _>>()?;
        let histories = reports.iter_mut().map(|report| report.history.take()).collect();
        let timeline = Timeline::new(run, histories, schedule.as_ref(), span);
        Ok(Ended { reports, schedule, timeline })
    }
}

/// The CPUs that vCPU threads may use by themselves: a schedule places them.
pub(super) fn affinity(run: &RunSpec<'_>) -> Option<CpuList> {
    run.schedule.policy.is_host().then(|| run.cpus.clone())
}
