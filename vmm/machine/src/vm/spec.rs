//! The description of a machine, in the user's terms.

use std::{fs::File, path::PathBuf, sync::Arc};

use hypercalls::payload::{MEMORY, Workload};

use super::{LookoutSpec, Oversight};
use crate::{
    guest::{initrd::InitrdSource, kernel_symbols::KernelSymbols, payload::PayloadSpec},
    vcpu::{ThreadPlacement, fault::FaultPlan},
};
use base::{
    backend::PvBackend,
    units::{ByteSize, CpuList, VcpuCount, VcpuId},
};

/// The software that runs in the machine.
#[derive(Debug, Clone)]
pub enum GuestSpec {
    /// A Linux kernel.
    Linux {
        /// ELF `vmlinux` or bzImage.
        kernel: PathBuf,
        /// The parts of the initial RAM disk, concatenated; may be empty.
        initrd: Vec<InitrdSource>,
        /// The kernel's command line.
        cmdline: String,
    },
    /// The embedded ring-3 payload.
    Payload(PayloadSpec),
}

/// The description of one machine.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Number of vCPUs.
    pub vcpus: VcpuCount,
    /// Size of guest memory.
    pub memory: ByteSize,
    /// The software to boot.
    pub guest: GuestSpec,
    /// Which side serves halts and kicks.
    pub pv: PvBackend,
    /// Offer KVM's own kick (KVM_FEATURE_PV_UNHALT), where HLT halts in KVM: without it, kernels
    /// without our ticketlocks fall back to test-and-set.
    pub kvm_kick: bool,
    /// Host CPUs that the vCPU threads may use; None leaves their affinity unchanged.
    pub affinity: Option<CpuList>,
    /// Pin each vCPU thread to one of them: thread n to CPU n, wrapping around.
    pub pinned: bool,
    /// For each vCPU, the file of the control group that its thread enters; empty: it stays in that of
    /// the process.
    pub cgroups: Vec<Arc<File>>,
    /// Telemetry of the guest's locks, and the watchdog.
    pub oversight: Oversight,
    /// How a user's guest is looked after; None: it is measured, and what measures it has its own limits.
    pub lookout: Option<LookoutSpec>,
    /// The symbols of the kernel, if they are known.
    pub symbols: Option<KernelSymbols>,
    /// Include KVM's own counters in the report.
    pub kvm_stats: bool,
    /// Count what the host's kernel does with the vCPUs ([`Running::host_counts`](super::Running::host_counts)).
    pub host_counts: bool,
    /// Faults to inject into kicks and halts.
    pub faults: Option<FaultPlan>,
    /// Record everything that the vCPUs do, for the report.
    pub traced: bool,
}

impl MachineSpec {
    /// A machine without a backend, of which nothing is recorded or counted.
    pub const fn new(vcpus: VcpuCount, memory: ByteSize, guest: GuestSpec) -> Self {
        Self {
            vcpus,
            memory,
            guest,
            pv: PvBackend::Off,
            kvm_kick: true,
            affinity: None,
            pinned: false,
            cgroups: Vec::new(),
            oversight: Oversight::NONE,
            lookout: None,
            symbols: None,
            kvm_stats: false,
            host_counts: false,
            faults: None,
            traced: false,
        }
    }

    /// A machine of one vCPU, in which the payload takes no locks.
    pub const fn tiny(workload: Workload) -> Self {
        let guest = GuestSpec::Payload(PayloadSpec::other(workload));
        Self::new(VcpuCount::ONE, ByteSize(MEMORY), guest)
    }

    /// The host CPUs that the thread of `vcpu` may use; None: no restriction.
    pub fn cpus_of(&self, vcpu: VcpuId) -> Option<CpuList> {
        let all = self.affinity.as_ref()?;
        let own = all.cpus().iter().cycle().nth(vcpu.0 as usize).filter(|_| self.pinned);
        Some(own.map_or_else(|| all.clone(), |cpu| CpuList::of(*cpu)))
    }

    /// Where the host runs the thread of a vCPU.
    pub fn place_of(&self, vcpu: VcpuId) -> ThreadPlacement {
        ThreadPlacement {
            cpus: self.cpus_of(vcpu),
            cgroup: self.cgroups.get(vcpu.0 as usize).cloned(),
        }
    }
}
