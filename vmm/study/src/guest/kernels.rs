//! Spinlocks of Linux kernels: the kernel that a guest boots for a system, its
//! parameters, and how it reports the locks that it chose.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use locks::System;
use serde::{Deserialize, Serialize};

use base::{
    backend::PvBackend,
    guest_kernel::{Flavour, GuestKernel},
    text,
};

/// Files of the guest kernels that an experiment boots, as ELF `vmlinux` or bzImage.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Kernels {
    files: Vec<KernelFile>,
    /// The guest disk with PostgreSQL, if a workload needs it.
    guest_disk: Option<OsString>,
    /// The archive with the user's programs, if a workload needs it.
    programs: Option<OsString>,
}

/// File of a guest kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelFile {
    /// Name of the kernel.
    #[serde(with = "text")]
    pub kernel: GuestKernel,
    /// Spinlocks of the kernel.
    pub flavour: Flavour,
    /// Paths need not be UTF-8, which serde's `PathBuf` requires.
    file: OsString,
}

impl Kernels {
    /// Returns the file of this kernel, if there is one. A user's file has any flavour.
    pub fn file(&self, kernel: GuestKernel, flavour: Flavour) -> Option<&Path> {
        let matches = |file: &&KernelFile| {
            file.kernel == kernel && (kernel.is_own() || file.flavour == flavour)
        };
        self.iter().find(matches).map(KernelFile::path)
    }

    /// Returns all kernel files.
    pub fn iter(&self) -> impl Iterator<Item = &KernelFile> {
        self.files.iter()
    }

    /// Returns the guest disk.
    pub fn guest_disk(&self) -> Option<&Path> {
        self.guest_disk.as_ref().map(Path::new)
    }

    /// Sets the guest disk.
    pub fn with_guest_disk(self, disk: Option<PathBuf>) -> Self {
        Self { guest_disk: disk.map(Into::into), ..self }
    }

    /// Returns the archive with the user's programs.
    pub fn programs(&self) -> Option<&Path> {
        self.programs.as_ref().map(Path::new)
    }

    /// Sets the archive with the user's programs.
    pub fn with_programs(self, archive: Option<PathBuf>) -> Self {
        Self { programs: archive.map(Into::into), ..self }
    }

    /// Returns the paths of all files, including the guest disk and the programs.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.iter().map(KernelFile::path).chain(self.guest_disk()).chain(self.programs())
    }
}

impl FromIterator<KernelFile> for Kernels {
    fn from_iter<I: IntoIterator<Item = KernelFile>>(files: I) -> Self {
        Self { files: files.into_iter().collect(), ..Self::default() }
    }
}

impl KernelFile {
    /// Assigns a file to this kernel.
    pub fn new(kernel: GuestKernel, flavour: Flavour, file: impl Into<OsString>) -> Self {
        Self { kernel, flavour, file: file.into() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        Path::new(&self.file)
    }
}

/// Returns the kernel that implements this system; None if no kernel of ours does.
pub const fn flavour(system: System) -> Option<Flavour> {
    match system {
        System::NativeTicket | System::PvTicket => Some(Flavour::Ticket),
        System::TestAndSet | System::Queued | System::PvQueued | System::Kernel => {
            Some(Flavour::Stock)
        }
        _ => None,
    }
}

/// Returns the systems that our kernels implement.
pub fn systems() -> Vec<System> {
    System::ALL.iter().copied().filter(|system| flavour(*system).is_some()).collect()
}

/// Kernel parameters that select this system. Mainline chooses by KVM's features (`kvm_spinlock_init`): with
/// KVM_FEATURE_PV_UNHALT, spinlocks are PV unless `nopvspin` is set.
pub const fn parameters(system: System, backend: PvBackend) -> &'static str {
    match system {
        System::NativeTicket | System::PvTicket => backend.kernel_parameters(),
        System::Queued => "nopvspin",
        _ => "",
    }
}

/// Whether to offer KVM_FEATURE_PV_UNHALT. Without it, a mainline guest falls back to test-and-set.
pub const fn has_kvm_kick(system: System) -> bool {
    !matches!(system, System::TestAndSet)
}

/// Returns the backend of this system in a Linux guest, if there is only one.
pub const fn only_backend(system: System) -> Option<PvBackend> {
    match system {
        System::PvQueued | System::Kernel => Some(PvBackend::Kvm),
        _ => None,
    }
}

/// Whether a guest with this many CPUs supports this system. With one CPU, mainline disables PV spinlocks
/// (`kvm_spinlock_init`); test-and-set is not offered there either.
pub const fn works_with(system: System, vcpus: u32) -> bool {
    vcpus > 1 || !matches!(system, System::PvQueued | System::TestAndSet)
}

/// Returns the system that a kernel chose, if this line of its log reports it.
pub fn chosen(line: &str) -> Option<System> {
    const REPORTS: [(&str, System); 7] = [
        ("pvticket: PV ticketlocks on", System::PvTicket),
        ("pvticket: native ticketlocks", System::NativeTicket),
        ("PV spinlocks enabled", System::PvQueued),
        ("PV spinlocks disabled, no host support", System::TestAndSet),
        ("PV spinlocks disabled, forced by \"nopvspin\"", System::Queued),
        ("PV spinlocks disabled, single CPU", System::Queued),
        ("PV spinlocks disabled with KVM_HINTS_REALTIME", System::Queued),
    ];
    REPORTS.iter().find(|(phrase, _)| line.contains(phrase)).map(|(_, system)| *system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_systems_with_a_kernel() {
        use System::{NativeTicket, PvQueued, PvTicket, Queued, TestAndSet};
        assert_eq!(systems(), [NativeTicket, PvTicket, TestAndSet, Queued, PvQueued]);
    }

    #[test]
    fn reads_the_chosen_system_from_the_log() {
        for (line, system) in [
            ("pvticket: PV ticketlocks on, backend doorbell", Some(System::PvTicket)),
            ("pvticket: native ticketlocks (PV off: asked for)", Some(System::NativeTicket)),
            ("kvm-guest: PV spinlocks enabled", Some(System::PvQueued)),
            (
                "kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter",
                Some(System::Queued),
            ),
            ("kvm-guest: PV spinlocks disabled, single CPU", Some(System::Queued)),
            ("kvm-guest: PV spinlocks disabled, no host support", Some(System::TestAndSet)),
            ("kvm-guest: PV spinlocks disabled, the moon is full", None),
            ("pvticket: telemetry on", None),
        ] {
            assert_eq!(chosen(line), system, "{line}");
        }
    }
}
