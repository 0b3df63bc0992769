//! What a Linux guest does while it is measured.

use clap::ValueEnum;

/// What a Linux guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GuestWorkload {
    /// A kernel thread a vCPU takes and releases one spin_lock
    Lock,
    /// 16 processes map and unmap 128 MiB
    Mmap,
    /// A thread a vCPU opens, reads and closes one file
    OpenReadClose,
    /// A thread a vCPU maps, fills, searches and unmaps memory (like ebizzy)
    Allocate,
    /// 10 threads send messages to each of 10 others (like hackbench)
    Messaging,
    /// A thread a vCPU starts processes and pipes data through them (like make)
    Spawn,
    /// A thread a vCPU takes and releases one mutex of user space
    Futex,
}

impl GuestWorkload {
    /// Its name for `bench` in the guest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Mmap => "mmap",
            Self::OpenReadClose => "open-read-close",
            Self::Allocate => "allocate",
            Self::Messaging => "messaging",
            Self::Spawn => "spawn",
            Self::Futex => "futex",
        }
    }

    /// Does one worker on each vCPU count its operations? Otherwise the counts are of so many workers as it has
    /// anyway, wherever they run.
    pub const fn is_by_vcpu(self) -> bool {
        match self {
            Self::Lock | Self::OpenReadClose | Self::Allocate | Self::Spawn | Self::Futex => true,
            Self::Mmap | Self::Messaging => false,
        }
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|workload| workload.name() == name)
    }
}
