//! Counts of a vCPU's actions, written by its own thread alone.

use std::{
    ops,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

use crate::units::VcpuId;

/// The waiting times of a payload's vCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitCounts {
    /// Histogram of the waits: a count per bucket of [`hypercalls::histogram`].
    pub counts: Vec<u64>,
    /// vCPUs that are still waiting, each with its TSC when the wait began.
    pub open: Vec<(VcpuId, u64)>,
}

/// Gives counts a sum, which stops at the largest number as the counts of a store may be anything, and a difference.
#[macro_export]
macro_rules! sums {
    ($counts:ident: $($field:ident),+) => {
        impl std::ops::AddAssign for $counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }
        }

        impl std::ops::Add for $counts {
            type Output = Self;

            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl std::ops::Sub for $counts {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)+ }
            }
        }
    };
}

macro_rules! counters {
    ($counters:ident, $counts:ident: $($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One vCPU's counters, aligned so that vCPUs share no cache lines: the owner writes,
        /// others only read.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $counters {
            $($(#[$doc])* pub $name: SingleWriterCounter,)*
        }

        /// The values at one moment, of one vCPU or summed over several.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Reads all counters.
            pub fn read(&self) -> $counts {
                $counts { $($name: self.$name.get(),)* }
            }
        }

        sums!($counts: $($name),*);
    };
}

counters! {
    VcpuCounters, Counts:
    /// Exits from the guest.
    exits,
    /// `lock_spinning` calls.
    lock_spinning,
    /// The part of `lock_spinning` that slept: no kick was pending.
    parked,
    /// `unlock_kick` calls.
    unlock_kick,
    /// The part of `unlock_kick` that woke a vCPU parked in user space.
    woke_parked,
    /// The part of `unlock_kick` that left a pending kick.
    left_pending,
    /// The part of `unlock_kick` that merged with a pending kick.
    coalesced,
    /// MSIs sent because the target was not parked in user space.
    kick_msi,
    /// Kicks to a vCPU that does not exist.
    unknown_target,
    /// Accesses of a wrong width, or to an undefined port of the range.
    misuse,
}

counters! {
    FaultCounters, FaultCounts:
    /// Kicks that were not delivered.
    dropped,
    /// Kicks that were delivered late.
    delayed,
    /// Kicks that were to be delivered late but were delivered at once: too many were on their way.
    not_delayed,
    /// Kicks that were delivered twice.
    duplicated,
    /// Halts that returned at once without a kick, and vCPUs that were woken in addition to the one
    /// that was kicked.
    spurious,
    /// Halts that began late.
    halts_delayed,
}

/// What a VMM counts of one machine, or of several: read together, so that all figures are of the
/// same window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MachineCounts {
    /// Sum over all vCPUs.
    pub vcpus: Counts,
    /// Injected faults, if any were asked for.
    pub faults: Option<FaultCounts>,
}

impl ops::Sub for MachineCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            vcpus: self.vcpus - before.vcpus,
            faults: self.faults.map(|faults| faults - before.faults.unwrap_or_default()),
        }
    }
}

impl ops::AddAssign for MachineCounts {
    fn add_assign(&mut self, other: Self) {
        self.vcpus += other.vcpus;
        if let Some(faults) = other.faults {
            *self.faults.get_or_insert_default() += faults;
        }
    }
}

/// Adds up the counts of several vCPUs.
pub fn sum(counts: &[Counts]) -> Counts {
    counts.iter().fold(Counts::default(), |mut total, counts| {
        total += *counts;
        total
    })
}

/// A counter with a single writer.
#[derive(Debug, Default)]
pub struct SingleWriterCounter(AtomicU64);

impl SingleWriterCounter {
    /// Owner: adds one. A plain load and store: there is no other writer.
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Any thread: the value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
