//! The guest: the lock sources as the code of simulated vCPUs.

pub(crate) mod activity;
mod narrow;
mod waits;
mod wide;

use std::rc::Rc;

use sim_cell::{Answer, Request, Work, request};
use simulated_locks::{Handoff, System};

use activity::count;
pub(crate) use activity::{SharedActivity, VcpuActivity};
pub use waits::{LongestWaits, WaitTimes};

/// Maximum number of vCPUs in the library's default table.
const NARROW: usize = simulated_locks::MAX_CPUS;
/// Maximum number of vCPUs in the large table.
pub(crate) const WIDE: usize = simulated_locks_1024::MAX_CPUS;

/// Flag in the answer to [`Work::Think`], the lock to take: calls `try_lock` first.
pub(crate) const TRIES: Answer = 1 << 16;

/// Picoseconds per tick of a vCPU's clock: 2.5 GHz.
pub(crate) const TICK: u64 = 400;

/// The context in which a vCPU uses a system.
pub(crate) struct VcpuContext {
    /// The vCPU's number in its guest.
    pub(crate) id: usize,
    /// The vCPU's index among the vCPUs of all guests.
    pub(crate) index: usize,
    pub(crate) spin_threshold: u32,
    pub(crate) handoff: Handoff,
    /// Whether critical sections update and check shared data, as the payload's do.
    pub(crate) has_data: bool,
    /// Whether its locks share one waiter table.
    pub(crate) shares_table: bool,
    /// Whether it also locks lockrefs.
    pub(crate) locks_lockrefs: bool,
    /// Amount added by one use of a counter.
    pub(crate) adds: u32,
    /// Whether to report the marks of an operation to the engine.
    pub(crate) reports_marks: bool,
    /// Whether the vCPU may sleep or wait after its think time.
    pub(crate) may_sleep: bool,
    pub(crate) shared: Rc<SharedActivity>,
}

impl VcpuContext {
    #[inline(always)]
    pub(crate) fn activity(&self) -> &VcpuActivity {
        self.shared.vcpu(self.index)
    }
}

/// Identifies a waiter in a lock's queue, like the library's `Position`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) name: u16,
    pub(crate) node: u16,
}

/// A system with all its data in one block of memory.
pub(crate) trait SimulatedSystem {
    /// Uses its lock `lock` once.
    fn operate(&self, guest: &VcpuContext, lock: usize);

    /// Sends a kick that `guest` owes, before longer work.
    fn settle(&self, guest: &VcpuContext);

    /// Number of releases of its lock `lock` until this waiter is served, if the lock can determine it.
    /// `shares_table` is as in [`VcpuContext`]. Takes no simulated time.
    fn releases_before(&self, lock: usize, shares_table: bool, queued: Queued) -> Option<u16>;

    /// Address and size of its memory.
    fn memory(&self) -> (usize, usize);

    /// Names the object at this offset in its memory, for a trace.
    fn place(&self, offset: usize) -> String;
}

/// Creates `locks` locks of a system for `vcpus` vCPUs, restricted if `handoff` has a limit.
pub(crate) fn guest_systems(
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

/// The code of a vCPU: it thinks and uses the system until the simulation ends.
pub(crate) fn run_operations(subject: &dyn SimulatedSystem, guest: &VcpuContext) {
    let activity = guest.activity();
    while !guest.shared.is_ended() {
        if guest.may_sleep {
            subject.settle(guest);
        }
        let answer = request(Request::Work(Work::Think));
        if guest.shared.is_ended() {
            break;
        }
        activity.tries.set(answer & TRIES != 0);
        let lock = (answer & !TRIES) as usize;
        subject.operate(guest, lock);
        count(&activity.operations, 1);
        count(&guest.shared.operations, 1);
        if activity.yields.get() {
            subject.settle(guest);
            request(Request::Yield);
        }
    }
    subject.settle(guest);
}
