//! Linux kernels side by side: which are needed, where they are, and what contends on them.

use std::{fs, path::PathBuf, slice};

use locks::System;

use super::CompareArgs;
use crate::{
    cli::Usage,
    guest::{
        artifacts::{self, ArtifactError},
        handoff::HandoffSpec,
        kernels::{self, Flavour, Kernels},
    },
    lab::Contender,
    sched::PolicySpec,
    units::VcpuCount,
    vm::PvBackend,
};

/// The systems of `--locks`, each once; empty without it.
pub(super) fn systems(args: &CompareArgs) -> Result<Vec<System>, Usage> {
    let systems = kernels::systems(&args.locks).map_err(|error| Usage(error.to_string()))?;
    let on_kvm = |system: &&System| kernels::only_backend(**system) == Some(PvBackend::Kvm);
    match systems.iter().find(on_kvm) {
        Some(system) if args.faults.spec()?.is_some() => Err(Usage(format!(
            "--fault: not with --locks {system}, whose calls KVM serves itself; leave it out"
        ))),
        _ => Ok(systems),
    }
}

/// The kernels that these systems need, of our ticketlocks if there are none: those that were
/// named, or else the built ones.
pub(super) fn find(args: &CompareArgs, systems: &[System]) -> anyhow::Result<Kernels> {
    let needs = |wanted| systems.iter().any(|system| kernels::flavour(*system) == Some(wanted));
    let ticket = systems.is_empty() || needs(Flavour::Ticket);
    let stock = needs(Flavour::Stock);
    Ok(Kernels {
        ticket: find_one("--kernel", args.kernel.as_ref(), ticket, artifacts::built_kernel)?,
        stock: find_one(
            "--stock-kernel",
            args.stock_kernel.as_ref(),
            stock,
            artifacts::stock_kernel,
        )?,
    })
}

fn find_one(
    option: &str,
    named: Option<&PathBuf>,
    is_needed: bool,
    built: fn() -> Result<PathBuf, ArtifactError>,
) -> anyhow::Result<Option<PathBuf>> {
    match (named, is_needed) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(built()?)),
        (Some(_), false) => Err(Usage(format!(
            "{option}: none of the locks to be compared runs on it; --kernel is for ticket and \
             pv-ticket, --stock-kernel for the others of --locks"
        ))
        .into()),
        (Some(file), true) => fs::canonicalize(file)
            .map(Some)
            .map_err(|error| Usage(format!("{option} {}: {error}", file.display())).into()),
    }
}

/// Can the kernels' locks be had with so many CPUs?
pub(super) fn check_counts(systems: &[System], vcpus: VcpuCount) -> Result<(), Usage> {
    match systems.iter().find(|system| !kernels::works_with(**system, vcpus.get())) {
        None => Ok(()),
        Some(system) => Err(Usage(format!(
            "--vcpus {vcpus}: a kernel with one CPU does not take {system}; leave it out or use \
             more"
        ))),
    }
}

/// Every system under every policy, served by each of the `backends` that its kernel can use.
pub(super) fn contenders(
    policies: &[PolicySpec],
    systems: &[System],
    backends: &[PvBackend],
    handoffs: &[HandoffSpec],
) -> Vec<Contender> {
    let mut all = Vec::new();
    for policy in policies {
        for system in systems {
            let only = kernels::only_backend(*system);
            let backends = only.as_ref().map_or(backends, slice::from_ref);
            let (policy, system) = (slice::from_ref(policy), slice::from_ref(system));
            all.extend(Contender::of_systems(policy, system, System::halts, backends, handoffs));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticketlocks_run_with_every_backend_and_queued_ones_with_kvms() {
        let backends = [PvBackend::Off, PvBackend::Vmm, PvBackend::Doorbell];
        let systems =
            [System::NativeTicket, System::PvTicket, System::TestAndSet, System::PvQueued];
        let policies = [PolicySpec::host(), "rr".parse().unwrap()];
        let all = contenders(&policies, &systems, &backends, &[HandoffSpec::NONE]);
        let names: Vec<String> = all.iter().map(Contender::lock).collect();
        let under_each =
            ["ticket", "pv-ticket", "pv-ticket-doorbell", "test-and-set", "pv-queued-kvm"];
        assert_eq!(names, [under_each, under_each].concat());
        let baseline = all.iter().filter(|other| all[0].is_baseline_of(other)).count();
        assert_eq!(baseline, under_each.len() - 1, "native tickets are the baseline of all others");
    }

    #[test]
    fn a_stock_kernel_with_one_cpu_has_queued_locks_only() {
        for system in [System::PvQueued, System::TestAndSet] {
            let systems = [System::NativeTicket, System::PvTicket, System::Queued, system];
            assert!(check_counts(&systems, VcpuCount::ONE).is_err());
            assert!(check_counts(&systems[..3], VcpuCount::ONE).is_ok());
            assert!(check_counts(&systems, VcpuCount::try_from(2).unwrap()).is_ok());
        }
    }
}
