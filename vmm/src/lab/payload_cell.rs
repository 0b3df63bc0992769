//! A run of the payload.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hypercalls::payload::{MEMORY, Workload};
use locks::System;
use serde::{Serialize, Serializer};
use vm_memory::GuestMemoryMmap;

use super::{
    Interrupt,
    cell::{Cell, CellError, RunSpec, Sample, Scheduled, ended_early},
    latencies::Latencies,
    live::Phase,
    machines::{Ended, Machines, affinity},
    sync_counters::WorkCounts,
    timeline::Span,
};
use crate::{
    clock::Moment,
    guest::payload::{PayloadSpec, SharedError, SharedView, SlotFigures, Waits},
    kvm::sys::tsc,
    machine::counters::MachineCounts,
    sched::driver::{Measured as Account, Meter, Progress},
    units::{ByteSize, VcpuCount, VcpuId},
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, PvBackend},
};

/// How long the vCPUs may take to the start: the slowest, 128 spinning vCPUs on
/// one CPU, need a scheduler's round, well under a second.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Between two looks whether all have arrived.
const ARRIVAL_LOOK: Duration = Duration::from_micros(500);

/// Between two looks whether a machine has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A workload of the payload: in ring 3, or in ring 0 where the backend needs HLT.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PayloadCell {
    /// One of [`Workload::OF_LOCKS`].
    #[serde(serialize_with = "name")]
    pub workload: Workload,
    /// Looks at the lock's head before a PV waiter halts.
    pub spin_threshold: u32,
    /// Increments inside the critical section, or what a counter adds.
    pub critical: u32,
    /// Increments between two operations.
    pub think: u32,
    /// Adds between two sums of a counter; zero: no sums.
    pub sum_every: u32,
    /// Keep how long operations take.
    pub timed: bool,
}

/// As `--workload` has it.
fn name<S: Serializer>(workload: &Workload, serializer: S) -> Result<S::Ok, S::Error> {
    workload.name().serialize(serializer)
}

impl Default for PayloadCell {
    fn default() -> Self {
        Self {
            workload: Workload::Operate,
            spin_threshold: PayloadSpec::SPIN_THRESHOLD,
            critical: PayloadSpec::CRITICAL,
            think: PayloadSpec::THINK,
            sum_every: PayloadSpec::SUM_EVERY,
            timed: false,
        }
    }
}

impl PayloadCell {
    /// Contention before the measurement when nobody says. A run begins with a fast spell, until
    /// the first holder is preempted: some scheduler slices.
    pub const WARM_UP: Duration = Duration::from_millis(100);

    fn machine(&self, run: &RunSpec<'_>) -> MachineSpec {
        let system = run.system.unwrap_or(match run.backend {
            PvBackend::Off => System::NativeTicket,
            PvBackend::Vmm | PvBackend::Doorbell | PvBackend::Kvm => System::PvTicket,
        });
        let &Self { workload, spin_threshold, critical, think, sum_every, timed } = self;
        let payload = PayloadSpec {
            workload,
            system,
            spin_threshold,
            critical,
            think,
            sum_every,
            timed,
            transport: run.backend.transport(),
            handoff: run.handoff,
        };
        MachineSpec {
            vcpus: run.vcpus,
            memory: ByteSize(MEMORY),
            guest: GuestSpec::Payload(payload),
            pv: run.backend,
            kvm_kick: true,
            telemetry: run.has_telemetry(),
            affinity: affinity(run),
            pinned: false,
            preempt_count: None,
            kvm_stats: false,
            faults: run.fault_plan(),
            watched: run.backend != PvBackend::Off,
            traced: run.trace,
        }
    }
}

impl Cell for PayloadCell {
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Sample, CellError> {
        let spec = self.machine(run);
        let machines = Machines::start(run, &spec, |_| Ok(Console::null()))?;
        let measured = self.measure(&machines, run, interrupt);
        let ended = match &measured {
            Ok((_, measured)) => measured.ended,
            Err(_) => machines.has_one_ended(),
        };
        let Ended { reports, schedule, timeline } = machines.stop(run)?;
        if let Some(report) = reports.iter().find(|report| !is_well(&report.end, ended)) {
            return Err(ended_early(&report.end, ""));
        }
        let (mut sample, measured) = measured?;
        sample.schedule = schedule.map(|whole| Scheduled { measured: measured.schedule, whole });
        let Measured { span, progress, .. } = measured;
        sample.timeline = timeline.map(|timeline| Arc::new(timeline.measured(span, progress)));
        Ok(sample)
    }
}

