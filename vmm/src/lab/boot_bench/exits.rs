//! The cost of a port exit: our loop, and the bare `KVM_RUN`, over the same guest.
//!
//! Both are rates of the guest's own count of exits, read twice by another thread
//! that sleeps in between, so that nothing but the loop differs.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hypercalls::payload::{MEMORY, Workload};
use serde::Serialize;

use super::BenchError;
use crate::{
    clock::Moment,
    guest::payload::{PayloadSpec, SharedView},
    kvm::{KvmError, Vcpu, signal},
    units::{ByteSize, CpuList, VcpuCount, VcpuId},
    vm::{Console, GuestSpec, MachineSpec, PvBackend, Vm},
};

/// How long each loop is measured.
const WINDOW: Duration = Duration::from_millis(100);
/// How long it runs before, so that its code and tables are in the caches.
const WARM_UP: Duration = Duration::from_millis(50);
/// Pause between looks for the guest's arrival.
const POLL: Duration = Duration::from_millis(1);
/// The guest arrives within this, or not at all.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Nanoseconds an exit, the two loops measured one right after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ExitPair {
    /// Through our exit loop.
    pub loop_ns: f64,
    /// Through a loop of `KVM_RUN`s alone.
    pub bare_ns: f64,
}

impl ExitPair {
    /// What our loop adds.
    pub fn added_ns(&self) -> f64 {
        self.loop_ns - self.bare_ns
    }
}

/// Measures both on `cpu`; which goes first is the caller's to alternate.
pub fn measure(cpu: usize, bare_first: bool) -> Result<ExitPair, BenchError> {
    let cpus = cpu.to_string().parse::<CpuList>().map_err(BenchError::Cpu)?;
    if bare_first {
        let bare_ns = bare(&cpus)?;
        Ok(ExitPair { loop_ns: full(&cpus)?, bare_ns })
    } else {
        let loop_ns = full(&cpus)?;
        Ok(ExitPair { loop_ns, bare_ns: bare(&cpus)? })
    }
}

fn machine(cpus: &CpuList) -> MachineSpec {
    MachineSpec {
        vcpus: VcpuCount::ONE,
        memory: ByteSize(MEMORY),
        guest: GuestSpec::Payload(PayloadSpec::other(Workload::PortExit)),
        pv: PvBackend::Off,
        kvm_kick: true,
        telemetry: false,
        affinity: Some(cpus.clone()),
        pinned: false,
        preempt_count: None,
        kvm_stats: false,
        faults: None,
        watched: false,
        traced: false,
    }
}

fn full(cpus: &CpuList) -> Result<f64, BenchError> {
    let spec = machine(cpus);
    let running = Vm::build(&spec)?.start(Console::null())?;
    let cost = nanos_an_exit(&SharedView::new(running.memory()));
    running.stop();
    running.wait()?;
    cost
}

fn bare(cpus: &CpuList) -> Result<f64, BenchError> {
    let spec = machine(cpus);
    let (vm, vcpus) = Vm::build(&spec)?.into_parts();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    thread::scope(|scope| {
        let loops: Vec<_> = vcpus
            .into_iter()
            .map(|vcpu| scope.spawn(move || enter_until(stop, vcpu, cpus)))
            .collect();
        let cost = nanos_an_exit(&SharedView::new(vm.memory()));
        stop.store(true, Relaxed);
        for thread in loops {
            // A panic there is a bug of ours; the scope passes it on.
            if let Ok(Err(error)) = thread.join() {
                return Err(error.into());
            }
        }
        cost
    })
}

/// The bare loop. A stopped guest goes on exiting, so the flag is always seen.
fn enter_until(stop: &AtomicBool, mut vcpu: Vcpu, cpus: &CpuList) -> Result<(), KvmError> {
    signal::pin_this_thread(cpus).map_err(KvmError::Affinity)?;
    while !stop.load(Relaxed) {
        vcpu.enter()?;
    }
    Ok(())
}

fn nanos_an_exit(guest: &SharedView<'_>) -> Result<f64, BenchError> {
    for _ in 0..ARRIVAL.as_millis() / POLL.as_millis() {
        if guest.arrived()? > 0 {
            guest.go()?;
            thread::sleep(WARM_UP);
            let before = reading(guest)?;
            let after = exits_since(guest, &before)?;
            guest.stop()?;
            let exits = after.1 - before.1;
            let time = after.0.since(before.0);
            return if exits == 0 {
                Err(BenchError::NoExits)
            } else {
                Ok(time.0 as f64 / exits as f64)
            };
        }
        thread::sleep(POLL);
    }
    Err(BenchError::NoExits)
}

/// A reading a window later; on a busy host, which may keep the vCPU off its CPU for longer than that,
/// one at which there are exits.
fn exits_since(
    guest: &SharedView<'_>,
    before: &(Moment, u64),
) -> Result<(Moment, u64), BenchError> {
    loop {
        thread::sleep(WINDOW);
        let now = reading(guest)?;
        if now.1 > before.1 || now.0.since(before.0).0 > ARRIVAL.as_nanos() as u64 {
            return Ok(now);
        }
    }
}

fn reading(guest: &SharedView<'_>) -> Result<(Moment, u64), BenchError> {
    let operations = guest.slot(VcpuId(0))?.operations;
    Ok((Moment::now(), operations))
}
