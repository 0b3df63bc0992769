//! Guest kernels: their Linux version and their spinlocks.

use serde::{Deserialize, Serialize};

use crate::{label::Label, names_or_own};

/// Linux version of a guest kernel built by `pvticket setup`, or the name of another kernel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GuestKernel {
    /// 6.1, the kernel of Debian 12.
    Linux6_1,
    /// 6.12, the kernel of Debian 13, also available in Debian 12. The default.
    #[default]
    Linux6_12,
    /// The newest 7.x in the backports of Debian 13.
    Linux7,
    /// A file of the user.
    Own(Label),
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

names_or_own!(GuestKernel: Linux6_1 "6.1", Linux6_12 "6.12", Linux7 "7");

impl GuestKernel {
    /// The value for points that name no kernel: guests without a kernel, and kernel files in stores of
    /// older versions. It is not the default.
    pub const UNNAMED: Self = Self::Linux6_1;

    /// [`UNNAMED`](Self::UNNAMED), for serde.
    pub const fn unnamed() -> Self {
        Self::UNNAMED
    }

    /// Whether stores omit the kernel's name.
    pub fn is_unnamed(&self) -> bool {
        *self == Self::UNNAMED
    }

    /// Whether it is a file of the user, with any spinlock.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Returns the part of `pvticket setup` that builds the kernel.
    pub fn setup_part(self, flavour: Flavour) -> String {
        let stock = if flavour == Flavour::Stock { "-stock" } else { "" };
        if self == Self::default() {
            format!("kernel{stock}")
        } else {
            format!("kernel{stock}-{self}")
        }
    }

    /// Returns the path of the ELF `vmlinux` in the cache directory. Each path has a version: in the caches
    /// of earlier versions of pvticket, paths without a version may refer to a different Linux.
    pub fn file(self, flavour: Flavour) -> String {
        format!("kernel/{}-{self}/vmlinux", flavour.name())
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
}
