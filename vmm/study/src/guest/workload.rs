//! Workloads of Linux guests.

use std::time::Duration;

use super::program::Program;

/// A workload of a Linux guest; [`GuestWorkload::about`] describes it.
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
    Shootdown,
    /// `clients` is None for one client per vCPU. One unit of `scale` is 100 000 rows.
    Pgbench {
        clients: Option<u32>,
        scale: u32,
    },
    /// A [`Program`] of the user.
    Program,
}

/// Maximum number of pgbench clients.
const MAX_CLIENTS: u32 = 1000;
/// Maximum scale of the database.
const MAX_SCALE: u32 = 10_000;

impl GuestWorkload {
    /// All workloads of ours, with their default sizes.
    pub const ALL: [Self; 10] = [
        Self::Lock,
        Self::Mmap,
        Self::OpenReadClose,
        Self::Allocate,
        Self::Messaging,
        Self::Spawn,
        Self::Futex,
        Self::Eventfd,
        Self::Shootdown,
        Self::Pgbench { clients: None, scale: 1 },
    ];

    /// Returns a sentence for help texts.
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
            Self::Shootdown => "A thread per vCPU changes touched pages: TLB shootdowns",
            Self::Pgbench { .. } => {
                "A client per vCPU selects rows from PostgreSQL (pvticket setup guest-disk)"
            }
            Self::Program => "A program of the user",
        }
    }

    /// Returns the name for `bench` in the guest.
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
            Self::Shootdown => "shootdown",
            Self::Pgbench { .. } => "pgbench",
            Self::Program => "program",
        }
    }

    /// Whether there are as many workers as vCPUs, each of which counts its operations. Otherwise, the
    /// workload determines the number of workers.
    pub const fn is_by_vcpu(self) -> bool {
        match self {
            Self::Lock
            | Self::OpenReadClose
            | Self::Allocate
            | Self::Spawn
            | Self::Futex
            | Self::Eventfd
            | Self::Shootdown => true,
            Self::Mmap | Self::Messaging | Self::Pgbench { .. } | Self::Program => false,
        }
    }

    /// Returns the window for a requested length. pgbench counts whole seconds: the length is rounded up.
    pub fn window(self, requested: Duration) -> Duration {
        match self {
            Self::Pgbench { .. } => Duration::from_secs_f64(requested.as_secs_f64().ceil()),
            _ => requested,
        }
    }

    /// Whether the guest needs the disk of `pvticket setup guest-disk`.
    pub const fn needs_guest_disk(self) -> bool {
        matches!(self, Self::Pgbench { .. })
    }

    /// Returns the workload with this name; `pgbench:64/10` has 64 clients and a database of scale 10, and a
    /// name with a directory is a [`Program`].
    pub fn from_name(text: &str) -> Option<Self> {
        if Program::parse(text).is_some() {
            return Some(Self::Program);
        }
        let mut plain = Self::ALL.into_iter();
        plain.find(|workload| workload.name() == text).or_else(|| {
            let size = text.strip_prefix("pgbench:")?;
            let (clients, scale) = size.split_once('/').unwrap_or((size, "1"));
            let number =
                |text: &str, max| text.parse().ok().filter(|number| (1..=max).contains(number));
            let clients = Some(number(clients, MAX_CLIENTS)?);
            Some(Self::Pgbench { clients, scale: number(scale, MAX_SCALE)? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_clients_and_scale_of_pgbench() {
        let sized = |clients, scale| Some(GuestWorkload::Pgbench { clients: Some(clients), scale });
        assert_eq!(GuestWorkload::from_name("pgbench:64/10"), sized(64, 10));
        assert_eq!(GuestWorkload::from_name("pgbench:8"), sized(8, 1));
        let windows = [0.8, 1.0, 2.1].map(Duration::from_secs_f64);
        let pgbench = GuestWorkload::from_name("pgbench").unwrap();
        let rounded = windows.map(|window| pgbench.window(window));
        assert_eq!(rounded, [1, 1, 3].map(Duration::from_secs));
        for invalid in
            ["pgbench:", "pgbench:0", "pgbench:1001", "pgbench:8/", "pgbench:8/0", "mmap:8"]
        {
            assert_eq!(GuestWorkload::from_name(invalid), None, "{invalid}");
        }
    }
}
