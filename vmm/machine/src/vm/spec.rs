//! The description of a machine from the user's point of view.

use std::{fs::File, path::PathBuf, sync::Arc};

use hypercalls::payload::{MEMORY, Workload};

use super::{LockMonitoring, WatcherSpec};
use crate::{
    guest::{initrd::InitrdSource, kernel_symbols::KernelSymbols, payload::PayloadSpec},
    vcpu::{ThreadPlacement, fault::FaultPlan},
};
use base::{
    backend::PvBackend,
    steal_source::StealSource,
    units::{ByteSize, CpuList, VcpuCount, VcpuId},
};

/// The software that runs in the machine.
#[derive(Debug, Clone)]
pub enum GuestSpec {
    /// A Linux kernel.
    Linux {
        /// ELF `vmlinux` or bzImage.
        kernel: PathBuf,
        /// The parts of the initial RAM disk, in order; may be empty.
        initrd: Vec<InitrdSource>,
        /// The kernel's command line.
        cmdline: String,
    },
    /// The embedded payload.
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
    /// The backend that serves halts and kicks.
    pub pv: PvBackend,
    /// Whether to offer KVM's own kick (KVM_FEATURE_PV_UNHALT) where HLT halts in KVM. Without it, kernels
    /// without our ticketlocks fall back to test-and-set locks.
    pub kvm_kick: bool,
    /// The writer of a Linux guest's steal time.
    pub steal: StealSource,
    /// Whether loops of PAUSEs may exit (PLE). None for KVM's setting, in the emulated host for no exits.
    pub pause_exits: Option<bool>,
    /// Host CPUs that the vCPU threads may use; None leaves their affinity unchanged.
    pub affinity: Option<CpuList>,
    /// Whether to pin each vCPU thread to one CPU of `affinity`: thread n to the nth, wrapping around.
    pub pinned: bool,
    /// For each vCPU, the cgroup file that its thread joins. If empty, the threads stay in the process's
    /// cgroup.
    pub cgroups: Vec<Arc<File>>,
    /// Telemetry of the guest's locks, and the watchdog.
    pub monitoring: LockMonitoring,
    /// Supervision of a user's guest. None for measurements, which have their own limits.
    pub watcher: Option<WatcherSpec>,
    /// The symbols of the kernel, if known.
    pub symbols: Option<KernelSymbols>,
    /// Whether the report includes KVM's own counters.
    pub kvm_stats: bool,
    /// Whether to record host counts of the vCPUs ([`Running::host_counts`](super::Running::host_counts)).
    pub host_counts: bool,
    /// Faults to inject into kicks and halts.
    pub faults: Option<FaultPlan>,
    /// Whether to record vCPU events for the report.
    pub traced: bool,
}

impl MachineSpec {
    /// Returns a machine without a backend, recording or counters.
    pub const fn new(vcpus: VcpuCount, memory: ByteSize, guest: GuestSpec) -> Self {
        Self {
            vcpus,
            memory,
            guest,
            pv: PvBackend::Off,
            kvm_kick: true,
            steal: StealSource::Kvm,
            pause_exits: None,
            affinity: None,
            pinned: false,
            cgroups: Vec::new(),
            monitoring: LockMonitoring::NONE,
            watcher: None,
            symbols: None,
            kvm_stats: false,
            host_counts: false,
            faults: None,
            traced: false,
        }
    }

    /// Returns a machine with one vCPU whose payload takes no locks.
    pub const fn lockless(workload: Workload) -> Self {
        let guest = GuestSpec::Payload(PayloadSpec::without_locks(workload));
        Self::new(VcpuCount::ONE, ByteSize(MEMORY), guest)
    }

    /// Returns the host CPUs that the thread of `vcpu` may use, or None if unrestricted.
    pub fn cpus_of(&self, vcpu: VcpuId) -> Option<CpuList> {
        let affinity = self.affinity.as_ref()?;
        let pinned = affinity.cpus().iter().cycle().nth(vcpu.0 as usize).filter(|_| self.pinned);
        Some(pinned.map_or_else(|| affinity.clone(), |cpu| CpuList::single(*cpu)))
    }

    /// Returns the placement of a vCPU's thread on the host.
    pub fn place_of(&self, vcpu: VcpuId) -> ThreadPlacement {
        ThreadPlacement {
            cpus: self.cpus_of(vcpu),
            cgroup: self.cgroups.get(vcpu.0 as usize).cloned(),
        }
    }
}
