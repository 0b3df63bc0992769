//! The machines of one cell: one or more VMs with the same guest under one schedule.

use std::{sync::Arc, thread, time::Duration};

use super::{timeline::timeline, window::WindowBarrier};
use crate::{
    Interrupt,
    cell::{CellError, RunSpec},
};
use base::{
    counters::MachineCounts,
    host_counts::{HostCounts, ThreadTimes},
    units::VcpuId,
};
use machine::{
    clock::Moment,
    driver::{Account, Meter, SchedReport},
    vm::{Console, MachineSpec, Report, Running, Schedule, VmError, abandoned},
};
use study::timeline::{TimeSpan, Timeline};

/// Interval at which suspected lost wakeups are checked again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Machines {
    pub(super) running: Vec<Running>,
    /// Collects the benchmark steps that guests report.
    pub(super) barrier: Arc<WindowBarrier>,
    schedule: Schedule,
    started: Moment,
}

/// The results of machines that have ended.
#[derive(Debug)]
pub(super) struct MachineResults {
    pub(super) reports: Vec<Report>,
    /// The account of their schedule, if it was ours.
    pub(super) schedule: Option<SchedReport>,
    /// The timeline, if the run was traced.
    pub(super) timeline: Option<Timeline>,
}

impl Machines {
    /// Starts the machines of the cell as `spec` describes, each with its own number of vCPUs and
    /// console.
    pub(super) fn start(
        run: &RunSpec<'_>,
        spec: &MachineSpec,
        interrupt: &Interrupt,
        mut console: impl FnMut(usize) -> Result<Console, CellError>,
    ) -> Result<Self, CellError> {
        wait_for_earlier(|is_over| abandoned::wait(abandoned::TIMEOUT, is_over), interrupt)?;
        let with_vcpus = |(ix, vcpus)| {
            let cgroups = run.cgroups.get(ix).cloned().unwrap_or_default();
            MachineSpec { vcpus, cgroups, ..spec.clone() }
        };
        let specs: Vec<MachineSpec> = run.point.sizes().enumerate().map(with_vcpus).collect();
        let build = |(ix, spec)| run.schedule.build(spec, ix);
        // All are built before the first one starts, as building takes time.
        let built = specs.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>()?;
        let barrier = WindowBarrier::new(specs.len(), run.schedule.clone());
        let (schedule, started) = (run.schedule.clone(), Moment::now());
        let mut machines = Self { running: Vec::new(), barrier, schedule, started };
        for (ix, vm) in built.into_iter().enumerate() {
            let bench = Some(machines.barrier.handle(ix));
            let console = Console { bench, ..console(ix)? };
            let running = machines.schedule.run(vm, console, ix)?;
            machines.running.push(running);
        }
        Ok(machines)
    }

    pub(super) fn any_ended(&self) -> bool {
        self.running.iter().any(Running::has_ended)
    }

    pub(super) fn any_failed(&self) -> bool {
        self.running.iter().any(Running::has_failed)
    }

    /// Whether the host's kernel has ended the schedule, which makes the measurement meaningless.
    pub(super) fn schedule_ended(&self) -> bool {
        self.schedule.end_reason().is_some()
    }

    /// Waits until the watchdogs have ruled out a lost wakeup for every vCPU that is halted now, a
    /// machine has ended, or the user interrupts. A lost wakeup just before the end must not go unnoticed.
    pub(super) fn wait_for_watchdogs(&self, interrupt: &Interrupt) {
        let watchdogs = self.running.iter().filter_map(Running::watchdog);
        let checks: Vec<_> = watchdogs.map(|watchdog| (watchdog, watchdog.check())).collect();
        for (watchdog, then) in checks {
            while watchdog.may_be_stuck_since(then) && !self.any_ended() && !interrupt.raised() {
                thread::sleep(RECHECK_INTERVAL);
            }
        }
    }

    /// Returns the VMM's counts so far, summed over all machines.
    pub(super) fn counts(&self) -> MachineCounts {
        let mut counts = MachineCounts::default();
        self.running.iter().for_each(|running| counts += running.machine_counts());
        counts
    }

