//! The parts: description, scripts and files of each.

use anyhow::Context;
use clap::ValueEnum;

use super::script::Script;
use base::guest_kernel::{Flavour, GuestKernel};
use emulated::Parts;
use os::artifacts::{self, GUEST_DISK};
use study::point::HostKernel;

/// Something in the cache that guests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CachePart {
    /// Static busybox for guests
    Busybox,
    /// Kernel and QEMU of the emulated host
    Host,
    /// Kernel and QEMU of the emulated host, newest 7.x of Debian's backports (--host-kernel 7)
    #[value(name = "host-7")]
    Host7,
    /// Guest kernel with PV ticketlocks, Linux 6.12: compiled from Debian's source, some minutes
    #[value(alias = "kernel-6.12")]
    Kernel,
    /// Guest kernel with mainline's spinlocks, Linux 6.12, for comparisons: compiled, too
    #[value(alias = "kernel-stock-6.12")]
    KernelStock,
    /// Guest kernel with PV ticketlocks, Linux 6.1 (--guest-kernel 6.1)
    #[value(name = "kernel-6.1")]
    Kernel6_1,
    /// Guest kernel with mainline's spinlocks, Linux 6.1
    #[value(name = "kernel-stock-6.1")]
    KernelStock6_1,
    /// Guest kernel with PV ticketlocks, newest 7.x of Debian's backports (--guest-kernel 7)
    #[value(name = "kernel-7")]
    Kernel7,
    /// Guest kernel with mainline's spinlocks, newest 7.x
    #[value(name = "kernel-stock-7")]
    KernelStock7,
    /// PostgreSQL for the workload pgbench
    GuestDisk,
}

use CachePart::{
    Busybox, GuestDisk, Host, Host7, Kernel, Kernel6_1, Kernel7, KernelStock, KernelStock6_1,
    KernelStock7,
};

impl CachePart {
    /// The parts that `boot` and `compare` need. The slowest is last.
    pub(super) const DEFAULT: [Self; 3] = [Busybox, Host, Kernel];

    /// The part's name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn description(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
        help.map(|help| help.to_string()).unwrap_or_default()
    }

    pub(super) fn row(self) -> [String; 3] {
        let state = if self.check().is_ok() { "present" } else { "missing" };
        [self.name(), state.to_owned(), self.description()]
    }

    const fn guest_kernel(self) -> Option<(GuestKernel, Flavour)> {
        use GuestKernel::{Linux6_1, Linux6_12, Linux7};
        Some(match self {
            Kernel => (Linux6_12, Flavour::Ticket),
            KernelStock => (Linux6_12, Flavour::Stock),
            Kernel6_1 => (Linux6_1, Flavour::Ticket),
            KernelStock6_1 => (Linux6_1, Flavour::Stock),
            Kernel7 => (Linux7, Flavour::Ticket),
            KernelStock7 => (Linux7, Flavour::Stock),
            Busybox | Host | Host7 | GuestDisk => return None,
        })
    }

    /// The scripts that provide the part, in order.
    pub(super) fn scripts(self) -> Vec<Script> {
        if let Some((kernel, flavour)) = self.guest_kernel() {
            let build = Script::new("bash", "guest-kernel-config/linux/build.sh");
            return vec![build.env("FLAVOUR", flavour.name()).env("KERNEL", kernel.name())];
        }
        let host = |kernel: HostKernel| {
            let fetch = Script::new("sh", "guest-kernel-config/host/fetch.sh");
            vec![
                fetch.env("HOST_KERNEL", kernel.name()),
                Script::new("sh", "guest-kernel-config/host/qemu.sh"),
            ]
        };
        match self {
            Host => host(HostKernel::Linux6_1),
            Host7 => host(HostKernel::Linux7),
            GuestDisk => vec![Script::new("sh", "guest-kernel-config/postgres/fetch.sh")],
            _ => vec![Script::new("sh", "guest-kernel-config/setup.sh").argument("--busybox")],
        }
    }

    /// The part's files in the cache. Not every system has all files of the emulated host.
    pub(super) fn files(self) -> Vec<String> {
        const QEMU: &str = "qemu/current/bin/qemu-system-x86_64";
        if let Some((kernel, flavour)) = self.guest_kernel() {
            return vec![kernel.file(flavour)];
        }
        let files: &[&str] = match self {
            Host => &["host/current/vmlinux", "host/current/vmlinuz", QEMU],
            Host7 => &["host-7/current/vmlinux", "host-7/current/vmlinuz", QEMU],
            GuestDisk => &[GUEST_DISK],
            _ => &["busybox/busybox"],
        };
        files.iter().map(ToString::to_string).collect()
    }

    /// The cache folders that its scripts use.
    pub(super) fn folders(self) -> &'static [&'static str] {
        match self {
            Busybox => &["busybox"],
            Host => &["host", "qemu"],
            Host7 => &["host-7", "qemu"],
            GuestDisk => &["guest-disk"],
            _ => &["kernel", "source"],
        }
    }

    /// Fails if the part or a dependency is missing.
    pub(super) fn check(self) -> anyhow::Result<()> {
        let pieces = |kernel| Parts::find(kernel).map(drop).context("not usable");
        if let Some((kernel, flavour)) = self.guest_kernel() {
            return Ok(artifacts::guest_kernel(kernel, flavour).map(drop)?);
        }
        match self {
            Host => pieces(HostKernel::Linux6_1),
            Host7 => pieces(HostKernel::Linux7),
            GuestDisk => Ok(artifacts::guest_disk().map(drop)?),
            _ => Ok(artifacts::busybox().map(drop)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guest_kernel_is_a_part() {
        for kernel in GuestKernel::ALL {
            for flavour in [Flavour::Ticket, Flavour::Stock] {
                let matches = |part: &CachePart| part.guest_kernel() == Some((kernel, flavour));
                let part = CachePart::value_variants().iter().copied().find(matches).unwrap();
                assert_eq!(part.name(), kernel.setup_part(flavour));
            }
        }
    }

    /// These were the names while another Linux version was the default.
    #[test]
    fn default_kernels_have_version_aliases() {
        for (name, part) in [("kernel-6.12", Kernel), ("kernel-stock-6.12", KernelStock)] {
            assert_eq!(CachePart::from_str(name, false), Ok(part));
        }
    }
}
