//! The guest kernels that `pvticket setup` builds: which Linux, and with whose spinlocks.

use serde::{Deserialize, Serialize};

use crate::names;

/// The Linux that a guest kernel is built from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GuestKernel {
    /// Debian 12's own, 6.1.
    Linux6_1,
    /// The 6.12 that Debian 12 has as well, and Debian 13 of its own: the usual one.
    #[default]
    Linux6_12,
    /// The newest 7.x in the backports of Debian 13.
    Linux7,
}

/// Whose spinlocks a guest kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// Ticketlocks, native and PV.
    Ticket,
    /// Mainline's spinlocks.
    Stock,
}

names!(
    GuestKernel, "unknown guest kernel '{}': 6.1, 6.12 or 7":
    Linux6_1 "6.1", Linux6_12 "6.12", Linux7 "7"
);

impl GuestKernel {
    /// The kernel of points without a name of it: guests without a kernel, and files that the user named. It is not
    /// the default.
    pub const UNNAMED: Self = Self::Linux6_1;

    /// [`UNNAMED`](Self::UNNAMED), for serde.
    pub const fn unnamed() -> Self {
        Self::UNNAMED
    }

    /// Does a store leave out its name?
    pub fn is_unnamed(&self) -> bool {
        *self == Self::UNNAMED
    }

    /// The part of `pvticket setup` that builds it.
    pub const fn setup_part(self, flavour: Flavour) -> &'static str {
        match (self, flavour) {
            (Self::Linux6_1, Flavour::Ticket) => "kernel-6.1",
            (Self::Linux6_1, Flavour::Stock) => "kernel-stock-6.1",
            (Self::Linux6_12, Flavour::Ticket) => "kernel",
            (Self::Linux6_12, Flavour::Stock) => "kernel-stock",
            (Self::Linux7, Flavour::Ticket) => "kernel-7",
            (Self::Linux7, Flavour::Stock) => "kernel-stock-7",
        }
    }

    /// Its ELF `vmlinux` in the cache directory. Each name has its version: caches of earlier versions have another Linux
    /// behind names without one.
    pub const fn file(self, flavour: Flavour) -> &'static str {
        match (self, flavour) {
            (Self::Linux6_1, Flavour::Ticket) => "kernel/pvticket-6.1/vmlinux",
            (Self::Linux6_1, Flavour::Stock) => "kernel/stock-pvqspinlock-6.1/vmlinux",
            (Self::Linux6_12, Flavour::Ticket) => "kernel/pvticket-6.12/vmlinux",
            (Self::Linux6_12, Flavour::Stock) => "kernel/stock-pvqspinlock-6.12/vmlinux",
            (Self::Linux7, Flavour::Ticket) => "kernel/pvticket-7/vmlinux",
            (Self::Linux7, Flavour::Stock) => "kernel/stock-pvqspinlock-7/vmlinux",
        }
    }
}

impl Flavour {
    /// Name for the script that builds it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ticket => "pvticket",
            Self::Stock => "stock-pvqspinlock",
        }
    }

    /// Name in messages.
    pub const fn of_locks(self) -> &'static str {
        match self {
            Self::Ticket => "PV ticketlocks",
            Self::Stock => "stock spinlocks",
        }
    }

    /// The option that names another file for it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Ticket => "--kernel",
            Self::Stock => "--stock-kernel",
        }
    }
}
