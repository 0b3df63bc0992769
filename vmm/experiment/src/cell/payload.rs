//! Measures a workload of the payload.

use std::{
    thread,
    time::{Duration, Instant},
};

use hypercalls::payload::{MEMORY, Workload};

use super::machines::{MachineResults, Machines};
use crate::{
    Interrupt,
    cell::{Cell, CellError, Measurement, RunSpec, ended_early},
    host::around::{HostWatch, POLL_INTERVAL},
};
use base::{
    counters::{MachineCounts, WaitCounts},
    units::{ByteSize, VcpuCount, VcpuId},
};
use kvm::sys::{ram::Ram, tsc};
use machine::{
    clock::Moment,
    driver::{AccountDelta as Account, Meter},
    guest::payload::{PayloadSpec, SharedError, SharedView, SlotFigures, transport},
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec},
};
use sched::log::VmProgress;
use study::{
    latencies::Latencies, point::Point, store::record::Figures, sync_counters::WorkCounts,
    timeline::TimeSpan,
};

/// Time limit for the vCPUs to reach the start barrier. The slowest case, 128 spinning vCPUs on one
/// CPU, needs one round of the scheduler, well under a second, and a few times as long on a host
/// that has as much other work.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which the arrival of the vCPUs is polled.
const ARRIVAL_POLL: Duration = Duration::from_micros(500);

/// A workload of the payload, in ring 3, or in ring 0 where the backend needs HLT.
#[derive(Debug, Clone, Copy)]
pub struct PayloadCell {
    /// The workload, one of [`Workload::OF_LOCKS`].
    pub workload: Workload,
}

impl PayloadCell {
    /// Whether to time waits. Switches have no other figures.
    fn is_timed(&self, run: &RunSpec<'_>) -> bool {
        run.method.timed || self.workload == Workload::Switch
    }

    fn machine(&self, run: &RunSpec<'_>) -> MachineSpec {
        let Point { lock, backend, handoff, spin_threshold, lock_count, critical, think, .. } =
            *run.point;
        let payload = PayloadSpec {
            workload: self.workload,
            system: lock,
            spin_threshold,
            locks: lock_count,
            critical,
            think,
            sum_every: run.method.sum_every,
            timed: self.is_timed(run),
            transport: transport(backend),
            handoff,
        };
        run.machine(GuestSpec::Payload(payload), ByteSize(MEMORY), true)
    }
}

impl Cell for PayloadCell {
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Measurement, CellError> {
        let spec = self.machine(run);
        let machines = Machines::start(run, &spec, interrupt, |_| Ok(Console::null()))?;
        let measured = self.measure(&machines, run, interrupt);
        let ended = match &measured {
            Ok((_, measured)) => measured.ended,
            Err(_) => machines.any_ended(),
        };
        let MachineResults { reports, schedule, timeline } = machines.stop(run)?;
        if let Some(report) = reports.iter().find(|report| !ended_properly(&report.end, ended)) {
            return Err(ended_early(&report.end, ""));
        }
        let (figures, WindowResult { schedule: account, span, progress, .. }) = measured?;
        let timeline = timeline.map(|timeline| timeline.with_window(span, progress));
        Ok(Measurement::new(figures, &account, schedule, timeline))
    }
}

