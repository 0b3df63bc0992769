//! What a machine is, in the user's terms.

use std::{fmt, path::PathBuf, str::FromStr};

use hypercalls::payload::Transport;

use crate::{
    guest::{initrd::InitrdSource, payload::PayloadSpec},
    kvm::host::is_amd,
    units::{ByteSize, CpuList, VcpuCount, VcpuId},
    vcpu::fault::FaultPlan,
};

/// Who serves the PV ticketlock's hypercalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PvBackend {
    /// This VMM, through its ports.
    Vmm,
    /// HLT in KVM, and a doorbell of ours that KVM rings without us.
    Doorbell,
    /// KVM itself: HLT and `KVM_HC_KICK_CPU`.
    Kvm,
    /// Nobody: the guest's locks only spin.
    Off,
}

impl PvBackend {
    /// All of them.
    pub const ALL: [PvBackend; 4] =
        [PvBackend::Vmm, PvBackend::Doorbell, PvBackend::Kvm, PvBackend::Off];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            PvBackend::Vmm => "vmm",
            PvBackend::Doorbell => "doorbell",
            PvBackend::Kvm => "kvm",
            PvBackend::Off => "off",
        }
    }

    /// How a payload halts and kicks with it.
    pub fn transport(self) -> Transport {
        match self {
            PvBackend::Vmm | PvBackend::Off => Transport::Ports,
            PvBackend::Doorbell => Transport::Doorbell,
            PvBackend::Kvm if is_amd() => Transport::Vmmcall,
            PvBackend::Kvm => Transport::Vmcall,
        }
    }

    /// Does a payload that uses it run in ring 0?
    pub fn needs_ring_0(self) -> bool {
        self.transport() != Transport::Ports
    }

    /// What it adds to the kernel's command line. `nopvspin` makes stock kernels
    /// take native queued locks, where without any PV they would fall to
    /// test-and-set.
    pub const fn kernel_parameters(self) -> &'static str {
        match self {
            PvBackend::Vmm => "pvticket=vmm",
            PvBackend::Doorbell => "pvticket=doorbell",
            PvBackend::Kvm => "pvticket=kvm",
            PvBackend::Off => "pvticket=off nopvspin",
        }
    }
}

impl fmt::Display for PvBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PvBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == text)
            .ok_or_else(|| format!("'{text}' is no backend: vmm, doorbell, kvm or off"))
    }
}

/// What runs in the machine.
#[derive(Debug)]
pub enum GuestSpec {
    /// A Linux kernel.
    Linux {
        /// ELF `vmlinux` or bzImage.
        kernel: PathBuf,
        /// The initial RAM disk's parts, one behind the other; may be empty.
        initrd: Vec<InitrdSource>,
        /// The kernel's command line.
        cmdline: String,
    },
    /// The embedded ring-3 payload.
    Payload(PayloadSpec),
}

/// One machine.
#[derive(Debug)]
pub struct MachineSpec {
    /// How many vCPUs.
    pub vcpus: VcpuCount,
    /// How much memory.
    pub memory: ByteSize,
    /// What runs in it.
    pub guest: GuestSpec,
    /// Who serves the lock hypercalls.
    pub pv: PvBackend,
    /// Offer KVM's own kick (KVM_FEATURE_PV_UNHALT), where HLT halts in KVM: without it kernels
    /// that have no ticketlocks of ours fall back to test-and-set.
    pub kvm_kick: bool,
    /// Host CPUs that the vCPU threads may use; None leaves them as they are.
    pub affinity: Option<CpuList>,
    /// Each vCPU thread keeps to one of them: the n-th to the n-th, round and round.
    pub pinned: bool,
    /// Have the guest say what it does with locks.
    pub telemetry: bool,
    /// Offset of `__preempt_count` in the kernel's per-CPU areas, if it is known.
    pub preempt_count: Option<u64>,
    /// Keep KVM's own counters for the report.
    pub kvm_stats: bool,
    /// What goes wrong on purpose with kicks and halts.
    pub faults: Option<FaultPlan>,
    /// End it when somebody in it waits for ever for a lock.
    pub watched: bool,
    /// Keep everything that its vCPUs do, for the report.
    pub traced: bool,
}

impl MachineSpec {
    /// The host CPUs that the thread of `vcpu` may use; None: all.
    pub fn cpus_of(&self, vcpu: VcpuId) -> Option<CpuList> {
        let all = self.affinity.as_ref()?;
        let own = all.cpus().iter().cycle().nth(vcpu.0 as usize).filter(|_| self.pinned);
        Some(own.map_or_else(|| all.clone(), |cpu| CpuList::of(*cpu)))
    }
}
