//! A run of the payload.

use std::{
    thread,
    time::{Duration, Instant},
};

use hypercalls::payload::MEMORY;
use locks::System;

use super::{
    Interrupt,
    cell::{Cell, CellError, RunSpec, Sample, Scheduled, ended_early},
    machines::{Machines, affinity},
};
use crate::{
    guest::payload::{PayloadSpec, SharedView, SlotFigures},
    machine::counters::Counts,
    sched::truth::Totals,
    units::ByteSize,
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, PvBackend, sum},
};

/// How long the vCPUs may take to the start: the slowest, 128 spinning vCPUs on
/// one CPU, need a scheduler's round, well under a second.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Between two looks whether all have arrived.
const ARRIVAL_LOOK: Duration = Duration::from_micros(500);

/// Between two looks whether a machine has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lock workload of the payload: in ring 3, or in ring 0 where the backend needs HLT.
#[derive(Debug, Clone, Copy)]
pub struct PayloadCell {
    /// Looks at the lock's head before a PV waiter halts.
    pub spin_threshold: u32,
    /// Increments inside the critical section.
    pub critical: u32,
    /// Increments between release and the next take.
    pub think: u32,
}

impl PayloadCell {
    fn machine(&self, run: &RunSpec<'_>) -> MachineSpec {
        let lock = run.system.unwrap_or(match run.backend {
            PvBackend::Off => System::NativeTicket,
            PvBackend::Vmm | PvBackend::Doorbell | PvBackend::Kvm => System::PvTicket,
        });
        let &Self { spin_threshold, critical, think } = self;
        let payload = PayloadSpec {
            spin_threshold,
            critical,
            think,
            transport: run.backend.transport(),
            handoff: run.handoff,
            ..PayloadSpec::lock(lock)
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
        }
    }
}

impl Cell for PayloadCell {
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Sample, CellError> {
        let spec = self.machine(run);
        let machines = Machines::start(run, &spec, |_| Ok(Console::null()))?;
        let sample = measure(&machines, run, interrupt);
        // Not by us: the payload stops when it is told to, and it was not.
        let ended = machines.has_one_ended();
        let (reports, schedule) = machines.stop()?;
        if ended {
            let found = reports.iter().find(|report| !matches!(report.end, End::Stopped));
            return Err(found.map_or_else(
                || CellError::EndedEarly(String::new()),
                |report| ended_early(&report.end, ""),
            ));
        }
        let (mut sample, measured) = sample?;
        sample.schedule = schedule.map(|whole| Scheduled { measured, whole });
        Ok(sample)
    }
}

/// Starts the workload, lets it warm up, and measures between two readings. What
/// comes after (a queue of spinning waiters drains slowly) is nobody's business,
/// so the machine is then stopped from outside.
fn measure(
    machines: &Machines,
    run: &RunSpec<'_>,
    interrupt: &Interrupt,
) -> Result<(Sample, Totals), CellError> {
    let shared: Vec<SharedView<'_>> =
        machines.running.iter().map(|running| SharedView::new(running.memory())).collect();
    let read = || -> Result<Vec<SlotFigures>, CellError> {
        let slots = shared.iter().map(|shared| shared.slots(run.vcpus));
        Ok(slots.collect::<Result<Vec<_>, _>>()?.concat())
    };
    for shared in &shared {
        wait_for_all(machines, shared, run, interrupt)?;
    }
    shared.iter().try_for_each(SharedView::go)?;
    pause(machines, run.warm_up, interrupt)?;
    let (start, before, totals) = (Instant::now(), read()?, machines.totals());
    pause(machines, run.duration, interrupt)?;
    let (end, after, measured) = (Instant::now(), read()?, machines.totals() - totals);
    let mut vmm = Counts::default();
    machines.running.iter().for_each(|running| vmm += sum(&running.counts()));
    let faults = machines.fault_counts();
    machines.outwait_doubts(interrupt);
    shared.iter().try_for_each(SharedView::stop)?;
    let grown = |figure: fn(&SlotFigures) -> u64| -> Vec<u64> {
        before.iter().zip(&after).map(|(before, after)| figure(after) - figure(before)).collect()
    };
    let total = |figure| grown(figure).iter().sum();
    let sample = Sample {
        seconds: (end - start).as_secs_f64(),
        operations: grown(|slot| slot.operations),
        slow: Some(total(|slot| slot.slow)),
        halts: total(|slot| slot.halts),
        kicks: total(|slot| slot.kicks),
        violations: after.iter().map(|slot| slot.violations).sum(),
        disorder: after.iter().map(|slot| slot.disorder).sum(),
        vmm,
        schedule: None,
        faults,
    };
    Ok((sample, measured))
}

/// So long, or until a machine has ended.
fn pause(machines: &Machines, duration: Duration, interrupt: &Interrupt) -> Result<(), CellError> {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline && !machines.has_one_ended() {
        if !interrupt.sleep_until(deadline.min(Instant::now() + LOOK_EVERY)) {
            return Err(CellError::Interrupted);
        }
    }
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
        thread::sleep(ARRIVAL_LOOK);
    }
}