    /// Returns the host kernel's counts for each machine so far.
    pub(super) fn host_counts(&self) -> Vec<HostCounts> {
        self.running.iter().map(Running::host_counts).collect()
    }

    /// Returns the host kernel's counts for all vCPUs of all machines together.
    pub(super) fn times(&self) -> ThreadTimes {
        let each = self.host_counts().into_iter().map(|counts| counts.total());
        each.fold(ThreadTimes::default(), ThreadTimes::plus)
    }

    pub(super) fn all_ended(&self) -> bool {
        self.running.iter().all(Running::has_ended)
    }

    /// Releases machines that wait at the barrier for machines that have ended.
    pub(super) fn release_barrier(&self) {
        let ended = self.running.iter().enumerate().filter(|(_, running)| running.has_ended());
        ended.for_each(|(vm, _)| self.barrier.mark_ended(vm));
    }

    /// Makes the schedule read these progress meters, if it is ours and traced.
    pub(super) fn meter(&self, meters: impl IntoIterator<Item = Meter>) {
        self.schedule.set_meters(meters.into_iter().collect());
    }

    /// Makes the schedule read the number of locks taken by each guest's kernel, from its telemetry, as
    /// progress.
    pub(super) fn meter_locks(&self) {
        let meter = |vm| -> Meter {
            // A weak reference, because the schedule keeps its meters.
            let barrier = Arc::downgrade(&self.barrier);
            Box::new(move || barrier.upgrade().and_then(|barrier| barrier.taken(vm)).unwrap_or(0))
        };
        self.meter((0..self.running.len()).map(meter));
    }

    /// Returns the schedule's account now, if it is a pvticket schedule.
    pub(super) fn account(&self) -> Option<Account> {
        self.schedule.account()
    }

    /// Stops all machines. `run` is the cell that they were started for.
    pub(super) fn stop(self, run: &RunSpec<'_>) -> Result<MachineResults, CellError> {
        let schedule = self.schedule.report()?.map(|done| done.report);
        let ended = self.schedule.end_reason().map(str::to_owned);
        let span = TimeSpan { from: self.started.nanos(), to: Moment::now().nanos() };
        self.running.iter().for_each(Running::stop);
        let mut reports =
            self.running.into_iter().map(Running::wait).collect::<Result<Vec<_>, _>>()?;
        let histories = reports.iter_mut().map(|report| report.history.take()).collect();
        if let Some(reason) = ended {
            return Err(CellError::ScheduleEnded(reason));
        }
        let timeline = timeline(run, histories, schedule.as_ref(), span);
        Ok(MachineResults { reports, schedule, timeline })
    }
}

/// Waits for the threads of earlier machines with `wait`, which ends when its argument returns true.
fn wait_for_earlier(
    wait: impl FnOnce(&dyn Fn() -> bool) -> Option<VcpuId>,
    interrupt: &Interrupt,
) -> Result<(), CellError> {
    match wait(&|| interrupt.raised()) {
        None => Ok(()),
        Some(_) if interrupt.raised() => Err(CellError::Interrupted),
        Some(vcpu) => Err(VmError::Abandoned(vcpu).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: benches ignored signals for the ten seconds of this wait.
    #[test]
    fn wait_for_earlier_machines_ends_by_a_signal() {
        let interrupt = Interrupt::default();
        let has_ended = wait_for_earlier(|_| None, &interrupt);
        assert!(has_ended.is_ok());
        let still_runs = wait_for_earlier(|_| Some(VcpuId(3)), &interrupt);
        assert!(matches!(still_runs, Err(CellError::Vm(VmError::Abandoned(VcpuId(3))))));
        let until_over = |is_over: &dyn Fn() -> bool| {
            assert!(!is_over());
            interrupt.raise();
            is_over().then_some(VcpuId(3))
        };
        let interrupted = wait_for_earlier(until_over, &interrupt);
        assert!(matches!(interrupted, Err(CellError::Interrupted)), "{interrupted:?}");
    }
}
