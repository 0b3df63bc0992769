//! The list of all systems of this library: name, description and origin.

use core::{fmt, str::FromStr};

use crate::mutex::RawMutex;
use crate::{Bypass, RawLock};

/// Passes the list to the macro `$then`, one line per system: its family, its name in code and in
/// tables, its type, its needs, a description, and the document that it comes from. The first of
/// each family is the baseline of the others.
///
/// New spinlocks also need a line in `model/build/locks.rs`. A program that runs systems matches on the family.
#[macro_export]
macro_rules! systems {
    ($then:ident) => {
        $then! {
            Spinlock NativeTicket "ticket" $crate::NativeTicketLock: Nothing,
                "ticketlock, 16-bit tickets: waiters spin, first in, first out", PvTicketlocks;
            Spinlock PvTicket "pv-ticket" $crate::PvTicketLock: Halts,
                "PV ticketlock: a waiter halts after a bounded spin, the release kicks the next",
                PvTicketlocks;
            Spinlock SmallNativeTicket "small-ticket" $crate::SmallNativeTicketLock: Nothing,
                "ticketlock with 8-bit tickets", PvTicketlocks;
            Spinlock SmallPvTicket "small-pv-ticket" $crate::SmallPvTicketLock: Halts,
                "PV ticketlock with 8-bit tickets", PvTicketlocks;
            Spinlock TestAndSet "test-and-set" $crate::TestAndSetLock: Nothing,
                "the fastest CPU gets it; the fallback of guests without PV on a hypervisor",
                LaterKernels;
            Spinlock Preemptable "preemptable-ticket" $crate::PreemptableTicketLock: Nothing,
                "tickets are advisory: a waiter takes the lock out of order if those ahead do not run",
                PreemptableTicketlocks;
            Spinlock PvPreemptable "pv-preemptable-ticket" $crate::PvPreemptableTicketLock: Halts,
                "preemptable, with waiters that halt", PreemptableTicketlocks;
            Spinlock Queued "queued" $crate::QueuedLock: Nothing,
                "MCS queue in front of a word of four bytes: each waiter has its own node",
                LaterKernels;
            Spinlock PvQueued "pv-queued" $crate::PvQueuedLock: Halts,
                "queued, waiters halt; newcomers poll and steal while the head does not run (Linux since 4.16)",
                LaterKernels;
            Spinlock UnfairQueued "unfair-queued" $crate::UnfairQueuedLock: Nothing,
                "queued, but any CPU may take the word; waiters further back try less often",
                Literature;
            Spinlock Mcs "mcs" $crate::McsLock: Nothing,
                "MCS queue: each waiter spins at its own node; a holder hands over to the next", Literature;
            Spinlock McsTp "mcs-tp" $crate::McsTpLock: YieldTo,
                "MCS queue whose waiters publish timestamps; a holder skips preempted waiters",
                Literature;
            Spinlock Cna "cna" $crate::CnaLock: Nothing,
                "MCS queue: a waiter on the holder's socket is next, at most 65535 times in a row",
                Literature;
            Spinlock Shfl "shfl" $crate::ShuffledLock: Nothing,
                "queued; waiters move those on their socket to the front, at most 1024 in a row",
                Literature;
            Spinlock Clh "clh" $crate::ClhLock: Nothing,
                "CLH queue: each waiter spins at the node of its predecessor", Literature;
            Spinlock Twa "twa" $crate::TwaLock: Nothing,
                "ticketlock: only the next waiter polls the head, others poll a waiting array",
                Literature;
            Spinlock Reciprocating "reciprocating" $crate::ReciprocatingLock: Nothing,
                "waiters push themselves onto a stack; holders serve it newest first, stack by stack",
                Literature;
            Spinlock ISpinlock "i-spinlock" $crate::SliceAwareLock: SliceEnd,
                "ticketlock: a ticket is drawn only if the rest of the slice is long enough", Literature;
            Spinlock FlexGuard "flexguard" $crate::FlexGuardLock: CriticalOff,
                "waiters spin while no holder is preempted, and halt while one is", Literature;
            Spinlock OwnerConfer "owner-confer" $crate::OwnerConferLock: OffAndYieldTo,
                "s390 on dedicated CPUs: queued, waiters donate their slices to the holder; at most three steals",
                Literature;
            Spinlock OwnerConferClassic "owner-confer-classic" $crate::OwnerConferClassicLock: OffAndYieldTo,
                "s390 on shared CPUs: all waiters poll the word, and donate their slices to its holder",
                Literature;
            Spinlock OwnerYield "owner-yield" $crate::OwnerYieldLock: OffAndYieldTo,
                "powerpc: queued; waiters donate their slices to a preempted holder, and newcomers poll for longer",
                Literature;
            Mutex BaselineMutex "mutex" $crate::mutex::BaselineMutex: Halts,
                "waiters spin with read-modify-writes while the owner runs, then sleep",
                MutexAtomics;
            Mutex ReadFirstMutex "mutex-read-first" $crate::mutex::ReadFirstMutex: Halts,
                "waiters read the word before they write it", MutexAtomics;
            Mutex OneSpinnerMutex "mutex-one-spinner" $crate::mutex::OneSpinnerMutex: Halts,
                "reads first; one waiter spins, the others sleep at once", MutexSpinner;
            Mutex QueuedMutex "mutex-queued" $crate::mutex::QueuedMutex: Halts,
                "reads first; spinners queue, and only the first polls the word",
                MutexAtomics;
            Counter LockedCounter "counter-lock" $crate::counter::LockedCounter: Halts,
                "per-CPU counter: a lock around each fold of a full batch and each sum",
                PercpuCounter;
            Counter SequenceCounter "counter-sequence" $crate::counter::SequenceCounter: Nothing,
                "no lock: a sum restarts after a concurrent fold, and may count a part twice",
                PercpuCounter;
            Counter GatedCounter "counter-gates" $crate::counter::GatedCounter: Halts,
                "folds pass a gate together, and a sum closes it", PercpuCounter;
            Lockref UnboundedLockref "lockref-unbounded" $crate::lockref::UnboundedLockref: Halts,
                "count and lock in one word: compare-exchanges for as long as the lock is free",
                Lockrefs;
            Lockref BoundedLockref "lockref-bounded" $crate::lockref::BoundedLockref: Halts,
                "takes the lock after 100 failed compare-exchanges", Lockrefs;
            Lockref LockedLockref "lockref-lock" $crate::lockref::LockedLockref: Halts,
                "takes the lock at once", Lockrefs;
        }
    };
}

