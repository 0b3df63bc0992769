//! The CPUs that sleep for a mutex, first in, first out.

use crate::sync::{AtomicU32, Ordering};
use crate::{Cpu, Pv, PvTicketLock, RawLock, Watch, settle};

/// A list of CPUs, linked through the shared table, and its lock. All methods except
/// [`Sleepers::lock`] need that lock, which orders the accesses, so they are relaxed. A CPU is
/// stored as its index plus one, and no CPU as zero.
#[derive(Debug)]
pub(super) struct Sleepers {
    lock: PvTicketLock,
    first: AtomicU32,
    last: AtomicU32,
}

impl Sleepers {
    pub(super) const fn new() -> Self {
        let (first, last) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { lock: PvTicketLock::new(), first, last }
    }

    /// Takes the list's lock; returns the number of halts while it waited.
    pub(super) fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> u32 {
        self.lock.lock(cpu).halts
    }

    /// Releases the list's lock; returns the number of kicks. Also sends owed kicks: a CPU that
    /// goes to sleep, or enters its critical section, would not send them soon.
    pub(super) fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> u32 {
        let released = self.lock.unlock(cpu);
        settle(cpu);
        released.kicks
    }

    pub(super) fn push<P, W>(&self, cpu: &Cpu<'_, P, W>) {
        let me = cpu.id as u32 + 1;
        next(cpu, me).store(0, Ordering::Relaxed);
        match self.last.load(Ordering::Relaxed) {
            0 => self.first.store(me, Ordering::Relaxed),
            last => next(cpu, last).store(me, Ordering::Relaxed),
        }
        self.last.store(me, Ordering::Relaxed);
    }

    /// Removes `cpu`, which may be anywhere in the list.
    pub(super) fn remove<P, W>(&self, cpu: &Cpu<'_, P, W>) {
        let me = cpu.id as u32 + 1;
        let behind = next(cpu, me).load(Ordering::Relaxed);
        let mut before = 0;
        let mut current = self.first.load(Ordering::Relaxed);
        while current != me && current != 0 {
            before = current;
            current = next(cpu, current).load(Ordering::Relaxed);
        }
        match before {
            0 => self.first.store(behind, Ordering::Relaxed),
            before => next(cpu, before).store(behind, Ordering::Relaxed),
        }
        if behind == 0 {
            self.last.store(before, Ordering::Relaxed);
        }
    }

    /// The CPU that has slept longest.
    pub(super) fn first(&self) -> Option<usize> {
        (self.first.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first().is_none()
    }
}

/// The link behind `sleeper`, a CPU as stored in the list.
fn next<'a, P, W>(cpu: &Cpu<'a, P, W>, sleeper: u32) -> &'a AtomicU32 {
    &cpu.waiters.links(sleeper as usize - 1).next_sleeper
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::Stage;

    #[test]
    fn sleepers_keep_their_order_when_one_leaves() {
        let stage = Stage::without_waits(());
        for leaving in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let list = Sleepers::new();
            let mut remaining = [Some(0), Some(1), Some(2)];
            (0..3).for_each(|id| list.push(&stage.cpu(id)));
            for id in leaving {
                assert_eq!(list.first(), remaining.iter().flatten().next().copied());
                list.remove(&stage.cpu(id));
                remaining[id] = None;
                list.push(&stage.cpu(9));
                list.remove(&stage.cpu(9));
            }
            assert!(list.is_empty());
        }
    }
}
