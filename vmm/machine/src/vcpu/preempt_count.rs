//! Where a Linux guest's kernel says whether it may be preempted.

use serde::{Deserialize, Serialize};

/// Where a kernel has its preemption count, relative to the base of GS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptCount {
    /// At this offset: per-CPU symbols count from zero up to Linux 6.14.
    Offset(u64),
    /// At this address of the image, which may have been moved (KASLR) by as much as its system call entry was: the base of
    /// GS is the distance from the image to the CPU's area since Linux 6.15.
    InImage {
        /// Of the count.
        address: u64,
        /// Of `entry_SYSCALL_64`.
        entry: u64,
    },
}

impl PreemptCount {
    /// Relative to the base of GS, of a CPU that enters its kernel at `entry` (None: that is not set yet).
    pub fn offset(self, entry: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self {
            Self::Offset(offset) => Some(offset),
            Self::InImage { address, entry: linked } => {
                Some(address.wrapping_add(entry()?.wrapping_sub(linked)))
            }
        }
    }
}
