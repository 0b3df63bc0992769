//! Wakes vCPUs that are halted for a lock in user space and have an urgent interrupt pending.
//!
//! A real processor's HLT ends for an NMI and for INIT even with interrupts off, and so does KVM's.
//! A vCPU whose thread sleeps in user space is not in KVM, which queues both and wakes no thread:
//! without this, a kernel could not stop, dump or restart a CPU that waits for a lock with
//! interrupts off. `lock_spinning` may return spuriously, so the thread is sent back into KVM,
//! which delivers what is pending, and the waiter looks at its lock again. The exit path is not
//! involved.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use super::Board;
use base::units::VcpuId;
use confine::Class;
use kvm::pending::Pending;

/// Time between two looks. A kernel that stops its CPUs gives them a second.
const PERIOD: Duration = Duration::from_millis(100);

/// Stack of the nurse thread.
const STACK_BYTES: usize = 64 << 10;

/// Starts the nurse thread. It ends when the machine stops and the thread is unparked. `pending`
/// has one entry per vCPU, in order.
pub fn start(board: Arc<Board>, pending: Vec<Pending>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("nurse".into()).stack_size(STACK_BYTES).spawn(move || {
        confine::enter(Class::Nurse);
        while !board.stopping() && !board.life.has_ended() {
            for (id, pending) in (0..).map(VcpuId).zip(&pending) {
                // A parked vCPU is not in the guest, where asking would block.
                if board.kicks.halts().is_parked(id) && pending.is_urgent() {
                    board.kicks.end_halt(id);
                }
            }
            thread::park_timeout(PERIOD);
        }
    })
}
