//! Two vCPUs contend for one lock on one slot, and the schedule preempts the lock holder. The example prints
//! the cost for native and for PV ticketlocks.
//!
//! The guest is the payload, which runs in ring 3 on any KVM.

use std::{error::Error, thread, time::Duration};

use base::{
    backend::PvBackend,
    units::{ByteSize, Nanos, VcpuCount},
};
use hypercalls::payload::MEMORY;
use kvm::signal;
use locks::System;
use machine::{
    driver::ScheduleSpec,
    guest::payload::{PayloadSpec, SharedView},
    vm::{Console, GuestSpec, LockMonitoring, MachineSpec, Purpose, Schedule},
};
use sched::driver::DriverKind;

/// Duration of the contention.
const WINDOW: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    for (name, lock, pv) in
        [("native", System::NativeTicket, PvBackend::Off), ("PV", System::PvTicket, PvBackend::Vmm)]
    {
        println!("{name:<7}{}", contend(lock, pv)?);
    }
    Ok(())
}

/// Runs the machine for the window. Returns the acquisitions and the schedule's counts, as one line.
fn contend(lock: System, pv: PvBackend) -> Result<String, Box<dyn Error>> {
    let vcpus = VcpuCount::try_from(2)?;
    // A lock holder is preempted for 10 ms, on average 50 ms after the previous preemption, or as soon as a
    // vCPU is next found to hold the lock.
    let policy = "lhp:20,10ms".parse()?;
    let slot = signal::allowed_cpus().into_iter().take(1).collect();
    let schedule = ScheduleSpec::new(policy, slot, Nanos::millis(2), 1);
    let schedule = Schedule::start(DriverKind::User, &schedule, &[vcpus.get()], false, None)?;

    let guest = GuestSpec::Payload(PayloadSpec::operate(lock));
    let spec = MachineSpec {
        pv,
        // The vCPUs publish the locks that they hold, so that the schedule can find a holder.
        monitoring: LockMonitoring::for_machine(Purpose::Cell { is_ours: true }, pv, true),
        ..MachineSpec::new(vcpus, ByteSize(MEMORY), guest)
    };
    let machine = schedule.build(&spec, 0)?;
    let running = schedule.run(machine, Console::null(), 0)?;
    let shared = SharedView::new(running.memory());
    while shared.arrived()? < vcpus.get() {
        thread::sleep(Duration::from_millis(1));
    }
    shared.start()?;
    thread::sleep(WINDOW);
    let acquisitions: u64 = shared.slots(vcpus)?.iter().map(|slot| slot.operations).sum();
    running.stop();
    running.wait()?;

    let result = schedule.report()?.ok_or("the schedule is the host's")?;
    let totals = result.report.totals;
    Ok(format!(
        "{acquisitions:>9} acquisitions; preempted: {:>3} holders, {:>3} next in line; {:>4} ms spun for nothing",
        totals.lhp,
        totals.lwp,
        totals.wasted_spin_ns / 1_000_000
    ))
}
