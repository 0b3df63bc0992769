//! A guest loaded into memory, and the initial state of its vCPUs.

use std::{fs::File, path::Path};

use hypercalls::ports;

use super::{
    GuestSpec, MachineSpec, VmError,
    ram::{self, MemoryUsage},
};
use crate::guest::{
    initrd::InitrdSource,
    linux,
    payload::{PAYLOAD_ELF, SharedView},
};
use base::units::{Gpa, VcpuId};
use boot::{self, BootError, InitrdPart, LinuxEntry, Ring, lapic, msrs};
use kvm::{Vcpu, Wiring, sys::ram::Ram, vcpu::TscClock};

pub(super) fn map_memory(spec: &MachineSpec) -> Result<Ram, VmError> {
    let usage = match spec.guest {
        GuestSpec::Linux { .. } => MemoryUsage::Dense,
        GuestSpec::Payload(_) => MemoryUsage::Sparse,
    };
    ram::map(spec.memory, usage)
}

/// A loaded guest, and the entry state of its vCPUs.
pub(super) enum LoadedGuest {
    Linux(LinuxEntry),
    Payload(Gpa, Ring),
}

/// Returns the in-kernel devices that a guest needs.
pub(super) fn wiring(guest: &GuestSpec) -> Wiring {
    match guest {
        GuestSpec::Payload(payload) if !payload.needs_ring_0() => Wiring::Bare,
        GuestSpec::Linux { .. } | GuestSpec::Payload(_) => Wiring::Full,
    }
}

impl LoadedGuest {
    /// Loads a guest whose vCPUs have this `clock`, or None if no vCPU exists.
    pub(super) fn load(
        spec: &MachineSpec,
        memory: &Ram,
        clock: Option<TscClock>,
    ) -> Result<Self, VmError> {
        match &spec.guest {
            GuestSpec::Linux { kernel, initrd, cmdline } => {
                let mut file = open(kernel)?;
                let mut files = initrd.iter().map(OpenPart::open).collect::<Result<Vec<_>, _>>()?;
                let mut parts: Vec<InitrdPart<'_>> =
                    files.iter_mut().map(OpenPart::as_part).collect();
                let clock = clock.and_then(linux::clock_parameter);
                let timed = clock.map(|clock| format!("{clock} {cmdline}"));
                let mut load = |cmdline: &str| {
                    boot::load_linux(memory, &mut file, &mut parts, cmdline, spec.vcpus)
                };
                let entry = match load(timed.as_ref().unwrap_or(cmdline)) {
                    // The user's own parameters take precedence.
                    Err(BootError::CmdlineTooLong { .. }) if timed.is_some() => load(cmdline),
                    loaded => loaded,
                };
                let entry = entry.map_err(|error| match error {
                    BootError::Kernel(cause) => VmError::Kernel(kernel.clone(), cause),
                    error => error.into(),
                })?;
                Ok(Self::Linux(entry))
            }
            GuestSpec::Payload(payload) => {
                let ring = if payload.needs_ring_0() { Ring::Kernel } else { Ring::User };
                let entry = boot::load_payload(memory, PAYLOAD_ELF, ring)?;
                SharedView::new(memory).write_params(
                    payload,
                    spec.vcpus,
                    ports::DEFAULT_BASE,
                    spec.monitoring.telemetry(),
                )?;
                Ok(Self::Payload(entry, ring))
            }
        }
    }

    pub(super) fn set_registers(&self, vcpu: &Vcpu, xcr0: Option<u64>) -> Result<(), VmError> {
        let mut sregs = vcpu.sregs()?;
        match self {
            Self::Linux(entry) => {
                vcpu.set_msrs(&msrs::boot_msrs())?;
                // Linux sets the same value itself. QEMU's emulated AMD-V does not intercept
                // XSETBV, so KVM would load the reset value at every entry, and the kernel
                // would find its state inconsistent and AVX unusable.
                if let Some(xcr0) = xcr0 {
                    vcpu.set_xcr0(xcr0)?;
                }
                let mut lapic = vcpu.lapic()?;
                lapic::set_local_pins(&mut lapic);
                vcpu.set_lapic(&lapic)?;
                if vcpu.id() != VcpuId(0) {
                    return Ok(()); // started by INIT and SIPI
                }
                let regs = boot::linux_registers(&mut sregs, entry);
                vcpu.set_sregs(&sregs)?;
                vcpu.set_regs(&regs)?;
            }
            Self::Payload(entry, ring) => {
                let regs = boot::payload_registers(&mut sregs, vcpu.id(), *entry, *ring);
                vcpu.set_sregs(&sregs)?;
                vcpu.set_regs(&regs)?;
                if *ring == Ring::Kernel {
                    let mut apic = vcpu.lapic()?;
                    lapic::enable(&mut apic);
                    vcpu.set_lapic(&apic)?;
                    vcpu.set_runnable()?;
                }
            }
        }
        Ok(())
    }
}

enum OpenPart<'a> {
    File(File, &'a Path),
    Bytes(&'a [u8]),
}

impl<'a> OpenPart<'a> {
    fn open(source: &'a InitrdSource) -> Result<Self, VmError> {
        match source {
            InitrdSource::File(path) => Ok(Self::File(open(path)?, path)),
            InitrdSource::Bytes(bytes) => Ok(Self::Bytes(bytes)),
        }
    }

    fn as_part(&mut self) -> InitrdPart<'_> {
        match self {
            Self::File(file, name) => InitrdPart::File(file, name),
            Self::Bytes(bytes) => InitrdPart::Bytes(bytes),
        }
    }
}

fn open(path: &Path) -> Result<File, VmError> {
    File::open(path).map_err(|error| VmError::Open(path.into(), error))
}
