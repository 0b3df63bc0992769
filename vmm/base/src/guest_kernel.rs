//! Guest kernels built by `pvticket setup`: their Linux version and their spinlocks.

use serde::{Deserialize, Serialize};

use crate::names;

/// Linux version of a guest kernel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GuestKernel {
    /// 6.1, the kernel of Debian 12.
    Linux6_1,
    /// 6.12, the kernel of Debian 13, also available in Debian 12. The default.
    #[default]
    Linux6_12,
    /// The newest 7.x in the backports of Debian 13.
    Linux7,
}

/// Spinlocks of a guest kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// Ticketlocks, native and PV.
    Ticket,
    /// Mainline's own spinlocks.
    Stock,
}

names!(
    GuestKernel, "unknown guest kernel '{}': 6.1, 6.12 or 7":
    Linux6_1 "6.1", Linux6_12 "6.12", Linux7 "7"
);

impl GuestKernel {
    /// The value for points that name no kernel: guests without a kernel, and kernel files named by the user.
    /// It is not the default.
    pub const UNNAMED: Self = Self::Linux6_1;

    /// [`UNNAMED`](Self::UNNAMED), for serde.
    pub const fn unnamed() -> Self {
        Self::UNNAMED
    }

    /// Whether stores omit the kernel's name.
    pub fn is_unnamed(&self) -> bool {
        *self == Self::UNNAMED
    }

    /// Returns the part of `pvticket setup` that builds the kernel.
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

    /// Returns the path of the ELF `vmlinux` in the cache directory. Each path has a version: in the caches
    /// of earlier versions of pvticket, paths without a version may refer to a different Linux.
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
    /// Name used by the build script.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ticket => "pvticket",
            Self::Stock => "stock-pvqspinlock",
        }
    }

    /// Name in messages.
    pub const fn locks(self) -> &'static str {
        match self {
            Self::Ticket => "PV ticketlocks",
            Self::Stock => "stock spinlocks",
        }
    }

    /// The option that selects another kernel file.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Ticket => "--kernel",
            Self::Stock => "--stock-kernel",
        }
    }
}