impl PayloadCell {
    /// Starts the workload, lets it warm up, and measures between two readings. The machine is then
    /// stopped from outside: a queue of spinning waiters would drain slowly, and no figure needs it.
    fn measure(
        &self,
        machines: &Machines,
        run: &RunSpec<'_>,
        interrupt: &Interrupt,
    ) -> Result<(Figures, WindowResult), CellError> {
        let shared: Vec<SharedView<'_>> =
            machines.running.iter().map(|running| SharedView::new(running.memory())).collect();
        for (shared, vcpus) in shared.iter().zip(run.point.sizes()) {
            wait_for_all(machines, (shared, vcpus), interrupt)?;
        }
        shared.iter().try_for_each(SharedView::start)?;
        let rate = tsc::Rate::start();
        let mut meters = Meters::new(machines, run);
        wait_window(machines, run.method.warm_up, interrupt, || meters.read())?;
        // The guest's counts are read inside our window: even if this thread is preempted between
        // the two readings, they include no call that the VMM has not counted.
        let mut watch = HostWatch::new(run.point, run.cpus);
        watch.sample(true);
        let host = machines.host_counts();
        let (counts, before) = (machines.counts(), self.read(machines, &shared, run)?);
        let account = machines.account();
        let from = Moment::now().nanos();
        wait_window(machines, run.point.duration, interrupt, || {
            watch.sample(true);
            meters.read();
        })?;
        let (after, counts) = (self.read(machines, &shared, run)?, machines.counts() - counts);
        let since = machines.host_counts();
        watch.sample(false);
        let host = since.iter().zip(&host).map(|(after, before)| after.since(before)).collect();
        let schedule = machines.account().zip(account).map(|(after, before)| after.since(&before));
        let span = TimeSpan { from, to: Moment::now().nanos() };
        machines.wait_for_watchdogs(interrupt);
        // A machine may end after this, as it is asked to stop.
        let ended = machines.any_ended();
        shared.iter().try_for_each(SharedView::stop)?;
        let MachineCounts { vcpus: vmm, faults } = counts;
        let around = watch.window();
        let figures =
            Figures { vmm, faults, host, around, ..self.figures(run, &before, &after, rate) };
        let schedule = schedule.unwrap_or_default();
        Ok((figures, WindowResult { ended, schedule, span, progress: meters.progress }))
    }

    fn read(
        &self,
        machines: &Machines,
        shared: &[SharedView<'_>],
        run: &RunSpec<'_>,
    ) -> Result<GuestReading, CellError> {
        let at = Instant::now();
        let slots = shared.iter().zip(run.point.sizes()).map(|(shared, vcpus)| shared.slots(vcpus));
        let slots = slots.collect::<Result<Vec<_>, _>>()?.concat();
        let timed = if self.is_timed(run) { shared } else { &[] };
        let machines = machines.running.iter().zip(timed).zip(run.point.sizes());
        let waits = machines.map(|((running, shared), vcpus)| {
            let waits = shared.waits(vcpus)?;
            let now = tsc::read();
            let age = |(vcpu, since): &(VcpuId, u64)| running.ticks_since(*vcpu, *since, now);
            let open = waits.pending.iter().filter_map(age).collect();
            Ok((waits, open))
        });
        Ok(GuestReading { at, slots, waits: waits.collect::<Result<_, SharedError>>()? })
    }

    /// Computes the figures between two readings.
    fn figures(
        &self,
        run: &RunSpec<'_>,
        before: &GuestReading,
        after: &GuestReading,
        rate: tsc::Rate,
    ) -> Figures {
        // Saturating: a guest's counts are untrusted and may go down.
        let increase = |figure: fn(&SlotFigures) -> u64| -> Vec<u64> {
            let slots = before.slots.iter().zip(&after.slots);
            slots.map(|(before, after)| figure(after).saturating_sub(figure(before))).collect()
        };
        let sum = |counts: Vec<u64>| counts.into_iter().fold(0, u64::saturating_add);
        let total = |figure| sum(increase(figure));
        let mut operations = increase(|slot| slot.operations);
        if self.workload == Workload::HotLine {
            operations = without_readers(operations, run.point);
        }
        let work = WorkCounts::between(&before.slots, &after.slots);
        let latencies = before.latencies(after, rate);
        Figures {
            seconds: (after.at - before.at).as_secs_f64(),
            operations,
            slow: Some(total(|slot| slot.slow)),
            halts: total(|slot| slot.halts),
            kicks: total(|slot| slot.kicks),
            violations: sum(after.slots.iter().map(|slot| slot.violations).collect()),
            disorder: sum(after.slots.iter().map(|slot| slot.disorder).collect()),
            // With mixed operations, each count applies to only some of them.
            work: (self.workload != Workload::Mixed).then_some(work),
            open_waits: latencies.as_ref().map_or(0, Latencies::open),
            latencies: latencies.map(|latencies| latencies.timings()),
            ..Figures::default()
        }
    }
}

/// Returns the operations of all vCPUs except the last one of each machine, which only reads.
fn without_readers(operations: Vec<u64>, point: &Point) -> Vec<u64> {
    let mut counts = operations.into_iter();
    let without_reader = |vcpus: VcpuCount| {
        let mut machine: Vec<u64> = counts.by_ref().take(vcpus.get() as usize).collect();
        machine.pop();
        machine
    };
    point.sizes().flat_map(without_reader).collect()
}

/// The counts that the guests' vCPUs publish, at one moment.
struct GuestReading {
    at: Instant,
    slots: Vec<SlotFigures>,
    /// For each machine, if waits are timed: their histogram, and the lengths of open waits in TSC
    /// ticks.
    waits: Vec<(WaitCounts, Vec<u64>)>,
}

impl GuestReading {
    /// Returns the waits between this reading and a later one, if they are timed.
    fn latencies(&self, later: &Self, rate: tsc::Rate) -> Option<Latencies> {
        let khz = if self.waits.is_empty() { 0 } else { rate.khz() };
        let pairs = self.waits.iter().zip(&later.waits);
        let machines =
            pairs.map(|((before, _), (after, open))| Latencies::between(before, after, open, khz));
        machines.reduce(|sum, machine| sum.merge(&machine))
    }
}

/// Whether a machine ended properly. A payload exits only when it is asked to stop; whether it does
/// so before the machine is stopped from outside is a matter of timing.
fn ended_properly(end: &End, ended_before: bool) -> bool {
    match end {
        End::Stopped => true,
        End::Done(0) => !ended_before,
        _ => false,
    }
}

/// Results of a measurement in addition to the figures of guests and VMM.
struct WindowResult {
    /// Whether a machine ended before it was asked to.
    ended: bool,
    /// The schedule's account over the window.
    schedule: Account,
    /// The measured window, on the monotonic clock.
    span: TimeSpan,
    /// The machines' progress at some moments of the run, for a trace.
    progress: Vec<VmProgress>,
}

/// Reads the machines' progress whenever their end is polled, if the run is traced. A schedule of
/// ours reads it more often.
struct Meters {
    meters: Vec<Meter>,
    progress: Vec<VmProgress>,
}

impl Meters {
    fn new(machines: &Machines, run: &RunSpec<'_>) -> Self {
        let running = if run.trace { machines.running.as_slice() } else { &[] };
        let sizes = || running.iter().zip(run.point.sizes());
        let meters = || sizes().map(|(running, vcpus)| meter(running.memory().clone(), vcpus));
        machines.meter(meters());
        Self { meters: meters().collect(), progress: Vec::new() }
    }

