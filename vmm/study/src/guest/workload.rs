//! What a Linux guest does while it is measured.

/// What a Linux guest does; [`GuestWorkload::about`] says it in words.
#[allow(missing_docs, reason = "the words say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestWorkload {
    Lock,
    Mmap,
    OpenReadClose,
    Allocate,
    Messaging,
    Spawn,
    Futex,
    Eventfd,
}

impl GuestWorkload {
    /// All workloads.
    pub const ALL: [Self; 8] = [
        Self::Lock,
        Self::Mmap,
        Self::OpenReadClose,
        Self::Allocate,
        Self::Messaging,
        Self::Spawn,
        Self::Futex,
        Self::Eventfd,
    ];

    /// A sentence for help texts.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lock => "A kernel thread per vCPU takes and releases one spin_lock",
            Self::Mmap => "16 processes map and unmap 128 MiB each",
            Self::OpenReadClose => "A thread per vCPU opens, reads and closes one file",
            Self::Allocate => {
                "A thread per vCPU maps, fills, searches and unmaps memory (like ebizzy)"
            }
            Self::Messaging => "10 threads send messages to each of 10 others (like hackbench)",
            Self::Spawn => {
                "A thread per vCPU starts processes and pipes data through them (like make)"
            }
            Self::Futex => "A thread per vCPU takes and releases one user-space mutex",
            Self::Eventfd => "A thread per vCPU adds to one eventfd, under its spinlock",
        }
    }

    /// Name for `bench` in the guest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Mmap => "mmap",
            Self::OpenReadClose => "open-read-close",
            Self::Allocate => "allocate",
            Self::Messaging => "messaging",
            Self::Spawn => "spawn",
            Self::Futex => "futex",
            Self::Eventfd => "eventfd",
        }
    }

    /// Are there as many workers as vCPUs, of which each counts its operations? Otherwise the number of workers is
    /// the workload's own.
    pub const fn is_by_vcpu(self) -> bool {
        match self {
            Self::Lock
            | Self::OpenReadClose
            | Self::Allocate
            | Self::Spawn
            | Self::Futex
            | Self::Eventfd => true,
            Self::Mmap | Self::Messaging => false,
        }
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }
}
