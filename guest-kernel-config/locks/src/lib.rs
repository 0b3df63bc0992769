//! Spinlocks for overcommitted guests, generic over how a waiter halts and is kicked.
//!
//! Two ticketlocks have the same lock word and fast path: waiters of [`NativeTicketLock`] only spin, waiters of
//! [`PvTicketLock`] spin for a bounded time, then halt their vCPU and are kicked by the releaser. Both exist
//! with large and small tickets. The other spinlocks are for comparison:
//!
//! - [`TestAndSetLock`], [`PreemptableTicketLock`], [`PvPreemptableTicketLock`], [`QueuedLock`],
//!   [`UnfairQueuedLock`], [`PvQueuedLock`];
//! - [`McsLock`], [`ClhLock`], [`TwaLock`] and [`ReciprocatingLock`], from the literature;
//! - [`OwnerConferLock`], [`OwnerConferClassicLock`] and [`OwnerYieldLock`], whose waiters yield to a preempted holder;
//! - [`FlexGuardLock`], whose waiters halt while any holder or next in line is preempted;
//! - [`McsTpLock`], whose waiters publish that they are running;
//! - [`SliceAwareLock`], whose CPUs queue only with enough of their slice left;
//! - [`CnaLock`] and [`ShuffledLock`], which prefer waiters on the same socket.
//!
//! [`Restricted`] limits how many CPUs hold or await any of these locks at once. All implement [`RawLock`].
//! [`mutex`] has mutexes, [`counter`] per-CPU counters, and [`lockref`] reference counts with a lock in the
//! same word.
//!
//! The caller's [`Pv`] defines halt and kick: port writes in a guest, `park`/`unpark` in a test. A
//! [`WaitTable`] holds the records of halted waiters and the nodes of queued ones. [`Handoff`] has options
//! that make handoffs cheaper. A [`Watch`] is notified of each step of a lock, and a [`Section`] is a
//! critical section that detects violations of mutual exclusion.
//!
//! The crate needs no `std`, does not allocate and has no `unsafe` code. An interrupt handler may take locks
//! while its CPU waits for a lock, halted or about to halt.

#![no_std]
#![forbid(unsafe_code)]

mod acquire;
mod adaptive;
mod bypass;
mod clh;
mod clh_nodes;
mod cna;
pub mod counter;
mod flexguard;
mod halt;
mod handed;
mod handoff;
mod handovers;
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
mod position;
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
mod twa;
mod unfair_queued;
mod wait;
mod waiting_array;
mod watch;
mod width;

pub use bypass::Bypass;
pub use clh::ClhLock;
pub use cna::CnaLock;
pub use flexguard::FlexGuardLock;
pub use handoff::Handoff;
pub use limits::TooManyCpus;
pub use mcs::McsLock;
pub use mcs_tp::McsTpLock;
pub use native::{NativeTicketLock, NativeTickets, SmallNativeTicketLock};
pub use owner_confer::{OwnerConferClassicLock, OwnerConferLock};
pub use owner_yield::OwnerYieldLock;
pub use position::Position;
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
pub use systems::{Family, Needs, Origin, System, UnknownSystem};
pub use test_and_set::TestAndSetLock;
pub use twa::TwaLock;
pub use unfair_queued::UnfairQueuedLock;
pub use wait::WaitTable;
pub use watch::{Place, Spins, Unwatched, Watch};
pub use width::Width;

/// The operations that a lock needs from its machine.
pub trait Pv {
    /// Whether waiters may halt. If not, PV locks compile to native ones: no call, no branch, no locked
    /// release. All CPUs that take a lock must agree on it.
    const ENABLED: bool = true;

    /// Hints to the processor that this is a spin loop (PAUSE).
    fn spin_hint(&self);

    /// Pauses in a spin loop that has at most `max` iterations left, at least one. Returns the number of
    /// iterations that the pause stands for, from 1 to `max`.
    ///
    /// A processor pauses once. A simulator that knows that the next iterations would read the same values
    /// skips them, up to `max` or to an iteration that may differ. Call it only in loops that may continue as
    /// if every skipped iteration had read the same values.
    #[inline(always)]
    fn spin(&self, max: u32) -> u32 {
        let _ = max;
        self.spin_hint();
        1
    }

    /// Halts the calling CPU until it is kicked. Returns at once if a kick came before the call; may return
    /// spuriously. `ticket` is for diagnosis; a lock without tickets passes an arbitrary small number.
    fn lock_spinning(&self, ticket: u16);

    /// Wakes `cpu` from [`Pv::lock_spinning`], or makes its next call return at once. Kicking a CPU that does
    /// not wait is allowed.
    fn unlock_kick(&self, cpu: usize);

