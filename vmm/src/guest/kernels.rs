//! The systems of the lock library that Linux kernels have: which kernel a guest boots for one,
//! what it is told, and what the kernel must then say of its locks.

use std::path::{Path, PathBuf};

use locks::System;
use serde::Serialize;
use thiserror::Error;

use super::systems::{Systems, all_of};
use crate::vm::PvBackend;

/// The kernels that can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `make kernel`: ticketlocks, native and PV.
    Ticket,
    /// `make kernel-stock`: mainline's spinlocks.
    Stock,
}

/// The kernels at hand, as ELF `vmlinux` or bzImage.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Kernels {
    /// With ticketlocks.
    #[serde(rename = "kernel", skip_serializing_if = "Option::is_none")]
    pub ticket: Option<PathBuf>,
    /// With mainline's spinlocks.
    #[serde(rename = "stock_kernel", skip_serializing_if = "Option::is_none")]
    pub stock: Option<PathBuf>,
}

impl Kernels {
    /// The one of that flavour.
    pub fn of(&self, flavour: Flavour) -> Option<&Path> {
        match flavour {
            Flavour::Ticket => self.ticket.as_deref(),
            Flavour::Stock => self.stock.as_deref(),
        }
    }
}

/// The kernel that has this system; None: no kernel of ours.
pub const fn flavour(system: System) -> Option<Flavour> {
    match system {
        System::NativeTicket | System::PvTicket => Some(Flavour::Ticket),
        System::TestAndSet | System::Queued | System::PvQueued => Some(Flavour::Stock),
        _ => None,
    }
}

/// No kernel has this system.
#[derive(Debug, Error)]
#[error("--guest linux: no kernel here has {system}; there are {}", names(.had))]
pub struct NoKernel {
    system: System,
    had: Vec<System>,
}

fn names(systems: &[System]) -> String {
    systems.iter().map(|system| system.name()).collect::<Vec<_>>().join(", ")
}

/// What a list comes to in a Linux guest, each once, in its order; `all` are those that a kernel
/// has.
pub fn systems(list: &[Systems]) -> Result<Vec<System>, NoKernel> {
    let had = || System::ALL.iter().copied().filter(|system| flavour(*system).is_some()).collect();
    let named: Vec<Systems> = list.iter().copied().filter(|one| *one != Systems::All).collect();
    if let Some(system) = all_of(&named).into_iter().find(|system| flavour(*system).is_none()) {
        return Err(NoKernel { system, had: had() });
    }
    Ok(all_of(list).into_iter().filter(|system| flavour(*system).is_some()).collect())
}

/// Our kernel's ticketlocks with this backend.
pub const fn ticketlock(backend: PvBackend) -> System {
    match backend {
        PvBackend::Off => System::NativeTicket,
        PvBackend::Vmm | PvBackend::Doorbell | PvBackend::Kvm => System::PvTicket,
    }
}

/// What the kernel is told so that it takes this system. Mainline chooses by what KVM offers
/// (`kvm_spinlock_init`): its kick makes spinlocks PV, unless `nopvspin` is said.
pub const fn parameters(system: System, backend: PvBackend) -> &'static str {
    match system {
        System::NativeTicket | System::PvTicket => backend.kernel_parameters(),
        System::Queued => "nopvspin",
        _ => "",
    }
}

/// Whether KVM's kick is offered: a mainline guest that has none falls back to test-and-set.
pub const fn has_kvm_kick(system: System) -> bool {
    !matches!(system, System::TestAndSet)
}

/// The only backend that serves this system in a Linux guest, if there is no choice.
pub const fn only_backend(system: System) -> Option<PvBackend> {
    match system {
        System::PvQueued => Some(PvBackend::Kvm),
        _ => None,
    }
}

/// Whether a kernel takes this system with so many CPUs: a mainline guest with one takes queued
/// spinlocks, whatever KVM offers.
pub const fn works_with(system: System, vcpus: u32) -> bool {
    vcpus > 1 || !matches!(system, System::PvQueued | System::TestAndSet)
}

/// The system that a kernel chose, by its own line about it; None: the line is none of those.
pub fn chosen(line: &str) -> Option<System> {
    const SAID: [(&str, System); 7] = [
        ("pvticket: PV ticketlocks on", System::PvTicket),
        ("pvticket: native ticketlocks", System::NativeTicket),
        ("PV spinlocks enabled", System::PvQueued),
        ("PV spinlocks disabled, no host support", System::TestAndSet),
        ("PV spinlocks disabled, forced by \"nopvspin\"", System::Queued),
        ("PV spinlocks disabled, single CPU", System::Queued),
        ("PV spinlocks disabled with KVM_HINTS_REALTIME", System::Queued),
    ];
    SAID.iter().find(|(said, _)| line.contains(said)).map(|(_, system)| *system)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<Systems> {
        text.split(',').map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn all_are_those_that_a_kernel_has() {
        use System::{NativeTicket, PvQueued, PvTicket, Queued, TestAndSet};
        let all = systems(&list("all")).unwrap();
        assert_eq!(all, [NativeTicket, PvTicket, TestAndSet, Queued, PvQueued]);
        assert_eq!(systems(&list("queued,all")).unwrap()[0], Queued);
        assert!(systems(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_system_that_no_kernel_has_is_refused() {
        let error = systems(&list("all,preemptable-ticket")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--guest linux: no kernel here has preemptable-ticket; there are ticket, pv-ticket, \
             test-and-set, queued, pv-queued"
        );
    }

    #[test]
    fn a_kernels_own_line_says_what_it_chose() {
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
