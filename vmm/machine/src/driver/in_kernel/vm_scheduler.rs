//! vCPU threads under the scheduler in the host's kernel, or observed in it. They enrol and then run freely.

use std::{io, sync::Arc, thread, time::Duration};

use bpf::Scheduler;
use sched::halts::HaltScheduler;

use crate::vcpu::VcpuScheduler;
use base::units::{CpuList, VcpuId};
use kvm::signal;

#[derive(Debug)]
pub(super) struct BpfVmScheduler {
    pub(super) scheduler: Arc<Scheduler>,
    /// None if the host's own scheduler is observed, which keeps the thread's affinity.
    pub(super) slots: Option<CpuList>,
    pub(super) vm: u32,
}

impl VcpuScheduler for BpfVmScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        // The kernel observes sleeps and wakeups itself.
        None
    }

    fn enter(&self, id: VcpuId) -> io::Result<()> {
        if let Some(slots) = &self.slots {
            signal::pin_this_thread(slots)?;
        }
        self.scheduler.enrol(self.vm, id.0).map_err(io::Error::other)?;
        if self.slots.is_none() {
            // Its next slice is the first one that is observed. No guest runs before.
            thread::sleep(Duration::from_micros(1));
            return Ok(());
        }
        // This thread was in the fair class. A vCPU that it preempted is on the CPU's local queue, so the
        // scheduler is not asked at the end of the slice that begins here. No guest runs in this slice yet.
        thread::yield_now();
        Ok(())
    }

    fn yield_slot(&self, _: VcpuId) {
        // The host's own scheduler is not to notice the observer.
        if self.slots.is_some() {
            thread::yield_now();
        }
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
