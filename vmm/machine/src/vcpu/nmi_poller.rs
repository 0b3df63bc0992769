//! NMI poller: wakes vCPUs that are halted in user space for a lock and have an urgent interrupt
//! pending.
//!
//! On a real processor, an NMI or INIT ends HLT even with interrupts off, and KVM does the same.
//! While a vCPU's thread sleeps in user space, however, KVM queues both events without waking the
//! thread. Without the poller, a kernel could not stop, dump or restart a CPU that waits for a lock
//! with interrupts off. `lock_spinning` may return spuriously, so the thread is sent back into KVM,
//! which delivers the pending event, and the waiter checks its lock again. The exit path is not
//! involved.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use super::VcpuShared;
use base::units::VcpuId;
use confine::Class;
use kvm::pending::Pending;

/// Polling interval. A kernel that stops its CPUs waits a second for them.
const PERIOD: Duration = Duration::from_millis(100);

const STACK_BYTES: usize = 64 << 10;

/// Starts the poller thread, which ends when the machine stops and the thread is unparked.
/// `pending` has one entry per vCPU, in order.
pub fn start(shared: Arc<VcpuShared>, pending: Vec<Pending>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("nurse".into()).stack_size(STACK_BYTES).spawn(move || {
        confine::enter(Class::NmiPoller);
        while !shared.is_stopping() && !shared.life.has_ended() {
            for (id, pending) in (0..).map(VcpuId).zip(&pending) {
                // A parked vCPU is not in the guest, where the query would block.
                if shared.kicks.halts().is_parked(id) && pending.is_urgent() {
                    shared.kicks.end_halt(id);
                }
            }
            thread::park_timeout(PERIOD);
        }
    })
}
