//! The cost of a port exit: our exit loop compared with a bare `KVM_RUN` loop and the same guest.
//!
//! Both costs come from the guest's own count of exits. Another thread reads it twice and sleeps
//! in between, so that only the loop differs.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hypercalls::payload::Workload;
use serde::Serialize;

use super::BenchError;
use base::units::{CpuList, VcpuId};
use kvm::{KvmError, Vcpu, signal};
use machine::{
    clock::Moment,
    guest::payload::SharedView,
    vm::{Console, MachineSpec, Vm},
};

/// Measured time of each loop.
const WINDOW: Duration = Duration::from_millis(100);
/// Time that each loop runs before it is measured, so that its code and tables are cached.
const WARM_UP: Duration = Duration::from_millis(50);
/// Interval at which the guest's arrival is polled.
const POLL: Duration = Duration::from_millis(1);
/// Timeout for the guest's arrival, which only a guest that hangs exceeds.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Nanoseconds per exit; both loops measured in direct succession.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ExitPair {
    /// With our exit loop.
    pub loop_ns: f64,
    /// With a loop that only calls `KVM_RUN`.
    pub bare_ns: f64,
}

impl ExitPair {
    /// Overhead of our loop per exit, in nanoseconds.
    pub fn added_ns(&self) -> f64 {
        self.loop_ns - self.bare_ns
    }
}

/// Measures both loops on `cpu`. The caller alternates their order.
pub fn measure(cpu: usize, bare_first: bool) -> Result<ExitPair, BenchError> {
    let cpus = cpu.to_string().parse::<CpuList>().map_err(BenchError::Cpu)?;
    if bare_first {
        let bare_ns = with_bare_loop(&cpus)?;
        Ok(ExitPair { loop_ns: with_exit_loop(&cpus)?, bare_ns })
    } else {
        let loop_ns = with_exit_loop(&cpus)?;
        Ok(ExitPair { loop_ns, bare_ns: with_bare_loop(&cpus)? })
    }
}

fn machine(cpus: &CpuList) -> MachineSpec {
    MachineSpec { affinity: Some(cpus.clone()), ..MachineSpec::lockless(Workload::PortExit) }
}

fn with_exit_loop(cpus: &CpuList) -> Result<f64, BenchError> {
    let spec = machine(cpus);
    let running = Vm::build(&spec)?.start(Console::null())?;
    let cost = ns_per_exit(&SharedView::new(running.memory()));
    running.stop();
    running.wait()?;
    cost
}

fn with_bare_loop(cpus: &CpuList) -> Result<f64, BenchError> {
    let spec = machine(cpus);
    let (vm, vcpus) = Vm::build(&spec)?.into_parts();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    thread::scope(|scope| {
        let start = |vcpu| {
            thread::Builder::new().spawn_scoped(scope, move || enter_until(stop, vcpu, cpus))
        };
        let loops = vcpus.into_iter().map(start).collect::<io::Result<Vec<_>>>();
        let cost = match &loops {
            Ok(_) => ns_per_exit(&SharedView::new(vm.memory())),
            Err(_) => Err(BenchError::NoExits),
        };
        stop.store(true, Relaxed);
        let loops = loops.map_err(BenchError::Thread)?;
        for thread in loops {
            // A panic, which is our bug, is ignored: without exits, `cost` is an error.
            if let Ok(Err(error)) = thread.join() {
                return Err(error.into());
            }
        }
        cost
    })
}

/// The bare loop. The guest keeps exiting, so that `stop` takes effect soon.
fn enter_until(stop: &AtomicBool, mut vcpu: Vcpu, cpus: &CpuList) -> Result<(), KvmError> {
    signal::pin_this_thread(cpus).map_err(KvmError::Affinity)?;
    while !stop.load(Relaxed) {
        vcpu.enter()?;
    }
    Ok(())
}

fn ns_per_exit(guest: &SharedView<'_>) -> Result<f64, BenchError> {
    for _ in 0..ARRIVAL_TIMEOUT.as_millis() / POLL.as_millis() {
        if guest.arrived()? > 0 {
            guest.start()?;
            thread::sleep(WARM_UP);
            let before = read_exits(guest)?;
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

/// Reads the count one window later. On a busy host, which may keep the vCPU off its CPU for
/// longer, waits until there are exits, for at most [`ARRIVAL_TIMEOUT`].
fn exits_since(
    guest: &SharedView<'_>,
    before: &(Moment, u64),
) -> Result<(Moment, u64), BenchError> {
    loop {
        thread::sleep(WINDOW);
        let now = read_exits(guest)?;
        if now.1 > before.1 || now.0.since(before.0).0 > ARRIVAL_TIMEOUT.as_nanos() as u64 {
            return Ok(now);
        }
    }
}

fn read_exits(guest: &SharedView<'_>) -> Result<(Moment, u64), BenchError> {
    let operations = guest.slot(VcpuId(0))?.operations;
    Ok((Moment::now(), operations))
}