/// Systems that can be compared with each other: they serve the same purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A [`RawLock`].
    Spinlock,
    /// A [`RawMutex`].
    Mutex,
    /// A [`Counter`](crate::counter::Counter).
    Counter,
    /// A [`Lockref`](crate::lockref::Lockref).
    Lockref,
}

/// The operations that a system needs from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but a processor.
    Nothing,
    /// Halts and kicks.
    Halts,
    /// Halts and kicks, and whether a holder or next in line is preempted.
    CriticalOff,
    /// The end of its time slice.
    SliceEnd,
    /// Yielding the time slice to another vCPU.
    YieldTo,
    /// The set of preempted vCPUs, and yielding to one of them.
    OffAndYieldTo,
}

/// The origin of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The series "Paravirtualized ticketlocks" for Linux, 2012.
    PvTicketlocks,
    /// Ouyang and Lange, "Preemptable Ticket Spinlocks", VEE 2013.
    PreemptableTicketlocks,
    /// "mutex: Make more scalable by doing less atomic operations", Linux 2013, and its review.
    MutexAtomics,
    /// "mutex: restrict mutex spinning to only one task per mutex", Linux 2013.
    MutexSpinner,
    /// "percpu_counter: scalability works", Linux 2011, and its review.
    PercpuCounter,
    /// "Disable lockref on arm64", Linux 2019.
    Lockrefs,
    /// Locks of Linux since 4.2: queued spinlocks, their PV form and fallback.
    LaterKernels,
    /// Locks of the literature, each with its source in the documentation of its type.
    Literature,
    /// A lock crate (`--lock-crate`).
    LockCrate,
}

impl Family {
    /// The name in texts and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spinlock => "spinlock",
            Self::Mutex => "mutex",
            Self::Counter => "counter",
            Self::Lockref => "lockref",
        }
    }
}

impl Needs {
    /// The name in texts and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Halts => "halts and kicks",
            Self::CriticalOff => "halts, kicks, critical_off",
            Self::SliceEnd => "end of the slice",
            Self::YieldTo => "yield_to",
            Self::OffAndYieldTo => "preempted vCPUs, yield_to",
        }
    }
}

impl Origin {
    /// All origins of published locks, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::PvTicketlocks,
        Self::MutexAtomics,
        Self::MutexSpinner,
        Self::PercpuCounter,
        Self::Lockrefs,
        Self::PreemptableTicketlocks,
        Self::LaterKernels,
        Self::Literature,
    ];

    /// The title and year in texts and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PvTicketlocks => "PV ticketlocks, Linux 2012",
            Self::PreemptableTicketlocks => "Preemptable Ticket Spinlocks, VEE 2013",
            Self::MutexAtomics => "mutex with fewer atomic operations, Linux 2013",
            Self::MutexSpinner => "one spinner per mutex, Linux 2013",
            Self::PercpuCounter => "percpu_counter scalability, Linux 2011",
            Self::Lockrefs => "lockref on arm64, Linux 2019",
            Self::LaterKernels => "Linux since 4.2",
            Self::Literature => "locks of the literature",
            Self::LockCrate => "a lock crate",
        }
    }
}

