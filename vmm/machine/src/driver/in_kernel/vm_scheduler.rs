//! vCPU threads under the scheduler in the host's kernel: they enrol and then run freely.

use std::{io, sync::Arc, thread};

use bpf::Scheduler;
use hypercalls::telemetry::Point;
use sched::halts::HaltScheduler;

use crate::vcpu::{Stopped, VcpuScheduler};
use base::units::{CpuList, VcpuId};
use kvm::signal;

/// The vCPU threads of one machine.
#[derive(Debug)]
pub(super) struct BpfVmScheduler {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) slots: CpuList,
    pub(super) vm: u32,
}

impl VcpuScheduler for BpfVmScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        // The kernel sees a thread that sleeps, and one that is woken.
        None
    }

    fn enter(&self, id: VcpuId) -> io::Result<()> {
        signal::pin_this_thread(&self.slots)?;
        self.scheduler.enrol(self.vm, id.0).map_err(io::Error::other)?;
        // This thread was one of the fair class, and a vCPU that it took the CPU from is on the CPU's own list:
        // the scheduler is not asked when the turn ends that begins here. No guest runs in it yet.
        thread::yield_now();
        Ok(())
    }

    fn interrupted(&self, _: VcpuId, _: &dyn Stopped) {
        // No turn ends by a signal.
    }

    fn came_out(&self, _: VcpuId) {
        // A thread that runs has its turn.
    }

    fn yielded(&self, _: VcpuId) {
        thread::yield_now();
    }

    fn spun_out(&self, _: VcpuId) {
        // No policy of this driver asks for it.
    }

    fn yields_to(&self, _: VcpuId, _: VcpuId) {
        thread::yield_now();
    }

    fn point(&self, _: VcpuId, _: Point) {
        // No policy of this driver asks for it.
    }

    fn waits(&self, _: VcpuId) {
        // The kernel sees a thread that sleeps.
    }

    fn waited(&self, _: VcpuId) {
        // A thread that runs has its turn.
    }

    fn awaits_turn(&self, _: VcpuId) -> bool {
        // Only the kernel knows.
        false
    }

    fn observes(&self, _: VcpuId) -> bool {
        // Its vCPUs are not stopped by a thread that could.
        false
    }

    fn leave(&self, _: VcpuId) {
        // The scheduler forgets a thread when it ends.
    }
}
