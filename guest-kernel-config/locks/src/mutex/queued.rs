//! Spinners that queue, from the review of "mutex: Make more scalable by doing less atomic
//! operations" (Linux 2013).

use crate::mutex::{Mutex, MutexCost, Spinners};
use crate::sync::{AtomicU32, Ordering};
use crate::{Cpu, Pv, Watch};

/// Like the [`ReadFirstMutex`](crate::mutex::ReadFirstMutex), but spinners queue as in an MCS lock:
/// each on its own word, and only the first polls the mutex.
///
/// Good when many CPUs spin: a release has one acquirer instead of a stampede. A spinner whose
/// predecessor does not run, or that has spun [`Cpu::spin_threshold`] iterations, goes to sleep and
/// leaves its node behind for others to skip; until they have, it does not spin anywhere. In
/// addition to the guarantees of every mutex, no two CPUs poll the mutex at once, and spinners that
/// stay in the queue reach its front in order.
pub type QueuedMutex = Mutex<SpinQueue>;

/// The spinners of a [`QueuedMutex`].
#[derive(Debug, Default)]
pub struct SpinQueue {
    /// The CPU that came last plus one; zero: no CPU spins.
    tail: AtomicU32,
}

impl QueuedMutex {
    /// Creates a free mutex.
    pub const fn new() -> Self {
        Self::with(SpinQueue { tail: AtomicU32::new(0) })
    }
}

impl SpinQueue {
    /// Waits behind `before` for the first place. Returns `false` if the caller has left the queue.
    fn wait<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        before: usize,
        taken: &mut MutexCost,
    ) -> bool {
        let links = cpu.waiters.links(cpu.id);
        let mut remaining = cpu.spin_threshold;
        while remaining > 0 {
            if links.is_granted() {
                return true;
            }
            if cpu.pv.is_off(before) {
                break;
            }
            let spins = cpu.pv.spin(remaining);
            taken.spins += spins;
            remaining -= spins;
        }
        !links.abandon()
    }

    /// The CPU that queues behind `node`, which the caller owns. `None` if `node` was the last; the
    /// queue is then empty.
    fn successor<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        node: usize,
        taken: &mut MutexCost,
    ) -> Option<usize> {
        let links = cpu.waiters.links(node);
        if let Some(next) = links.next() {
            return Some(next);
        }
        taken.spinner_rmw += 1;
        let (last, none) = (node as u32 + 1, 0);
        if self.tail.compare_exchange(last, none, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return None;
        }
        // Another CPU has swapped the tail and is about to link itself, which is its next step.
        loop {
            if let Some(next) = links.next() {
                return Some(next);
            }
            cpu.pv.spin_hint();
        }
    }
}

impl Spinners for SpinQueue {
    const READS_FIRST: bool = true;

    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) -> bool {
        let links = cpu.waiters.links(cpu.id);
        if !links.prepare() {
            return false;
        }
        taken.spinner_rmw += 1;
        // Releases the node to the next CPU, and acquires the previous CPU's node.
        let before = self.tail.swap(cpu.id as u32 + 1, Ordering::AcqRel) as usize;
        match before.checked_sub(1) {
            None => {
                links.grant_first();
                true
            }
            Some(before) => {
                cpu.waiters.links(before).link(cpu.id);
                self.wait(cpu, before, taken)
            }
        }
    }

    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) {
        let mut node = cpu.id;
        loop {
            let next = self.successor(cpu, node, taken);
            cpu.waiters.links(node).free();
            match next {
                Some(next) if !cpu.waiters.links(next).grant() => node = next,
                _ => return,
            }
        }
    }
}
