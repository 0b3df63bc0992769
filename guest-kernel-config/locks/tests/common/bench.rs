//! A lock under test, and the data that it protects.

use std::sync::atomic::{AtomicU64, Ordering};

use locks::{Cpu, Handoff, Pv, RawLock, Section, Taken, WaitTable, Watch};

use super::Threads;

/// A lock, the data that it protects, and its CPUs.
pub struct Bench<L> {
    pub lock: L,
    pub section: Section,
    pub waiters: WaitTable,
    pub pv: Threads,
    pub wrong: AtomicU64,
}

impl<L: RawLock + Default + Sync> Bench<L> {
    pub fn new(count: usize) -> Self {
        Self {
            lock: L::default(),
            section: Section::new(),
            waiters: WaitTable::new(),
            pv: Threads::new(count),
            wrong: AtomicU64::new(0),
        }
    }

    pub fn cpu<W: Watch>(&self, id: usize, spin_threshold: u32, watch: W) -> Cpu<'_, Threads, W> {
        let (pv, waiters, handoff) = (&self.pv, &self.waiters, Handoff::default());
        Cpu { id, spin_threshold, pv, waiters, watch, handoff }
    }

    /// With the lock `taken`: runs the critical section and releases the lock.
    pub fn work<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &Taken) {
        self.pv.takes();
        assert_eq!(taken.ticket.is_some(), L::TICKETS != 0);
        let in_turn = self.section.follows::<L>(taken).is_ok();
        let alone = self.section.run(cpu.id, 20).is_ok();
        if !in_turn || !alone {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.lock.unlock(cpu);
    }
}
