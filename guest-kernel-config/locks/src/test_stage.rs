//! The machine of the unit tests: all CPUs on one thread.

use core::cell::Cell;

use crate::{Acquisition, Cpu, Handoff, Pv, RawLock, Release, Unwatched, WaitTable};

/// A step of the waiting CPU: the only point where other CPUs can act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Pause,
    Halt,
    YieldTo(usize),
}

pub(crate) struct Stage<L> {
    pub(crate) lock: L,
    pub(crate) waiters: WaitTable,
    pub(crate) spin_threshold: u32,
    pub(crate) pauses: Cell<u32>,
    pub(crate) halts: Cell<u32>,
    pub(crate) kicks: Cell<[u32; 4]>,
    /// The CPU that last received a waiter's slice.
    pub(crate) yielded_to: Cell<Option<usize>>,
    /// One bit per CPU, set if it is not running.
    pub(crate) off: Cell<u64>,
    /// Whether a holder or next waiter is not running.
    pub(crate) is_critical_off: Cell<bool>,
    pub(crate) now: Cell<u64>,
    pub(crate) slice_left: Cell<u64>,
    /// Acts for the other CPUs, after the step is counted.
    pub(crate) act: fn(&Self, Step),
}

impl<L> Stage<L> {
    /// Creates a stage whose other CPUs `act` at each step of a waiter.
    pub(crate) fn new(lock: L, act: fn(&Self, Step)) -> Self {
        Self {
            lock,
            waiters: WaitTable::new(),
            spin_threshold: 0,
            pauses: Cell::default(),
            halts: Cell::default(),
            kicks: Cell::default(),
            yielded_to: Cell::default(),
            off: Cell::default(),
            is_critical_off: Cell::default(),
            now: Cell::new(1),
            slice_left: Cell::new(u64::MAX),
            act,
        }
    }

    /// Creates a stage on which no CPU may wait.
    pub(crate) fn without_waits(lock: L) -> Self {
        Self::new(lock, |_, step| panic!("{step:?} of a CPU that need not wait"))
    }

    pub(crate) fn cpu(&self, id: usize) -> Cpu<'_, Self> {
        let (spin_threshold, handoff) = (self.spin_threshold, Handoff::default());
        Cpu { id, spin_threshold, pv: self, waiters: &self.waiters, watch: Unwatched, handoff }
    }
}

impl<L: RawLock> Stage<L> {
    pub(crate) fn lock(&self, id: usize) -> Acquisition {
        self.lock.lock(&self.cpu(id))
    }

    /// Tries to take the lock for a CPU. Returns whether it was free.
    pub(crate) fn try_lock(&self, id: usize) -> bool {
        self.lock.try_lock(&self.cpu(id)).is_some()
    }

    pub(crate) fn unlock(&self, id: usize) -> Release {
        self.lock.unlock(&self.cpu(id))
    }

    pub(crate) fn is_contended(&self) -> bool {
        self.lock.is_contended()
    }
}

impl<L> Pv for Stage<L> {
    fn spin_hint(&self) {
        self.pauses.set(self.pauses.get() + 1);
        (self.act)(self, Step::Pause);
    }

    fn lock_spinning(&self, _: u16) {
        self.halts.set(self.halts.get() + 1);
        (self.act)(self, Step::Halt);
    }

    fn unlock_kick(&self, cpu: usize) {
        let mut kicks = self.kicks.get();
        kicks[cpu] += 1;
        self.kicks.set(kicks);
    }

    fn is_off(&self, cpu: usize) -> bool {
        self.off.get() & (1 << cpu) != 0
    }

    fn ticks(&self) -> u64 {
        self.now.get()
    }

    fn slice_left(&self) -> u64 {
        self.slice_left.get()
    }

    fn is_critical_off(&self) -> bool {
        self.is_critical_off.get()
    }

    fn yield_to(&self, cpu: usize) {
        self.yielded_to.set(Some(cpu));
        (self.act)(self, Step::YieldTo(cpu));
    }
}