    /// Kicks `cpu`, then halts. For machines that can do both in one call.
    #[track_caller]
    fn kick_and_halt(&self, cpu: usize, ticket: u16) {
        self.unlock_kick(cpu);
        self.lock_spinning(ticket);
    }

    /// Whether the CPU with the ticket before `ticket` is known not to be running. `lock` is the lock's
    /// address.
    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        let _ = (lock, ticket);
        false
    }

    /// Whether `cpu` is known not to be running. Spinning for a lock that it holds is then wasted.
    fn is_off(&self, cpu: usize) -> bool {
        let _ = cpu;
        false
    }

    /// A clock that is the same on all CPUs, or nearly so: one to four ticks per nanosecond. Constant on a
    /// machine without such a clock.
    fn ticks(&self) -> u64 {
        0
    }

    /// The socket that the calling CPU runs on: CPUs with the same number reach each other's caches faster.
    /// Zero on a machine that does not report sockets.
    fn socket(&self) -> u16 {
        0
    }

    /// The rest of the calling CPU's time slice, in [`Pv::ticks`]: zero once the slice has expired,
    /// `u64::MAX` if its end is unknown.
    fn slice_left(&self) -> u64 {
        u64::MAX
    }

    /// Whether any CPU that holds a lock, or was next in line for one, is known not to be running.
    fn is_critical_off(&self) -> bool {
        false
    }

    /// Donates the rest of the calling CPU's time slice to `cpu`, if that CPU is runnable and waits for a
    /// slice. Returns in the calling CPU's next slice, or at once. A machine that does not support it pauses.
    fn yield_to(&self, cpu: usize) {
        let _ = cpu;
        self.spin_hint();
    }
}

/// The CPU that takes a lock, and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Cpu<'a, P, W = Unwatched> {
    /// Index of this CPU, less than [`MAX_CPUS`]. No two threads of execution may use the same index at the
    /// same time.
    pub id: usize,
    /// Spin iterations before a PV waiter halts (`SPIN_THRESHOLD`).
    pub spin_threshold: u32,
    /// Implements halts and kicks.
    pub pv: &'a P,
    /// Shared by all CPUs that take the same PV or queued locks.
    pub waiters: &'a WaitTable,
    /// Observes the steps of locks.
    pub watch: W,
    /// Options that make handoffs of this CPU's PV locks cheaper.
    pub handoff: Handoff,
}

/// The cost of an acquisition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acquisition {
    /// Whether the lock was not free at the first attempt.
    pub slow: bool,
    /// Calls of [`Pv::lock_spinning`].
    pub halts: u32,
    /// The caller's ticket, if the lock serves tickets in order. With small tickets only the bits in
    /// [`RawLock::TICKETS`] are valid.
    pub ticket: Option<u16>,
}

/// The cost of a release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Release {
    /// Calls of [`Pv::unlock_kick`].
    pub kicks: u32,
}

/// A lock without the data it protects.
pub trait RawLock {
    /// Whether CPUs are served in the order of arrival, provided that none of them uses
    /// [`RawLock::try_lock`], which never queues.
    const FIFO: bool;

    /// Bound on the bypasses of a waiter.
    const BYPASS: Bypass;

    /// Largest number of CPUs that may hold the lock or wait for it at once: its counting limit.
    const CPUS: u32;

    /// The valid bits of [`Acquisition::ticket`]. Zero if the lock has no tickets, or serves them in any order.
    const TICKETS: u16 = 0;

    /// Fails if `cpus` is more than [`RawLock::CPUS`].
    fn check_cpus(cpus: u32) -> Result<(), TooManyCpus> {
        let max = Self::CPUS;
        if cpus <= max { Ok(()) } else { Err(TooManyCpus { cpus, max }) }
    }

    /// Returns once the caller holds the lock.
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition;

    /// Takes the lock if it is free and not due to a waiter; otherwise returns `None` at once.
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition>;

    /// Releases the lock, to the next in line if the lock has a queue. Only the holder may call it.
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release;

    /// Whether any CPU waits for the lock, as far as the lock knows: a hint for a holder that may release
    /// early. The answer may be outdated at once.
    fn is_contended(&self) -> bool;

    /// Number of releases until the waiter identified by `position` is served: 0 if it has been served, 2 for
    /// two or more. `None` if the lock does not support it. Reads the words that [`Position`] specifies, as an
    /// observer would.
    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        let _ = (waiters, position);
        None
    }

    /// Returns once the lock has been free or handed over since the call, without taking it.
    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>);
}
