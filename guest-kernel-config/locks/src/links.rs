//! Links that a CPU leaves in the table for the lists and queues of mutexes.

use crate::sync::{AtomicU32, Ordering};

/// The node is in no queue, and its CPU may enter one.
const FREE: u32 = 0;
/// Its CPU waits for its turn.
const WAITING: u32 = 1;
/// Its CPU has its turn.
const GRANTED: u32 = 2;
/// Its CPU has gone away. Whoever leaves the queue before it passes over the node, and frees it.
const ABANDONED: u32 = 3;

/// What one CPU has in lists of CPUs. CPUs are written as one more than their index; zero: none.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Who sleeps behind this CPU for the same mutex. Protected by that mutex's list lock.
    pub(crate) next_sleeper: AtomicU32,
    /// Who queues behind this CPU to spin for the same mutex.
    next_spinner: AtomicU32,
    spinner: AtomicU32,
}

impl Links {
    /// In no list.
    pub(crate) const fn new() -> Self {
        Self {
            next_sleeper: AtomicU32::new(0),
            next_spinner: AtomicU32::new(0),
            spinner: AtomicU32::new(FREE),
        }
    }

    /// The calling CPU is about to enter a queue of spinners. False: its node is still in one that
    /// it left before its turn.
    pub(crate) fn prepare(&self) -> bool {
        // Acquires what the CPU that freed it did with it before.
        if self.spinner.load(Ordering::Acquire) != FREE {
            return false;
        }
        // The swap that makes it part of the queue publishes both.
        self.next_spinner.store(0, Ordering::Relaxed);
        self.spinner.store(WAITING, Ordering::Relaxed);
        true
    }

    /// The calling CPU is the first of its queue: nobody else looks at its state.
    pub(crate) fn be_first(&self) {
        self.spinner.store(GRANTED, Ordering::Relaxed);
    }

    /// Has the calling CPU's turn come?
    pub(crate) fn is_granted(&self) -> bool {
        self.spinner.load(Ordering::Acquire) == GRANTED
    }

    /// The calling CPU goes away before its turn. False: its turn has just come.
    pub(crate) fn abandon(&self) -> bool {
        let (from, to) = (WAITING, ABANDONED);
        self.spinner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It is this node's turn. False: its CPU has gone away, and the caller has the node.
    pub(crate) fn grant(&self) -> bool {
        let (from, to) = (WAITING, GRANTED);
        self.spinner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The node is in no queue any more; its CPU may use it at once.
    pub(crate) fn free(&self) {
        self.spinner.store(FREE, Ordering::Release);
    }

    /// `cpu` queues behind this node.
    pub(crate) fn link(&self, cpu: usize) {
        self.next_spinner.store(cpu as u32 + 1, Ordering::Release);
    }

    /// Who queues behind this node, if it has said so yet.
    pub(crate) fn next(&self) -> Option<usize> {
        (self.next_spinner.load(Ordering::Acquire) as usize).checked_sub(1)
    }
}
