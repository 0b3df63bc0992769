//! Runs a payload that repeats one kind of hypercall and times each.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{HALT_TIME, HyperCase, HyperError, HyperPlan, Placement, RoundFigures};
use base::{counters::sum, units::VcpuCount};
use machine::{
    guest::payload::{PayloadSpec, SharedView, transport},
    vm::{Console, GuestSpec, MachineSpec, Running, Vm},
};

/// Time before the samples that count; earlier samples are overwritten.
const WARM_UP: Duration = Duration::from_millis(20);
/// Timeout for the guest's arrival, which only a hanging guest exceeds. Emulated CPUs are slow, and a
/// busy host makes them slower.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);

fn machine(plan: &HyperPlan, case: HyperCase, khz: u64) -> Option<MachineSpec> {
    let (workload, placement) = case.workload()?;
    let backend = case.backend()?;
    let halt_time = match placement {
        Placement::SameCpu => Duration::ZERO,
        Placement::OtherCpu => HALT_TIME,
    };
    // In kilocycles.
    let think = halt_time.as_micros() as u64 * khz / 1_000_000;
    let payload = PayloadSpec {
        transport: transport(backend),
        think: u32::try_from(think).ok()?,
        ..PayloadSpec::without_locks(workload)
    };
    let vcpus = match case {
        HyperCase::KickRunning(_) | HyperCase::KickToRun(..) => 2,
        _ => 1,
    };
    Some(MachineSpec {
        vcpus: VcpuCount::try_from(vcpus).ok()?,
        guest: GuestSpec::Payload(payload),
        pv: backend,
        affinity: Some(placement.cpus(&plan.cpus)),
        pinned: true,
        kvm_stats: true,
        host_counts: false,
        ..MachineSpec::lockless(workload)
    })
}

/// Runs the case once. Samples are in ticks of the time stamp counter.
pub(super) fn measure(
    plan: &HyperPlan,
    case: HyperCase,
    khz: u64,
) -> Result<RoundFigures, HyperError> {
    let Some(spec) = machine(plan, case, khz) else { return Ok(RoundFigures::default()) };
    let running = Vm::build(&spec)?.start(Console::null())?;
    let result = sample(plan, &running, spec.vcpus);
    running.stop();
    let report = running.wait()?;
    let samples = result?;
    let operations = samples.1;
    let samples = samples.0.into_iter().map(u64::from).collect();
    Ok(RoundFigures { samples, operations, vmm: sum(&report.counts), kvm: report.kvm })
}

fn sample(
    plan: &HyperPlan,
    running: &Running,
    vcpus: VcpuCount,
) -> Result<(Vec<u32>, u64), HyperError> {
    let shared = SharedView::new(running.memory());
    let deadline = Instant::now() + ARRIVAL_TIMEOUT;
    while shared.arrived()? < vcpus.get() {
        if running.has_ended() || Instant::now() > deadline {
            return Err(HyperError::NoProgress("a vCPU did not reach the start barrier".into()));
        }
        thread::sleep(POLL);
    }
    shared.start()?;
    thread::sleep(WARM_UP + plan.duration);
    // On a busy host the vCPUs may not have run yet.
    while shared.samples()?.is_empty() && !running.has_ended() && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    // Checked before the payload is asked to stop, as it may end after that.
    if running.has_ended() {
        return Err(HyperError::NoProgress("its VM ended".into()));
    }
    shared.stop()?;
    // Lets the current operation end. An operation that halts forever leaves the oldest sample in place.
    thread::sleep(POLL);
    let samples = shared.samples()?;
    let operations = shared.slots(vcpus)?.first().map_or(0, |slot| slot.operations);
    if samples.is_empty() {
        Err(HyperError::NoProgress("it completed no operation".into()))
    } else {
        Ok((samples, operations))
    }
}
