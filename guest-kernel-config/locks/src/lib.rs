//! Spinlocks for overcommitted guests, generic over how a waiter halts and is
//! kicked.
//!
//! Two ticketlocks share one word and one fast path: [`NativeTicketLock`] only
//! spins, [`PvTicketLock`] halts its vCPU after a bounded spin and is kicked by
//! the releaser; both come with large and small tickets. For comparison there are
//! [`TestAndSetLock`], [`PreemptableTicketLock`], [`PvPreemptableTicketLock`],
//! [`QueuedLock`], [`UnfairQueuedLock`] and [`PvQueuedLock`], and from the literature
//! [`McsLock`], [`ClhLock`], [`TwaLock`] and [`ReciprocatingLock`]. [`OwnerConferLock`] and
//! [`OwnerYieldLock`] name their holder, and waiters give their turn to one that is preempted; those
//! for [`FlexGuardLock`] halt while any holder or next in line is; for [`McsTpLock`] waiters show that
//! they run, and [`SliceAwareLock`] is for those with enough left of their slices. [`CnaLock`] and
//! [`ShuffledLock`] stay on a socket.
//! [`Restricted`] limits how many CPUs want any of them at once. All implement [`RawLock`].
//!
//! The caller's [`Pv`] defines halt and kick: port writes in a guest,
//! `park`/`unpark` in a test. [`Section`] is a critical section that detects
//! violations of mutual exclusion, and [`WaitTable`] holds the records of halted
//! waiters and the nodes of queued ones. A [`Watch`] is told each step of a lock,
//! and [`Handoff`] has options that make the handoffs of a PV ticketlock cheaper.
//! [`mutex`] has mutexes, [`counter`] per-CPU counters, and [`lockref`] reference
//! counts with a lock in the same word.
//!
//! The crate needs no `std`, allocates nothing and has no `unsafe`. An interrupt
//! handler may take locks while its CPU waits for one, halted or about to.

#![no_std]
#![forbid(unsafe_code)]

mod acquire;
mod adaptive;
mod awaited;
mod bypass;
mod clh;
mod clh_nodes;
mod cna;
pub mod counter;
mod flexguard;
mod halt;
mod handed;
mod handoff;
mod held;
mod limits;
mod links;
pub mod lockref;
mod mcs;
mod mcs_tp;
pub mod mutex;
mod native;
mod node;
mod owned;
mod owner_confer;
mod owner_yield;
mod preemptable;
mod pv;
mod pv_queued;
mod queue;
mod queued;
mod reciprocating;
mod restricted;
mod section;
mod shuffled;
mod slice_aware;
mod sync;
mod systems;
mod test_and_set;
#[cfg(test)]
mod test_stage;
mod ticket;
mod turns;
mod twa;
mod unfair_queued;
mod wait;
mod waiting_array;
mod watch;
mod width;

pub use awaited::Awaited;
pub use bypass::Bypass;
pub use clh::ClhLock;
pub use cna::CnaLock;
pub use flexguard::FlexGuardLock;
pub use handoff::Handoff;
pub use limits::TooManyCpus;
pub use mcs::McsLock;
pub use mcs_tp::McsTpLock;
pub use native::{NativeTicketLock, NativeTickets, SmallNativeTicketLock};
pub use owner_confer::OwnerConferLock;
pub use owner_yield::OwnerYieldLock;
pub use preemptable::{PreemptableTicketLock, PreemptableTickets, PvPreemptableTicketLock};
pub use pv::{PvTicketLock, PvTickets, SmallPvTicketLock, settle};
pub use pv_queued::PvQueuedLock;
pub use queued::QueuedLock;
pub use reciprocating::ReciprocatingLock;
pub use restricted::{Restricted, RestrictedTicketLock};
pub use section::{Disorder, Section, Violation, Words};
pub use shuffled::ShuffledLock;
pub use slice_aware::SliceAwareLock;
pub use sync::MAX_CPUS;
pub use systems::{Family, Needs, Seed, System, UnknownSystem};
pub use test_and_set::TestAndSetLock;
pub use twa::TwaLock;
pub use unfair_queued::UnfairQueuedLock;
pub use wait::WaitTable;
pub use watch::{Place, Unwatched, Watch};
pub use width::Width;

/// The operations that a lock needs from its machine.
pub trait Pv {
    /// May waiters halt? If not, PV locks are compiled to native ones: no call, no branch, no
    /// locked release. All CPUs that take a lock must agree on it.
    const ENABLED: bool = true;

    /// Tells the processor that this is a spin loop (PAUSE).
    fn spin_hint(&self);

    /// Pauses between two looks of a spin loop that ends after at most `most` more looks, at least
    /// one. Returns the number of looks that the pause stands for, from 1 to `most`.
    ///
    /// A processor pauses once. A simulated machine may know that the next looks would find what
    /// the last one found, and skips them: it returns when one might not, or with `most`. Call it
    /// only where a loop may go on as if it had looked that often and seen the same.
    #[inline(always)]
    fn spin(&self, most: u32) -> u32 {
        let _ = most;
        self.spin_hint();
        1
    }

