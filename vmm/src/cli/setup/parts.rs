//! The parts: what each is for, which scripts provide it, and which files it is.

use anyhow::Context;
use clap::ValueEnum;

use super::script::Script;
use emulated::Pieces;
use os::artifacts::{self, GUEST_DISK, KERNEL, STOCK_KERNEL};
use study::point::HostKernel;

/// Something in the cache that guests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CachePart {
    /// A static busybox for the guest
    Busybox,
    /// Kernel and QEMU of the emulated host
    Host,
    /// The same with the newest 7.x of Debian's backports (--host-kernel 7)
    #[value(name = "host-7")]
    Host7,
    /// The guest kernel with PV ticketlocks: compiled from Debian's source, some minutes
    Kernel,
    /// The guest kernel with mainline's spinlocks, to compare with: compiled as well
    KernelStock,
    /// PostgreSQL for pgbench-table
    GuestDisk,
}

use CachePart::{Busybox, GuestDisk, Host, Host7, Kernel, KernelStock};

impl CachePart {
    pub(super) const ALL: [Self; 6] = [Busybox, Host, Host7, Kernel, KernelStock, GuestDisk];

    /// What `boot` and `compare` need. The longest is the last.
    pub(super) const DEFAULT: [Self; 3] = [Busybox, Host, Kernel];

    /// The part's name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What it is for.
    pub(super) fn what(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
        help.map(|help| help.to_string()).unwrap_or_default()
    }

    /// The part's line of the list.
    pub(super) fn line(self) -> String {
        let state = if self.check().is_ok() { "there" } else { "not there" };
        format!("{:<13} {state:<10} {}\n", self.name(), self.what())
    }

    /// The scripts that provide it, in order.
    pub(super) fn scripts(self) -> Vec<Script> {
        const FETCH: &str = "guest-kernel-config/host/fetch.sh";
        let host = |kernel| {
            vec![
                Script::new("sh", FETCH).with("HOST_KERNEL", kernel),
                Script::new("sh", "guest-kernel-config/host/qemu.sh"),
            ]
        };
        let kernel = |flavour| {
            vec![Script::new("bash", "guest-kernel-config/linux/build.sh").with("FLAVOUR", flavour)]
        };
        match self {
            Busybox => {
                vec![Script::new("sh", "guest-kernel-config/setup.sh").argument("--busybox")]
            }
            Host => host("6.1"),
            Host7 => host("7"),
            Kernel => kernel("pvticket"),
            KernelStock => kernel("stock-pvqspinlock"),
            GuestDisk => vec![Script::new("sh", "guest-kernel-config/postgres/fetch.sh")],
        }
    }

    /// The part's files in the cache; of the host's not all are on every system.
    pub(super) const fn files(self) -> &'static [&'static str] {
        const QEMU: &str = "qemu/current/bin/qemu-system-x86_64";
        match self {
            Busybox => &["busybox/busybox"],
            Host => &["host/current/vmlinux", "host/current/vmlinuz", QEMU],
            Host7 => &["host-7/current/vmlinux", "host-7/current/vmlinuz", QEMU],
            Kernel => &[KERNEL],
            KernelStock => &[STOCK_KERNEL],
            GuestDisk => &[GUEST_DISK],
        }
    }

    /// Is it there, with all that is needed to use it?
    pub(super) fn check(self) -> anyhow::Result<()> {
        let pieces = |kernel| Pieces::find(kernel).map(drop).context("not usable yet");
        match self {
            Busybox => drop(artifacts::busybox()?),
            Host => pieces(HostKernel::Linux6_1)?,
            Host7 => pieces(HostKernel::Linux7)?,
            Kernel => drop(artifacts::built_kernel()?),
            KernelStock => drop(artifacts::stock_kernel()?),
            GuestDisk => drop(artifacts::guest_disk()?),
        }
        Ok(())
    }
}
