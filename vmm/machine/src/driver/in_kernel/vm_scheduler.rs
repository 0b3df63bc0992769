//! vCPU threads under the scheduler in the host's kernel. They enrol and then run freely.

use std::{io, sync::Arc, thread};

use bpf::Scheduler;
use sched::halts::HaltScheduler;

use crate::vcpu::VcpuScheduler;
use base::units::{CpuList, VcpuId};
use kvm::signal;

#[derive(Debug)]
pub(super) struct BpfVmScheduler {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) slots: CpuList,
    pub(super) vm: u32,
}

impl VcpuScheduler for BpfVmScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        // The kernel observes sleeps and wakeups itself.
        None
    }

    fn enter(&self, id: VcpuId) -> io::Result<()> {
        signal::pin_this_thread(&self.slots)?;
        self.scheduler.enrol(self.vm, id.0).map_err(io::Error::other)?;
        // This thread was in the fair class. A vCPU that it preempted is on the CPU's local queue, so the
        // scheduler is not asked at the end of the slice that begins here. No guest runs in this slice yet.
        thread::yield_now();
        Ok(())
    }

    fn yield_slot(&self, _: VcpuId) {
        thread::yield_now();
    }

    fn yield_to(&self, _: VcpuId, _: VcpuId) {
        thread::yield_now();
    }

    fn awaits_slot(&self, _: VcpuId) -> bool {
        // Only the kernel knows.
        false
    }

    fn lacks_telemetry(&self, _: VcpuId) -> bool {
        // Its vCPUs are not stopped by a thread that could observe them.
        false
    }
}
