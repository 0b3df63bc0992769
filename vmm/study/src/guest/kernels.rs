//! The systems of the lock library that Linux kernels implement: which kernel a guest boots for
//! one, with which parameters, and how the kernel reports the locks it chose.

use std::path::{Path, PathBuf};

use locks::System;

use base::backend::PvBackend;

/// The kinds of guest kernel, by the command that builds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `pvticket setup kernel`: ticketlocks, native and PV.
    Ticket,
    /// `pvticket setup kernel-stock`: mainline's spinlocks.
    Stock,
}

/// The available kernels, as ELF `vmlinux` or bzImage.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// A kernel with ticketlocks.
    pub ticket: Option<PathBuf>,
    /// A kernel with mainline's spinlocks.
    pub stock: Option<PathBuf>,
}

impl Kernels {
    /// The kernel of that flavour, if it is available.
    pub fn file(&self, flavour: Flavour) -> Option<&Path> {
        match flavour {
            Flavour::Ticket => self.ticket.as_deref(),
            Flavour::Stock => self.stock.as_deref(),
        }
    }
}

/// The kernel that implements this system; None: none of our kernels does.
pub const fn flavour(system: System) -> Option<Flavour> {
    match system {
        System::NativeTicket | System::PvTicket => Some(Flavour::Ticket),
        System::TestAndSet | System::Queued | System::PvQueued => Some(Flavour::Stock),
        _ => None,
    }
}

/// The systems that a kernel of ours implements.
pub fn systems() -> Vec<System> {
    System::ALL.iter().copied().filter(|system| flavour(*system).is_some()).collect()
}

/// Kernel parameters that select this system. Mainline chooses by what KVM offers
/// (`kvm_spinlock_init`): with its kick, spinlocks are PV unless `nopvspin` is given.
pub const fn parameters(system: System, backend: PvBackend) -> &'static str {
    match system {
        System::NativeTicket | System::PvTicket => backend.kernel_parameters(),
        System::Queued => "nopvspin",
        _ => "",
    }
}

/// Whether to offer KVM's kick: without it, a mainline guest falls back to test-and-set.
pub const fn has_kvm_kick(system: System) -> bool {
    !matches!(system, System::TestAndSet)
}

/// The only backend of this system in a Linux guest, if there is just one.
pub const fn only_backend(system: System) -> Option<PvBackend> {
    match system {
        System::PvQueued => Some(PvBackend::Kvm),
        _ => None,
    }
}

/// Whether a guest with this many CPUs may be asked for this system. With one CPU, mainline turns PV spinlocks off
/// (`kvm_spinlock_init`); test-and-set is not offered there either.
pub const fn works_with(system: System, vcpus: u32) -> bool {
    vcpus > 1 || !matches!(system, System::PvQueued | System::TestAndSet)
}

/// The system that a kernel chose, if this is the line of its log that reports it.
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
    fn systems_are_those_that_a_kernel_implements() {
        use System::{NativeTicket, PvQueued, PvTicket, Queued, TestAndSet};
        assert_eq!(systems(), [NativeTicket, PvTicket, TestAndSet, Queued, PvQueued]);
    }

    #[test]
    fn a_line_of_the_kernels_log_names_the_chosen_system() {
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
