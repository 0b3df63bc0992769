//! Counts of a vCPU's actions, written only by its own thread.

use std::{
    ops,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

use crate::units::VcpuId;

/// The waiting times of a payload's vCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitCounts {
    /// Histogram of the waits in TSC ticks: a count per bucket of [`hypercalls::histogram`].
    pub counts: Vec<u64>,
    /// vCPUs that are still waiting, each with the TSC at the start of its wait.
    pub pending: Vec<(VcpuId, u64)>,
}

/// Implements sums, which saturate because counts read from a store may have any value, and differences, whose
/// subtrahend must be an earlier reading.
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
        /// Counters of one vCPU, aligned so that vCPUs share no cache lines. The owner writes; others only
        /// read.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $counters {
            $($(#[$doc])* pub $name: SingleWriterCounter,)*
        }

        /// Counts of one vCPU or summed over several: a reading, or the difference of two.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Reads the counters one after another.
            pub fn read(&self) -> $counts {
                $counts { $($name: self.$name.get(),)* }
            }
        }

        sums!($counts: $($name),*);
    };
}

counters! {
    VcpuCounters, Counts:
    /// VM exits.
    exits,
    /// `lock_spinning` calls.
    lock_spinning,
    /// `lock_spinning` calls that slept because no kick was pending.
    parked,
    /// `unlock_kick` calls.
    unlock_kick,
    /// `unlock_kick` calls that woke a vCPU parked in user space.
    woke_parked,
    /// `unlock_kick` calls that left a pending kick.
    left_pending,
    /// `unlock_kick` calls that merged with a pending kick.
    coalesced,
    /// MSIs sent because the target was not parked in user space.
    kick_msi,
    /// Kicks of a nonexistent vCPU.
    unknown_target,
    /// Accesses with a wrong width, or to an undefined port of the contract.
    misuse,
}

counters! {
    FaultCounters, FaultCounts:
    /// Kicks that were not delivered.
    dropped,
    /// Kicks that were delivered late.
    delayed,
    /// Kicks that should have been delayed but were delivered at once because too many were in flight.
    not_delayed,
    /// Kicks that were delivered twice.
    duplicated,
    /// Halts that returned at once without a kick, and vCPUs woken in addition to the target of a kick.
    spurious,
    /// Halts that began late.
    halts_delayed,
}

/// The VMM's counts of one or several machines, read together so that they cover the same window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MachineCounts {
    /// Sum over all vCPUs.
    pub vcpus: Counts,
    /// Counts of injected faults; None without fault injection.
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
    /// Adds one. Called only by the owner: without another writer, a plain load and store suffice.
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the value. Any thread may call it.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
