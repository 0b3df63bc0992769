//! Per-CPU links for the lists and queues of mutexes.

use crate::sync::{AtomicU32, Ordering};

/// The node is in no queue; its CPU may enter a queue.
const FREE: u32 = 0;
/// Its CPU waits for its turn to spin.
const WAITING: u32 = 1;
/// Its CPU may spin for the mutex.
const GRANTED: u32 = 2;
/// Its CPU has left. Its predecessor skips the node when leaving the queue, and frees it.
const ABANDONED: u32 = 3;

/// One CPU's links in lists of CPUs. A CPU is stored as its index plus one; zero: none.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The CPU that sleeps behind it for the same mutex. Protected by the mutex's list lock.
    pub(crate) next_sleeper: AtomicU32,
    /// The CPU that queues behind it to spin for the same mutex.
    next_spinner: AtomicU32,
    spinner: AtomicU32,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self {
            next_sleeper: AtomicU32::new(0),
            next_spinner: AtomicU32::new(0),
            spinner: AtomicU32::new(FREE),
        }
    }

    /// Prepares the calling CPU's node for a queue of spinners. Returns `false` if the node is
    /// still in a queue that the CPU left before its turn.
    pub(crate) fn prepare(&self) -> bool {
        // Acquires the previous accesses of the CPU that freed it.
        if self.spinner.load(Ordering::Acquire) != FREE {
            return false;
        }
        // The swap that links the node into the queue publishes both.
        self.next_spinner.store(0, Ordering::Relaxed);
        self.spinner.store(WAITING, Ordering::Relaxed);
        true
    }

    /// Grants the turn to the calling CPU, the first of its queue: no other CPU reads its state.
    pub(crate) fn grant_first(&self) {
        self.spinner.store(GRANTED, Ordering::Relaxed);
    }

    /// Whether the calling CPU's turn has come.
    pub(crate) fn is_granted(&self) -> bool {
        self.spinner.load(Ordering::Acquire) == GRANTED
    }

    /// Leaves before the calling CPU's turn. Returns `false` if its turn has just come.
    pub(crate) fn abandon(&self) -> bool {
        let (from, to) = (WAITING, ABANDONED);
        self.spinner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Passes the turn to this node. Returns `false` if its CPU has left: then the caller owns the
    /// node.
    pub(crate) fn grant(&self) -> bool {
        let (from, to) = (WAITING, GRANTED);
        self.spinner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Frees a node that has left its queue; its CPU may reuse it at once.
    pub(crate) fn free(&self) {
        self.spinner.store(FREE, Ordering::Release);
    }

    /// Links `cpu` behind this node.
    pub(crate) fn link(&self, cpu: usize) {
        self.next_spinner.store(cpu as u32 + 1, Ordering::Release);
    }

    /// The CPU that queues behind this node, if it has linked itself.
    pub(crate) fn next(&self) -> Option<usize> {
        (self.next_spinner.load(Ordering::Acquire) as usize).checked_sub(1)
    }
}