    fn read(&mut self) {
        let at = Moment::now().nanos();
        let now = (0..).zip(&self.meters).map(|(vm, meter)| VmProgress { at, vm, done: meter() });
        self.progress.extend(now);
    }
}

/// Creates a meter of the operations by all vCPUs of the machine with this memory.
fn meter(memory: Ram, vcpus: VcpuCount) -> Meter {
    Box::new(move || {
        let shared = SharedView::new(&memory);
        let done = vcpus.ids().map(|vcpu| shared.slot(vcpu).map_or(0, |slot| slot.operations));
        done.fold(0, u64::saturating_add)
    })
}

/// Waits for `duration`, or until a machine or the schedule has ended. Calls `poll` at intervals.
fn wait_window(
    machines: &Machines,
    duration: Duration,
    interrupt: &Interrupt,
    mut poll: impl FnMut(),
) -> Result<(), CellError> {
    let deadline = Instant::now() + duration;
    let is_over = || machines.any_ended() || machines.schedule_ended();
    while Instant::now() < deadline && !is_over() {
        poll();
        if !interrupt.sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) {
            return Err(CellError::Interrupted);
        }
    }
    poll();
    Ok(())
}

fn wait_for_all(
    machines: &Machines,
    (shared, vcpus): (&SharedView<'_>, VcpuCount),
    interrupt: &Interrupt,
) -> Result<(), CellError> {
    let deadline = Instant::now() + ARRIVAL_TIMEOUT;
    loop {
        let arrived = shared.arrived()?;
        if arrived == vcpus.get() || machines.any_ended() {
            return Ok(());
        }
        if interrupt.raised() {
            return Err(CellError::Interrupted);
        }
        if Instant::now() > deadline {
            let times = machines.times();
            return Err(CellError::NotArrived { arrived, vcpus, waited: ARRIVAL_TIMEOUT, times });
        }
        thread::sleep(ARRIVAL_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: all vCPUs exited before the machine was stopped, and the run counted as failed.
    #[test]
    fn payload_may_exit_once_asked_to_stop() {
        assert!(ended_properly(&End::Done(0), false) && ended_properly(&End::Stopped, false));
        assert!(!ended_properly(&End::Done(0), true), "it had not been asked to");
        assert!(!ended_properly(&End::Done(1), false) && !ended_properly(&End::Reset, false));
    }
}
