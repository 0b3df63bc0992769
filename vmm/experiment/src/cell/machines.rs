//! The machines of one run: one or more machines with the same guest under one schedule.

use std::{sync::Arc, thread, time::Duration};

use super::{timeline::timeline, window::Gathering};
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
    vm::{Console, MachineSpec, Report, Running, Schedule, VmError, left_behind},
};
use study::timeline::{TimeSpan, Timeline};

/// Interval at which suspected lost wakeups are checked again.
const DOUBT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Machines {
    pub(super) running: Vec<Running>,
    /// Collects the benchmark steps that guests report.
    pub(super) gathering: Arc<Gathering>,
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
    /// Starts the machines of the run as `spec` describes, each with its own number of vCPUs and
    /// console.
    pub(super) fn start(
        run: &RunSpec<'_>,
        spec: &MachineSpec,
        interrupt: &Interrupt,
        mut console: impl FnMut(usize) -> Result<Console, CellError>,
    ) -> Result<Self, CellError> {
        outwait_earlier(|is_over| left_behind::wait(left_behind::PATIENCE, is_over), interrupt)?;
        let of_size = |(ix, vcpus)| {
            let cgroups = run.cgroups.get(ix).cloned().unwrap_or_default();
            MachineSpec { vcpus, cgroups, ..spec.clone() }
        };
        let specs: Vec<MachineSpec> = run.point.sizes().enumerate().map(of_size).collect();
        let build = |(ix, spec)| run.schedule.build(spec, ix);
        // All are built before the first one starts, as building takes time.
        let built = specs.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>()?;
        let gathering = Gathering::new(specs.len(), run.schedule.clone());
        let (schedule, started) = (run.schedule.clone(), Moment::now());
        let mut machines = Self { running: Vec::new(), gathering, schedule, started };
        for (ix, vm) in built.into_iter().enumerate() {
            let bench = Some(machines.gathering.seat(ix));
            let console = Console { bench, ..console(ix)? };
            let running = machines.schedule.run(vm, console, ix)?;
            machines.running.push(running);
        }
        Ok(machines)
    }

    pub(super) fn has_one_ended(&self) -> bool {
        self.running.iter().any(Running::has_ended)
    }

    pub(super) fn has_one_failed(&self) -> bool {
        self.running.iter().any(Running::has_failed)
    }

    /// Whether the host's kernel has ended the schedule, which makes the measurement meaningless.
    pub(super) fn is_left_alone(&self) -> bool {
        self.schedule.ended().is_some()
    }

    /// Waits until the watchdogs have ruled out a lost wakeup for every vCPU that is halted now, or
    /// until one has ended a machine. A lost wakeup shortly before the end must not go unnoticed.
    pub(super) fn outwait_doubts(&self, interrupt: &Interrupt) {
        let watchdogs = self.running.iter().filter_map(Running::watchdog);
        let looks: Vec<_> = watchdogs.map(|watchdog| (watchdog, watchdog.look())).collect();
        for (watchdog, then) in looks {
            while watchdog.doubts(then) && !self.has_one_ended() && !interrupt.raised() {
                thread::sleep(DOUBT);
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

    pub(super) fn have_all_ended(&self) -> bool {
        self.running.iter().all(Running::has_ended)
    }

    /// Releases machines that wait at the barrier for machines that have ended.
    pub(super) fn let_others_go(&self) {
        let ended = self.running.iter().enumerate().filter(|(_, running)| running.has_ended());
        ended.for_each(|(vm, _)| self.gathering.gone(vm));
    }

    /// Makes the schedule read these progress meters, if it is ours and traced.
    pub(super) fn meter(&self, meters: impl IntoIterator<Item = Meter>) {
        self.schedule.meter(meters.into_iter().collect());
    }

    /// Makes it read the number of locks taken by the guests' kernels, from their telemetry, as their
    /// progress.
    pub(super) fn meter_locks(&self) {
        let meter = |vm| -> Meter {
            // A weak reference, because the schedule keeps its meters.
            let gathering = Arc::downgrade(&self.gathering);
            Box::new(move || {
                gathering.upgrade().and_then(|gathering| gathering.taken(vm)).unwrap_or(0)
            })
        };
        self.meter((0..self.running.len()).map(meter));
    }

    /// Returns the schedule's account now, if it is a pvticket schedule.
    pub(super) fn account(&self) -> Option<Account> {
        self.schedule.account()
    }

    /// Stops all machines. `run` is the run that they were started for.
    pub(super) fn stop(self, run: &RunSpec<'_>) -> Result<MachineResults, CellError> {
        let schedule = self.schedule.report()?.map(|done| done.report);
        let ended = self.schedule.ended().map(str::to_owned);
        let span = TimeSpan { from: self.started.reading(), to: Moment::now().reading() };
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
fn outwait_earlier(
    wait: impl FnOnce(&dyn Fn() -> bool) -> Option<VcpuId>,
    interrupt: &Interrupt,
) -> Result<(), CellError> {
    match wait(&|| interrupt.raised()) {
        None => Ok(()),
        Some(_) if interrupt.raised() => Err(CellError::Interrupted),
        Some(vcpu) => Err(VmError::LeftBehind(vcpu).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: benches ignored signals for the ten seconds of this wait.
    #[test]
    fn the_wait_for_an_earlier_machine_ends_by_a_signal() {
        let interrupt = Interrupt::default();
        let has_ended = outwait_earlier(|_| None, &interrupt);
        assert!(has_ended.is_ok());
        let still_runs = outwait_earlier(|_| Some(VcpuId(3)), &interrupt);
        assert!(matches!(still_runs, Err(CellError::Vm(VmError::LeftBehind(VcpuId(3))))));
        let until_it_is_over = |is_over: &dyn Fn() -> bool| {
            assert!(!is_over());
            interrupt.raise();
            is_over().then_some(VcpuId(3))
        };
        let interrupted = outwait_earlier(until_it_is_over, &interrupt);
        assert!(matches!(interrupted, Err(CellError::Interrupted)), "{interrupted:?}");
    }
}