/// No [`System`] has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSystem;

impl fmt::Display for UnknownSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of")?;
        System::ALL.iter().try_for_each(|system| write!(f, " {}", system.name()))
    }
}

impl core::error::Error for UnknownSystem {}

macro_rules! max_cpus {
    (Spinlock $lock:ty) => {
        <$lock as RawLock>::CPUS
    };
    ($other:ident $system:ty) => {
        u32::MAX
    };
}

macro_rules! is_fifo {
    (Spinlock $lock:ty) => {
        <$lock as RawLock>::FIFO
    };
    ($other:ident $system:ty) => {
        false
    };
}

macro_rules! bypass {
    (Spinlock $lock:ty) => {
        Some(<$lock as RawLock>::BYPASS)
    };
    (Mutex $mutex:ty) => {
        Some(<$mutex as RawMutex>::BYPASS)
    };
    (Lockref $lockref:ty) => {
        Some(<$lockref>::BYPASS)
    };
    (Counter $counter:ty) => {
        None
    };
}

macro_rules! define {
    ($($family:ident $system:ident $name:literal $lock:ty: $needs:ident, $about:literal, $origin:ident;)*) => {
        /// A system of this library. Its number is its index in the list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum System {
            $(#[doc = $about] $system,)*
            /// The spinlock of a guest's kernel, whichever it is. No part of this library.
            Kernel,
        }

        impl System {
            /// All systems of the library.
            pub const ALL: &[Self] = &[$(Self::$system),*];

            /// The name on the command line and in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$system => $name,)* Self::Kernel => "kernel" }
            }

            /// A description, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$system => $about,)* Self::Kernel => "the spinlock of the guest's kernel" }
            }

            /// The family of systems that it can be compared with.
            pub const fn family(self) -> Family {
                match self { $(Self::$system => Family::$family,)* Self::Kernel => Family::Spinlock }
            }

            /// The operations that it needs from the machine.
            pub const fn needs(self) -> Needs {
                match self { $(Self::$system => Needs::$needs,)* Self::Kernel => Needs::Halts }
            }

            /// Number of vCPUs that it supports; the limit of a VM may be lower.
            pub const fn max_cpus(self) -> u32 {
                match self { $(Self::$system => max_cpus!($family $lock),)* Self::Kernel => u32::MAX }
            }

            /// Whether it is a spinlock that serves CPUs in the order of arrival.
            pub const fn is_fifo(self) -> bool {
                match self { $(Self::$system => is_fifo!($family $lock),)* Self::Kernel => false }
            }

            /// Bound on the bypasses of a waiter for it, or for its lock; `None` for counters.
            pub const fn bypass(self) -> Option<Bypass> {
                match self { $(Self::$system => bypass!($family $lock),)* Self::Kernel => None }
            }

            /// The origin.
            pub const fn origin(self) -> Origin {
                match self { $(Self::$system => Origin::$origin,)* Self::Kernel => Origin::LaterKernels }
            }
        }
    };
}

systems!(define);

impl System {
    /// Whether its waiters halt.
    pub fn halts(self) -> bool {
        matches!(self.needs(), Needs::Halts | Needs::CriticalOff)
    }

    /// The baseline of its family.
    pub fn baseline(self) -> Self {
        Self::in_family(self.family()).next().unwrap_or(self)
    }

    /// The systems of one family, in the order of the list.
    pub fn in_family(family: Family) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |system| system.family() == family)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(name: &str) -> Result<Self, UnknownSystem> {
        let known = Self::ALL.iter().chain(&[Self::Kernel]);
        known.copied().find(|system| system.name() == name).ok_or(UnknownSystem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse() {
        for system in System::ALL {
            assert_eq!(system.name().parse(), Ok(*system));
        }
        assert_eq!("ticke".parse::<System>(), Err(UnknownSystem));
    }

    #[test]
    fn system_numbers_are_list_indices() {
        assert!(System::ALL.iter().enumerate().all(|(place, system)| *system as usize == place));
        assert_eq!(System::PvTicket.baseline(), System::NativeTicket);
        assert_eq!(System::LockedLockref.baseline(), System::UnboundedLockref);
    }

    #[test]
    fn fifo_spinlocks_are_bypassed_once_per_cpu() {
        for system in System::in_family(Family::Spinlock) {
            let is_once = system.bypass().and_then(|bypass| bypass.bound(4)) == Some(3);
            assert_eq!(is_once, system.is_fifo(), "{system}");
        }
        assert!(System::in_family(Family::Counter).all(|system| system.bypass().is_none()));
    }
}
