//! Locks as a workload sees them.

use std::rc::Rc;

use locks::{Handoff, System};
use sim_cell::{Mark, Request, Work, request};

/// Locks per [`SteppedLock`]; they share the table of their CPUs.
pub const LOCKS: usize = 2;

/// A vCPU's settings for taking locks.
#[derive(Debug, Clone, Copy)]
pub struct VcpuSettings {
    /// The vCPU's index.
    pub id: usize,
    /// The lock's index, below [`LOCKS`].
    pub lock: usize,
    /// Looks before a halt (the spin threshold).
    pub spin_threshold: u32,
    /// Handoff options of a PV ticketlock.
    pub handoff: Handoff,
}

/// A lock with everything that it needs.
pub trait SteppedLock {
    /// Acquires it.
    fn lock(&self, guest: &VcpuSettings);

    /// Releases it.
    fn unlock(&self, guest: &VcpuSettings);

    /// Sends the kick that `guest` owes, if any, before longer work.
    fn settle(&self, _: &VcpuSettings) {}

    /// Uses it in other ways than locking, if there are any.
    fn beside(&self, _: &VcpuSettings) {}

    /// The name and the offset of the part of it at `address`.
    fn place(&self, address: usize) -> Option<(&'static str, usize)>;
}

/// What a vCPU runs: it thinks, acquires the lock, works and releases it, until it is told to end.
/// It takes the `locks` locks in turn.
pub(crate) fn rounds(subject: &dyn SteppedLock, mut guest: VcpuSettings, locks: usize) {
    while request(Request::Mark(Mark::Round)) != 0 {
        request(Request::Work(Work::Think));
        request(Request::Mark(Mark::Enter));
        subject.lock(&guest);
        request(Request::Mark(Mark::Taken));
        request(Request::Work(Work::Critical));
        request(Request::Mark(Mark::Release));
        subject.unlock(&guest);
        subject.beside(&guest);
        guest.lock = (guest.lock + 1) % locks;
    }
    subject.settle(&guest);
}

/// The product's sources.
mod product {
    pub(super) use ::locks;

    pub(super) mod bind {
        use crate as stepper_crate;

        include!("bind.rs");
    }
}
use product::bind::{BoundLocks, SteppedLockref, SteppedMutex, SteppedSpinlock};

macro_rules! bound {
    (Spinlock $lock:ty) => {
        Some(Rc::new(SteppedSpinlock(BoundLocks::<$lock>::new())))
    };
    (Mutex $lock:ty) => {
        Some(Rc::new(SteppedMutex(BoundLocks::<$lock>::new())))
    };
    (Lockref $lock:ty) => {
        Some(Rc::new(SteppedLockref(BoundLocks::<$lock>::new())))
    };
    (Counter $lock:ty) => {
        None
    };
}

macro_rules! subjects {
    ($($family:ident $system:ident $name:literal $lock:ty: $needs:ident, $about:literal, $seed:ident;)*) => {
        /// A free lock of the library; `None` if `system` is not acquired.
        pub fn subject(system: System) -> Option<Rc<dyn SteppedLock>> {
            match system {
                $(System::$system => bound!($family $lock),)*
            }
        }
    };
}

locks::systems!(subjects);