    /// Halts the calling CPU until it is kicked. Returns at once if a kick came
    /// before; may return spuriously. `ticket` is for diagnosis; a lock without
    /// tickets passes an arbitrary small number.
    fn lock_spinning(&self, ticket: u16);

    /// Wakes `cpu` from [`Pv::lock_spinning`], or makes its next call return at
    /// once. Kicking a CPU that does not wait is allowed.
    fn unlock_kick(&self, cpu: usize);

    /// Kicks `cpu`, then halts, for a machine that can do both in one call.
    fn kick_and_halt(&self, cpu: usize, ticket: u16) {
        self.unlock_kick(cpu);
        self.lock_spinning(ticket);
    }

    /// Is the CPU that `lock` serves before `ticket` known not to be running?
    /// `lock` is the address of the lock.
    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        let _ = (lock, ticket);
        false
    }

    /// Is `cpu` known not to be running? Then spinning for a lock that it holds is wasted.
    fn is_off(&self, cpu: usize) -> bool {
        let _ = cpu;
        false
    }

    /// A clock that all CPUs share, or nearly: one to four ticks a nanosecond. A machine without one stands
    /// still.
    fn ticks(&self) -> u64 {
        0
    }

    /// The socket of the machine on which the calling CPU runs: CPUs with the same number reach each
    /// other's caches faster. A machine that does not tell has one.
    fn socket(&self) -> u16 {
        0
    }

    /// What is left of the calling CPU's slice, in [`Pv::ticks`]: zero once it is over, the most if its end was
    /// not told.
    fn slice_left(&self) -> u64 {
        u64::MAX
    }

    /// Is a CPU known not to be running that holds a lock, any lock, or was the next in line for one?
    fn is_critical_off(&self) -> bool {
        false
    }

    /// Gives the rest of the calling CPU's turn to `cpu`, if that is ready to run and waits for a
    /// turn. Returns at the calling CPU's next turn, or at once. A machine that cannot do it pauses.
    fn yield_to(&self, cpu: usize) {
        let _ = cpu;
        self.spin_hint();
    }
}

/// The CPU that takes a lock, and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Cpu<'a, P, W = Unwatched> {
    /// Index of this CPU, less than [`MAX_CPUS`]; no two threads of execution
    /// may use the same one at the same time.
    pub id: usize,
    /// Looks at the lock before a PV waiter halts (`SPIN_THRESHOLD`).
    pub spin_threshold: u32,
    /// Halt and kick.
    pub pv: &'a P,
    /// Shared by all CPUs that take PV or queued locks with each other.
    pub waiters: &'a WaitTable,
    /// The observer of the locks' steps.
    pub watch: W,
    /// Options that make handoffs of this CPU's PV locks cheaper.
    pub handoff: Handoff,
}

/// The cost of an acquisition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// The lock was not free at the first look.
    pub slow: bool,
    /// Calls of [`Pv::lock_spinning`].
    pub halts: u32,
    /// The ticket that was served, if the lock serves tickets in order. For a lock with small
    /// tickets only the bits of [`RawLock::TICKETS`] count.
    pub ticket: Option<u16>,
}

/// The cost of a release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Released {
    /// Calls of [`Pv::unlock_kick`].
    pub kicks: u32,
}

/// A lock without the data it protects.
pub trait RawLock {
    /// Are CPUs served in the order of arrival? True as long as none of them uses
    /// [`RawLock::try_lock`], which never queues.
    const FIFO: bool;

    /// Bound on bypasses of a waiter.
    const BYPASS: Bypass;

    /// Largest number of CPUs that may hold the lock or wait for it at once: as many as it can
    /// count.
    const CPUS: u32;

    /// The bits of [`Taken::ticket`] that count; zero: the lock has no tickets, or serves them in
    /// any order.
    const TICKETS: u16 = 0;

    /// May this many CPUs take the lock?
    fn check_cpus(cpus: u32) -> Result<(), TooManyCpus> {
        let most = Self::CPUS;
        if cpus <= most { Ok(()) } else { Err(TooManyCpus { cpus, most }) }
    }

    /// Returns when the caller holds the lock.
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken;

    /// Takes the lock if it is free and not due to a waiter; otherwise returns `None` at once.
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Taken>;

    /// Releases the lock: to the next in line, if it has a queue. Only the holder may call it.
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released;

    /// Does any CPU wait for the lock, as far as the lock knows? For a holder that may release it
    /// early; the answer may be outdated at once.
    fn is_contended(&self) -> bool;

    /// Releases until the waiter is served that goes by `awaited`; 0: it has been, and 2: two or more. None: the lock does
    /// not tell. As a watcher finds by the words that [`Awaited`] names.
    fn releases_before(&self, waiters: &WaitTable, awaited: Awaited) -> Option<u16> {
        let _ = (waiters, awaited);
        None
    }

    /// Returns once the lock was free at some moment since the call, without taking it.
    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>);
}
