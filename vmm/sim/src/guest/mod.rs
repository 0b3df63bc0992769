//! The guest: lock sources as the code of simulated vCPUs.

pub(crate) mod activity;
mod narrow;
mod waits;
mod wide;

use std::rc::Rc;

use sim_cell::{Request, Work, request};
use simulated_locks::{Handoff, System};

use activity::count;
pub(crate) use activity::{Doing, SharedActivity};
pub use waits::{LongestWaits, WaitTimes};

/// vCPUs of the library's usual table.
const NARROW: usize = simulated_locks::MAX_CPUS;
/// vCPUs of the larger one.
pub(crate) const WIDE: usize = simulated_locks_1024::MAX_CPUS;

/// Picoseconds of a tick of a vCPU's clock: 2.5 GHz.
pub(crate) const TICK: u64 = 400;

/// What a vCPU needs to use a system.
pub(crate) struct VcpuContext {
    /// The vCPU's number in its guest.
    pub(crate) id: usize,
    /// The vCPU's index among those of all guests.
    pub(crate) index: usize,
    pub(crate) spin_threshold: u32,
    pub(crate) handoff: Handoff,
    /// Touch shared data in the critical section, as the payload does, and check it.
    pub(crate) has_data: bool,
    /// Its locks share the table of its vCPUs.
    pub(crate) shares_table: bool,
    /// It locks a lockref, too.
    pub(crate) locks_lockrefs: bool,
    /// What one use of a counter adds.
    pub(crate) adds: u32,
    /// Report positions to the machine.
    pub(crate) marks: bool,
    /// The vCPU may sleep or wait after a thought.
    pub(crate) rests: bool,
    pub(crate) shared: Rc<SharedActivity>,
}

impl VcpuContext {
    /// What it does with locks.
    #[inline(always)]
    pub(crate) fn doing(&self) -> &Doing {
        self.shared.doing(self.index)
    }
}

/// What tells the place of a waiter in a lock's queue: the library's `Awaited`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) name: u16,
    pub(crate) node: u16,
}

/// A system with everything it needs, in one piece of memory.
pub(crate) trait SimulatedSystem {
    /// Uses its lock with this number once.
    fn operate(&self, guest: &VcpuContext, lock: usize);

    /// Sends a kick that `guest` owes, before longer work.
    fn settle(&self, guest: &VcpuContext);

    /// Releases of its lock with this number until this waiter is served, as far as the lock tells; `shares_table` as in
    /// [`VcpuContext`]. Not a step of any vCPU.
    fn releases_before(&self, lock: usize, shares_table: bool, queued: Queued) -> Option<u16>;

    /// The address and the size of its memory.
    fn memory(&self) -> (usize, usize);

    /// The name of what is at this offset in its memory, for a trace.
    fn place(&self, offset: usize) -> String;
}

/// So many locks of a system for `vcpus` vCPUs; restricted, if `handoff` has a limit.
pub(crate) fn subjects(
    system: System,
    vcpus: usize,
    locks: usize,
    handoff: &Handoff,
) -> Rc<dyn SimulatedSystem> {
    let is_restricted = handoff.restrict != 0;
    match vcpus {
        ..=NARROW => narrow::subject(system as u32, locks, is_restricted),
        _ => wide::subject(system as u32, locks, is_restricted),
    }
}

/// The code of a vCPU: it thinks and uses the system, until it is told to end.
pub(crate) fn rounds(subject: &dyn SimulatedSystem, guest: &VcpuContext) {
    let doing = guest.doing();
    while !guest.shared.is_over() {
        if guest.rests {
            subject.settle(guest);
        }
        let lock = request(Request::Work(Work::Think)) as usize;
        if guest.shared.is_over() {
            break;
        }
        subject.operate(guest, lock);
        count(&doing.operations, 1);
        count(&guest.shared.operations, 1);
        if doing.yields.get() {
            subject.settle(guest);
            request(Request::Yield);
        }
    }
    subject.settle(guest);
}
