//! Every system of this library, in one list: its name, what it is, where it comes from.

use core::{fmt, str::FromStr};

use crate::RawLock;

/// Hands the list to the macro `$then`, a line a system: its family, its name in code and in
/// tables, its type, what it needs, what it is, and the document it comes from.
///
/// This is the one place where a new system is entered. A program that can run them matches on
/// the family.
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
                "whoever is fastest: what guests fall back to that know they are guests, without PV",
                LaterKernels;
            Spinlock Preemptable "preemptable-ticket" $crate::PreemptableTicketLock: Nothing,
                "tickets are advice: a waiter jumps in when those before it do not come",
                PreemptableTicketlocks;
            Spinlock PvPreemptable "pv-preemptable-ticket" $crate::PvPreemptableTicketLock: Halts,
                "the same, with waiters that halt", PreemptableTicketlocks;
            Spinlock Queued "queued" $crate::QueuedLock: Nothing,
                "MCS queue in front of a word of four bytes: each waits at a node of its own",
                LaterKernels;
            Spinlock PvQueued "pv-queued" $crate::PvQueuedLock: Halts,
                "queued, waiters halt, and newcomers may steal while the head does not run",
                LaterKernels;
        }
    };
}

/// What systems can be compared with each other: they do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A [`RawLock`](crate::RawLock).
    Spinlock,
}

/// What a system needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A processor.
    Nothing,
    /// Halts and kicks.
    Halts,
}

/// Where a system comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// The series "Paravirtualized ticketlocks" for Linux, 2012.
    PvTicketlocks,
    /// Ouyang and Lange, "Preemptable Ticket Spinlocks", VEE 2013.
    PreemptableTicketlocks,
    /// What Linux runs since 4.2: queued spinlocks, and their PV form.
    LaterKernels,
}

impl Family {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spinlock => "spinlock",
        }
    }
}

impl Needs {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Halts => "halts and kicks",
        }
    }
}

impl Seed {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PvTicketlocks => "PV ticketlocks, Linux 2012",
            Self::PreemptableTicketlocks => "Preemptable Ticket Spinlocks, VEE 2013",
            Self::LaterKernels => "Linux since 4.2",
        }
    }
}

/// Not the name of a [`System`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSystem;

impl fmt::Display for UnknownSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of")?;
        System::ALL.iter().try_for_each(|system| write!(f, " {}", system.name()))
    }
}

impl core::error::Error for UnknownSystem {}

macro_rules! most_cpus {
    (Spinlock $lock:ty) => {
        <$lock as RawLock>::CPUS
    };
}

macro_rules! is_fifo {
    (Spinlock $lock:ty) => {
        <$lock as RawLock>::FIFO
    };
}

macro_rules! define {
    ($($family:ident $system:ident $name:literal $lock:ty: $needs:ident, $about:literal, $seed:ident;)*) => {
        /// A system of this library. As a number it is its place in the list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum System {
            $(#[doc = $about] $system,)*
        }

        impl System {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$system),*];

            /// Its name on the command line and in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$system => $name,)* }
            }

            /// What it is, in a line.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$system => $about,)* }
            }

            /// What it can be compared with.
            pub const fn family(self) -> Family {
                match self { $(Self::$system => Family::$family,)* }
            }

            /// What it needs of the machine.
            pub const fn needs(self) -> Needs {
                match self { $(Self::$system => Needs::$needs,)* }
            }

            /// vCPUs that it can count, as far as machines have so many.
            pub const fn most_cpus(self) -> u32 {
                match self { $(Self::$system => most_cpus!($family $lock),)* }
            }

            /// What it promises of the order in which it serves.
            pub const fn is_fifo(self) -> bool {
                match self { $(Self::$system => is_fifo!($family $lock),)* }
            }

            /// Where it comes from.
            pub const fn seed(self) -> Seed {
                match self { $(Self::$system => Seed::$seed,)* }
            }
        }
    };
}

systems!(define);

impl System {
    /// What the others of its family are compared with: the first of them in the list.
    pub fn baseline(self) -> Self {
        let first = Self::ALL.iter().find(|other| other.family() == self.family());
        first.copied().unwrap_or(self)
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
        Self::ALL.iter().copied().find(|system| system.name() == name).ok_or(UnknownSystem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_are_all_different() {
        for system in System::ALL {
            assert_eq!(system.name().parse(), Ok(*system));
        }
        assert_eq!("ticke".parse::<System>(), Err(UnknownSystem));
    }

    #[test]
    fn numbers_are_places_in_the_list() {
        assert!(System::ALL.iter().enumerate().all(|(place, system)| *system as usize == place));
        assert_eq!(System::PvTicket.baseline(), System::NativeTicket);
    }
}