impl PayloadCell {
    /// Starts the workload, lets it warm up, and measures between two readings. What comes after
    /// (a queue of spinning waiters drains slowly) is nobody's business, so the machine is then
    /// stopped from outside.
    fn measure(
        &self,
        machines: &Machines,
        run: &RunSpec<'_>,
        interrupt: &Interrupt,
    ) -> Result<(Sample, Measured), CellError> {
        let shared: Vec<SharedView<'_>> =
            machines.running.iter().map(|running| SharedView::new(running.memory())).collect();
        for shared in &shared {
            wait_for_all(machines, shared, run, interrupt)?;
        }
        shared.iter().try_for_each(SharedView::go)?;
        let rate = tsc::Rate::start();
        let mut meters = Meters::new(machines, run);
        let look = |phase, meters: &mut Meters| {
            meters.read();
            machines.show(run, phase);
        };
        pause(machines, run.warm_up, interrupt, || look(Phase::WarmUp, &mut meters))?;
        // The guest's window lies within ours: a reader that is preempted between the two readings
        // sees no call that the VMM has not counted.
        let (counts, before) = (machines.counts(), self.read(machines, &shared, run)?);
        let account = machines.account();
        let from = Moment::now().reading();
        pause(machines, run.duration, interrupt, || look(Phase::Measured, &mut meters))?;
        let (after, counts) = (self.read(machines, &shared, run)?, machines.counts() - counts);
        let schedule = machines.account().zip(account).map(|(after, before)| after.since(&before));
        let span = Span { from, to: Moment::now().reading() };
        machines.outwait_doubts(interrupt);
        // From here on a machine may end, as it is told to.
        let ended = machines.has_one_ended();
        shared.iter().try_for_each(SharedView::stop)?;
        let MachineCounts { vcpus: vmm, faults } = counts;
        let sample = Sample { vmm, faults, ..self.sample(run, &before, &after, rate) };
        let schedule = schedule.unwrap_or_default();
        Ok((sample, Measured { ended, schedule, span, progress: meters.read }))
    }

    fn read(
        &self,
        machines: &Machines,
        shared: &[SharedView<'_>],
        run: &RunSpec<'_>,
    ) -> Result<Reading, CellError> {
        let at = Instant::now();
        let slots = shared.iter().map(|shared| shared.slots(run.vcpus));
        let slots = slots.collect::<Result<Vec<_>, _>>()?.concat();
        let timed = if self.timed { shared } else { &[] };
        let waits = machines.running.iter().zip(timed).map(|(running, shared)| {
            let waits = shared.waits(run.vcpus)?;
            let now = tsc::read();
            let age = |(vcpu, since): &(VcpuId, u64)| running.ticks_since(*vcpu, *since, now);
            let open = waits.open.iter().filter_map(age).collect();
            Ok((waits, open))
        });
        Ok(Reading { at, slots, waits: waits.collect::<Result<_, SharedError>>()? })
    }

    /// What happened between two readings.
    fn sample(
        &self,
        run: &RunSpec<'_>,
        before: &Reading,
        after: &Reading,
        rate: tsc::Rate,
    ) -> Sample {
        // Saturating: what a guest writes need not grow.
        let grown = |figure: fn(&SlotFigures) -> u64| -> Vec<u64> {
            let slots = before.slots.iter().zip(&after.slots);
            slots.map(|(before, after)| figure(after).saturating_sub(figure(before))).collect()
        };
        let total = |figure| grown(figure).iter().sum();
        let mut operations = grown(|slot| slot.operations);
        if self.workload == Workload::HotLine {
            // The reader is no operator.
            let vcpus = run.vcpus.get() as usize;
            let machines = operations.chunks(vcpus).flat_map(|its| &its[..vcpus - 1]);
            operations = machines.copied().collect();
        }
        let work = WorkCounts {
            rmw: total(|slot| slot.rmw),
            beside: total(|slot| slot.beside),
            spins: total(|slot| slot.spins),
            retries: total(|slot| slot.retries),
            sums: total(|slot| slot.sums),
            deviation: after.slots.iter().map(|slot| slot.deviation).max().unwrap_or(0),
            looks: total(|slot| slot.looks),
        };
        Sample {
            seconds: (after.at - before.at).as_secs_f64(),
            operations,
            slow: Some(total(|slot| slot.slow)),
            halts: total(|slot| slot.halts),
            kicks: total(|slot| slot.kicks),
            violations: after.slots.iter().map(|slot| slot.violations).sum(),
            disorder: after.slots.iter().map(|slot| slot.disorder).sum(),
            // Each figure would be of operations of which some do not have it.
            work: (self.workload != Workload::Mixed).then_some(work),
            latencies: before.latencies(after, rate),
            ..Sample::default()
        }
    }
}

/// Everything that a guest's vCPUs say of themselves, at one moment.
struct Reading {
    at: Instant,
    slots: Vec<SlotFigures>,
    /// Of each machine, if they keep them, and how many ticks those have lasted that last.
    waits: Vec<(Waits, Vec<u64>)>,
}

impl Reading {
    /// Those since this reading.
    fn latencies(&self, later: &Self, rate: tsc::Rate) -> Option<Latencies> {
        let khz = if self.waits.is_empty() { 0 } else { rate.khz() };
        let pairs = self.waits.iter().zip(&later.waits);
        let machines =
            pairs.map(|((before, _), (after, open))| Latencies::between(before, after, open, khz));
        machines.reduce(|all, its| all.merge(&its))
    }
}

/// Did a machine end as it should? A payload does so by itself only when it is told to stop; whether
/// that comes before the machine is stopped from outside is a matter of luck.
fn is_well(end: &End, ended_before: bool) -> bool {
    match end {
        End::Stopped => true,
        End::Done(0) => !ended_before,
        _ => false,
    }
}

/// What is known of a measurement beside its sample.
struct Measured {
    /// A machine ended before it was told to.
    ended: bool,
    /// What the schedule did meanwhile.
    schedule: Account,
    /// When it was.
    span: Span,
    /// How far the machines had come at some moments of the run, for a trace.
    progress: Vec<Progress>,
}

/// Reads how far the machines have come whenever the lab looks anyway, where that is traced. A
/// schedule of ours reads it more often.
struct Meters {
    meters: Vec<Meter>,
    read: Vec<Progress>,
}

impl Meters {
    fn new(machines: &Machines, run: &RunSpec<'_>) -> Self {
        let running = if run.trace { machines.running.as_slice() } else { &[] };
        let meters = || running.iter().map(|running| meter(running.memory().clone(), run.vcpus));
        machines.meter(meters());
        Self { meters: meters().collect(), read: Vec::new() }
    }

