//! The vCPU thread: enters the guest and handles exits in a loop.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use vm_memory::{Bytes, GuestAddress};

use super::{
    Cause, End, Failure, Stopped, VcpuShared,
    observed::StoppedCpu,
    step::{self, Next},
};
use base::units::CpuList;
use confine::Class;
use kvm::{KvmError, Vcpu, signal, vcpu::KernelRegisters};
use sched::event::LockActivity;

/// Stack size of a vCPU thread. The exit path is shallow and does not allocate.
const STACK_BYTES: usize = 256 << 10;

/// Pause between entries of a vCPU that its guest has not started. KVM does not let the thread sleep while an
/// earlier kick is pending, which only a HLT of the vCPU could consume.
const UNSTARTED_PAUSE: Duration = Duration::from_millis(10);

/// Number of consecutive refusals by KVM to run a started vCPU after which it fails. Fewer are tolerated,
/// because another vCPU may start it between the run and the check.
const MAX_REFUSALS: u32 = 8;

/// The placement of a vCPU's thread on the host.
#[derive(Debug, Default)]
pub struct ThreadPlacement {
    /// The allowed CPUs. None means the CPUs of the process.
    pub cpus: Option<CpuList>,
    /// The file `cgroup.threads` of its control group. None means the control group of the process.
    pub cgroup: Option<Arc<File>>,
}

/// Starts the thread of `vcpu` with this placement.
pub fn spawn(
    vcpu: Vcpu,
    shared: Arc<VcpuShared>,
    placement: ThreadPlacement,
) -> io::Result<JoinHandle<()>> {
    Builder::new()
        .name(format!("vcpu{}", vcpu.id().0))
        .stack_size(STACK_BYTES)
        .spawn(move || run(vcpu, &shared, &placement))
}

fn run(mut vcpu: Vcpu, shared: &VcpuShared, placement: &ThreadPlacement) {
    shared.host.register(vcpu.id());
    match prepare(&vcpu, placement).and_then(|()| enter(&vcpu, shared)) {
        Ok(()) => {
            // Must not happen earlier: the first vCPU of a schedule starts its idle watchers.
            confine::enter(Class::Vcpu);
            run_loop(&mut vcpu, shared);
            if !vcpu.awaits_start() {
                shared.life.count_started();
            }
        }
        Err(cause) => fail(&vcpu, shared, cause),
    }
    // Required even if the vCPU never entered, because the schedule would wait for it otherwise.
    if let Some(scheduler) = shared.scheduler() {
        scheduler.leave(vcpu.id());
    }
}

fn enter(vcpu: &Vcpu, shared: &VcpuShared) -> Result<(), Cause> {
    let entered = shared.scheduler().map_or(Ok(()), |scheduler| scheduler.enter(vcpu.id()));
    entered.map_err(|error| Cause::Kvm(KvmError::Signal(error)))
}

fn run_loop(vcpu: &mut Vcpu, shared: &VcpuShared) {
    let id = vcpu.id();
    let counters = shared.counters(id);
    let mut refusals = 0;
    while !shared.is_stopping() {
        let next = match vcpu.run() {
            Ok(exit) => {
                counters.exits.bump();
                if let Some(scheduler) = shared.scheduler() {
                    scheduler.after_exit(id);
                }
                step::handle(shared, id, exit)
            }
            Err(error) => Next::Fail(Cause::Kvm(error)),
        };
        let next = match next {
            Next::NotStarted => {
                refusals = if vcpu.awaits_start() { 0 } else { refusals + 1 };
                if refusals != 1 {
                    thread::sleep(UNSTARTED_PAUSE);
                }
                if refusals < MAX_REFUSALS {
                    next
                } else {
                    Next::Fail(Cause::Kvm(KvmError::run_refused()))
                }
            }
            next => {
                refusals = 0;
                next
            }
        };
        if matches!(next, Next::Interrupted | Next::NotStarted) {
            shared.probe.answer(id, || vcpu.state().ok());
            if let Some(scheduler) = shared.scheduler() {
                scheduler.interrupted(id, &InterruptedVcpu { vcpu, shared });
            }
        }
        match next {
            Next::Resume | Next::Interrupted | Next::NotStarted => {}
            Next::Leave => return,
            Next::End(end) => return shared.life.finish(end),
            Next::Fail(cause) => return fail(vcpu, shared, cause),
        }
    }
}

/// A vCPU outside the guest, after a signal or because its guest has not started it (KVM refused to run it).
struct InterruptedVcpu<'a> {
    vcpu: &'a Vcpu,
    shared: &'a VcpuShared,
}

impl Stopped for InterruptedVcpu<'_> {
    fn is_in_user_mode(&self) -> Option<bool> {
        self.vcpu.is_in_user_mode()
    }

    fn observed_activity(&self) -> LockActivity {
        let kernel = &self.shared.kernel;
        if !kernel.is_known() {
            return LockActivity::Unknown;
        }
        match self.vcpu.kernel_registers() {
            Ok(None) => LockActivity::Free,
            Ok(Some(registers)) => {
                let cpu = KernelModeVcpu { stopped: self, registers };
                kernel.activity(self.vcpu.id(), &cpu)
            }
            Err(_) => LockActivity::Unknown,
        }
    }

    fn is_in_hlt(&self) -> bool {
        self.shared.vm().wiring().has_halt() && self.vcpu.is_halted()
    }
}

/// A vCPU that was stopped in ring 0, and its registers.
struct KernelModeVcpu<'a> {
    stopped: &'a InterruptedVcpu<'a>,
    registers: KernelRegisters,
}

impl StoppedCpu for KernelModeVcpu<'_> {
    fn rip(&self) -> u64 {
        self.registers.rip
    }

    fn register(&self, number: u8) -> u64 {
        self.registers.general[usize::from(number & 15)]
    }

    fn gs_base(&self) -> u64 {
        self.registers.gs_base
    }

    fn is_in_hlt(&self) -> bool {
        self.stopped.is_in_hlt()
    }

    fn syscall_entry(&self) -> Option<u64> {
        self.stopped.vcpu.syscall_entry()
    }

    fn translate(&self, address: u64) -> Option<u64> {
        self.stopped.vcpu.translate(address)
    }

    fn read(&self, physical: u64, into: &mut [u8]) -> bool {
        self.stopped.shared.memory().read_slice(into, GuestAddress(physical)).is_ok()
    }
}

fn prepare(vcpu: &Vcpu, placement: &ThreadPlacement) -> Result<(), Cause> {
    vcpu.arm_kick().map_err(Cause::Kvm)?;
    if let Some(cgroup) = &placement.cgroup {
        // 0 stands for the writing thread. Each write is one request.
        (&mut &**cgroup).write_all(b"0").map_err(Cause::Cgroup)?;
    }
    let pinned = placement.cpus.as_ref().map_or(Ok(()), signal::pin_this_thread);
    pinned.map_err(|error| Cause::Kvm(KvmError::Affinity(error)))
}

fn fail(vcpu: &Vcpu, shared: &VcpuShared, cause: Cause) {
    let rip = vcpu.regs().ok().map(|regs| regs.rip);
    shared.life.finish(End::Failed(Failure { vcpu: vcpu.id(), rip, cause }));
}
