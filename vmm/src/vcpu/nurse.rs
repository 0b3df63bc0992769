//! Wakes vCPUs that halt for a lock in user space and have something else to do.
//!
//! A real processor's HLT ends for an NMI and for INIT even with interrupts off, and so does KVM's.
//! A vCPU whose thread sleeps here is not in KVM, which queues both and wakes nobody: without
//! this a kernel could not stop, dump or restart a CPU that waits for a lock with interrupts off.
//! `lock_spinning` may return for no reason, so the thread is sent back into KVM, which delivers
//! what is pending, and the waiter looks at its lock again. The exit path has no part in it.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use super::Board;
use crate::{kvm::pending::Pending, units::VcpuId};

/// Between two looks. A kernel that stops its CPUs gives them a second.
const PERIOD: Duration = Duration::from_millis(100);

/// Stack of its thread.
const STACK_BYTES: usize = 64 << 10;

/// Starts the thread, which ends when the machine stops and it is unparked. `pending` are those of
/// all vCPUs, in order.
pub fn start(board: Arc<Board>, pending: Vec<Pending>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("nurse".into()).stack_size(STACK_BYTES).spawn(move || {
        while !board.stopping() && !board.has_ended() {
            for (id, pending) in (0..).map(VcpuId).zip(&pending) {
                // One that sleeps is not in the guest, where asking would wait for it.
                if board.is_parked(id) && pending.is_urgent() {
                    board.end_halt(id);
                }
            }
            thread::park_timeout(PERIOD);
        }
    })
}