    fn read(&mut self) {
        let at = Moment::now().reading();
        let read = (0..).zip(&self.meters).map(|(vm, meter)| Progress { at, vm, done: meter() });
        self.read.extend(read);
    }
}

/// Operations of all vCPUs of the machine that has this memory.
fn meter(memory: GuestMemoryMmap, vcpus: VcpuCount) -> Meter {
    Box::new(move || {
        let shared = SharedView::new(&memory);
        let done = vcpus.ids().map(|vcpu| shared.slot(vcpu).map_or(0, |slot| slot.operations));
        done.fold(0, u64::saturating_add)
    })
}

/// So long, or until a machine has ended; `look` is for whoever watches.
fn pause(
    machines: &Machines,
    duration: Duration,
    interrupt: &Interrupt,
    mut look: impl FnMut(),
) -> Result<(), CellError> {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline && !machines.has_one_ended() {
        look();
        if !interrupt.sleep_until(deadline.min(Instant::now() + LOOK_EVERY)) {
            return Err(CellError::Interrupted);
        }
    }
    look();
    Ok(())
}

fn wait_for_all(
    machines: &Machines,
    shared: &SharedView<'_>,
    run: &RunSpec<'_>,
    interrupt: &Interrupt,
) -> Result<(), CellError> {
    let deadline = Instant::now() + ARRIVAL;
    loop {
        let arrived = shared.arrived()?;
        if arrived == run.vcpus.get() || machines.has_one_ended() {
            return Ok(());
        }
        if interrupt.raised() {
            return Err(CellError::Interrupted);
        }
        if Instant::now() > deadline {
            return Err(CellError::NotArrived { arrived, vcpus: run.vcpus, waited: ARRIVAL });
        }
        machines.show(run, Phase::Boot);
        thread::sleep(ARRIVAL_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: all vCPUs had left before the machine was stopped, and the run counted as failed.
    #[test]
    fn a_payload_that_leaves_when_it_is_told_to_is_well() {
        assert!(is_well(&End::Done(0), false) && is_well(&End::Stopped, false));
        assert!(!is_well(&End::Done(0), true), "nobody had told it to");
        assert!(!is_well(&End::Done(1), false) && !is_well(&End::Reset, false));
    }
}
