//! The guest: lock sources as the code of simulated vCPUs.

pub(crate) mod activity;
mod narrow;
pub(crate) mod probe;
mod waits;
mod wide;

use std::rc::Rc;

use sim_cell::{Request, Work, request};
use simulated_locks::{Handoff, System};

use activity::count;
pub(crate) use activity::{Doing, Shared};
pub use waits::Waits;

/// vCPUs of the library's usual table.
const NARROW: usize = simulated_locks::MAX_CPUS;
/// vCPUs of the larger one.
pub(crate) const WIDE: usize = simulated_locks_1024::MAX_CPUS;

/// What a vCPU needs to use a system.
pub(crate) struct Guest {
    /// Its index.
    pub(crate) id: usize,
    pub(crate) spin_threshold: u32,
    pub(crate) handoff: Handoff,
    /// Touch shared data in the critical section, as the payload does, and check it.
    pub(crate) has_data: bool,
    /// Report positions to the machine.
    pub(crate) marks: bool,
    pub(crate) shared: Rc<Shared>,
}

/// A system with everything it needs, in one piece of memory.
pub(crate) trait Subject {
    /// Uses it once.
    fn operate(&self, guest: &Guest);

    /// Sends a kick that `guest` owes, before longer work.
    fn settle(&self, guest: &Guest);

    /// The address and the size of its memory.
    fn memory(&self) -> (usize, usize);
}

/// A system for `vcpus` vCPUs.
pub(crate) fn subject(system: System, vcpus: usize) -> Rc<dyn Subject> {
    match vcpus {
        ..=NARROW => narrow::subject(system as u32),
        _ => wide::subject(system as u32),
    }
}

/// The code of a vCPU: it thinks and uses the system, until it is told to end.
pub(crate) fn rounds(subject: &dyn Subject, guest: &Guest) {
    let doing = guest.shared.doing(guest.id);
    while !guest.shared.is_over() {
        request(Request::Work(Work::Think));
        if guest.shared.is_over() {
            break;
        }
        subject.operate(guest);
        count(&doing.operations, 1);
        count(&guest.shared.operations, 1);
        if doing.yields.get() {
            subject.settle(guest);
            request(Request::Yield);
        }
    }
    subject.settle(guest);
}
