//! A KVM virtual machine: memory, interrupt controllers, MSIs.

use std::{io::ErrorKind, path::Path};

use kvm_bindings::{
    KVM_CAP_X86_DISABLE_EXITS, KVM_CAP_X86_USER_SPACE_MSR, KVM_IRQ_ROUTING_IRQCHIP,
    KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE,
    KVM_MAX_CPUID_ENTRIES, KVM_MSR_EXIT_REASON_FILTER, KVM_PIT_SPEAKER_DUMMY,
    KVM_X86_DISABLE_EXITS_PAUSE, KvmIrqRouting, kvm_cpuid_entry2, kvm_enable_cap,
    kvm_irq_routing_entry, kvm_irq_routing_entry__bindgen_ty_1, kvm_irq_routing_irqchip,
    kvm_irq_routing_msi, kvm_irqchip, kvm_msi, kvm_pit_config, kvm_userspace_memory_region,
};
use kvm_ioctls::{
    Cap, IoEventAddress, Kvm, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd,
};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::{
    errno::Error as Errno,
    eventfd::{EFD_NONBLOCK, EventFd},
};

use super::{KvmError, Vcpu, exit::MSR_STEAL_TIME, host::DEV_KVM, ioctl, sys::ram::Ram};
use base::units::{Gpa, VcpuCount, VcpuId};

/// KVM's stable API version (kvm/api.rst, 4.1).
const API_VERSION: i32 = 12;

/// MSI address of the local APIC with id 0. Destination in bits 19-12, physical mode (Intel SDM volume 3,
/// 11.11.1).
const MSI_ADDRESS: u32 = 0xfee0_0000;

/// MSI data with delivery mode 3 ("remote read", bits 10-8), which no CPU sends as an MSI. KVM treats it as a
/// PV kick (`APIC_DM_REMRD` in `apic_accept`): the target leaves HLT even with interrupts off.
const MSI_DATA_KICK: u32 = 0x300;

/// Inputs of the I/O APIC, which are the first GSIs. The two 8259s share the first 16 (`default_routing` in
/// KVM's irq_comm.c).
const IOAPIC_PINS: u32 = 24;
const PIC_PINS: u32 = 8;

/// Value of an 8259's mask register that masks all lines (8259A data sheet, OCW1).
const ALL_LINES: u8 = 0xff;

/// The in-kernel devices of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// PIC, I/O APIC, local APICs and a PIT, as Linux requires.
    Full,
    /// No in-kernel devices. Sufficient for ring-3 payloads, whose vCPUs all start at once.
    Bare,
}

impl Wiring {
    /// Whether HLT halts the vCPU inside KVM, where an MSI can wake it. Without local APICs, HLT exits to the VMM.
    pub const fn has_halt(self) -> bool {
        matches!(self, Self::Full)
    }
}

/// A KVM virtual machine. Guest memory stays mapped as long as the VM or any of its vCPUs exists.
#[derive(Debug)]
pub struct KvmVm {
    fd: VmFd,
    kvm: Kvm,
    memory: Ram,
    wiring: Wiring,
    /// One per vCPU, once wired. A guest write to the port signals the eventfd, and KVM then sends the vCPU's
    /// MSI.
    doorbells: Vec<EventFd>,
}

impl KvmVm {
    /// Opens KVM and creates a VM with this memory. `tss` and `identity_map` are guest-physical addresses
    /// that KVM on Intel needs for real mode (kvm/api.rst, 4.36 and 4.40).
    pub fn new(memory: Ram, wiring: Wiring, tss: Gpa, identity_map: Gpa) -> Result<Self, KvmError> {
        let kvm = open()?;
        let fd = retry_eintr(|| kvm.create_vm()).map_err(ioctl("KVM_CREATE_VM"))?;
        for (slot, region) in (0..).zip(memory.iter()) {
            let host = memory
                .get_host_address(region.start_addr())
                .map_err(|_| KvmError::Capability("mapped guest memory"))?;
            let region = kvm_userspace_memory_region {
                slot,
                guest_phys_addr: region.start_addr().0,
                memory_size: region.len(),
                userspace_addr: host as u64,
                flags: 0,
            };
            // SAFETY: the range is a live mapping owned by `memory`. This struct and each vCPU hold a clone
            // of it until after they have closed their files of the VM.
            unsafe { fd.set_user_memory_region(region) }
                .map_err(ioctl("KVM_SET_USER_MEMORY_REGION"))?;
        }
        if wiring == Wiring::Full {
            fd.set_identity_map_address(identity_map.0)
                .map_err(ioctl("KVM_SET_IDENTITY_MAP_ADDR"))?;
            fd.set_tss_address(tss.0 as usize).map_err(ioctl("KVM_SET_TSS_ADDR"))?;
            fd.create_irq_chip().map_err(ioctl("KVM_CREATE_IRQCHIP"))?;
            mask_pics(&fd)?;
            let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
            fd.create_pit2(pit).map_err(ioctl("KVM_CREATE_PIT2"))?;
        }
        Ok(Self { fd, kvm, memory, wiring, doorbells: Vec::new() })
    }

    /// Returns the guest's memory.
    pub fn memory(&self) -> &Ram {
        &self.memory
    }

    /// Returns the CPUID entries that this host's KVM supports for guests.
    pub fn supported_cpuid(&self) -> Result<Vec<kvm_cpuid_entry2>, KvmError> {
        let supported = self
            .kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(ioctl("KVM_GET_SUPPORTED_CPUID"))?;
        Ok(supported.as_slice().to_vec())
    }

    /// Whether KVM emulates the local APIC's TSC-deadline timer.
    pub fn has_tsc_deadline(&self) -> bool {
        self.kvm.check_extension(Cap::TscDeadlineTimer)
    }

    /// Makes guest accesses to the steal-time MSR exit, as [`Exit::StealTimeWrite`](crate::Exit) and
    /// [`Exit::StealTimeRead`](crate::Exit). KVM then counts no steal time.
    pub fn intercept_steal_time(&self) -> Result<(), KvmError> {
        self.enable(KVM_CAP_X86_USER_SPACE_MSR, KVM_MSR_EXIT_REASON_FILTER)?;
        let range = MsrFilterRange {
            flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
            base: MSR_STEAL_TIME,
            msr_count: 1,
            bitmap: &[0],
        };
        let result = self.fd.set_msr_filter(MsrFilterDefaultAction::ALLOW, &[range]);
        result.map_err(ioctl("KVM_X86_SET_MSR_FILTER"))
    }

    /// Disables pause-loop exits of the vCPUs that are created later.
    pub fn disable_pause_exits(&self) -> Result<(), KvmError> {
        self.enable(KVM_CAP_X86_DISABLE_EXITS, KVM_X86_DISABLE_EXITS_PAUSE)
    }

    fn enable(&self, cap: u32, argument: u32) -> Result<(), KvmError> {
        let args = [argument.into(), 0, 0, 0];
        let cap = kvm_enable_cap { cap, args, ..Default::default() };
        self.fd.enable_cap(&cap).map_err(ioctl("KVM_ENABLE_CAP"))
    }

    /// Creates a vCPU with its registers at their reset values. Only one thread may run it.
    pub fn create_vcpu(&self, id: VcpuId) -> Result<Vcpu, KvmError> {
        let fd = self.fd.create_vcpu(id.0.into()).map_err(ioctl("KVM_CREATE_VCPU"))?;
        let mapped = self.kvm.get_vcpu_mmap_size().map_err(ioctl("KVM_GET_VCPU_MMAP_SIZE"))?;
        Vcpu::new(id, fd, mapped, self.memory.clone())
    }

    /// Makes a write to `event` raise this interrupt line. Does nothing in a VM without interrupt
    /// controllers.
    pub fn wire_irq(&self, event: &EventFd, gsi: u32) -> Result<(), KvmError> {
        if self.wiring == Wiring::Bare {
            return Ok(());
        }
        self.fd.register_irqfd(event, gsi).map_err(ioctl("KVM_IRQFD"))
    }

    /// Makes every 32-bit write of a vCPU's id to `port` kick that vCPU out of HLT, like
    /// [`KvmVm::kick_halted`] but without an exit to user space. Writes of other values still exit. Only for
    /// VMs with local APICs.
    pub fn wire_doorbells(&mut self, port: u16, vcpus: VcpuCount) -> Result<(), KvmError> {
        let mut routes = irqchip_routes();
        let gsi = |id: VcpuId| IOAPIC_PINS + id.0;
        routes.extend(vcpus.ids().map(|id| kvm_irq_routing_entry {
            gsi: gsi(id),
            type_: KVM_IRQ_ROUTING_MSI,
            u: kvm_irq_routing_entry__bindgen_ty_1 {
                msi: kvm_irq_routing_msi {
                    address_lo: kick_address(id),
                    data: MSI_DATA_KICK,
                    ..Default::default()
                },
            },
            ..Default::default()
        }));
        let routes = KvmIrqRouting::from_entries(&routes)
            .map_err(|_| KvmError::Capability("that many interrupt routes"))?;
        self.fd.set_gsi_routing(&routes).map_err(ioctl("KVM_SET_GSI_ROUTING"))?;
        for id in vcpus.ids() {
            let bell = EventFd::new(EFD_NONBLOCK)
                .map_err(|error| KvmError::Eventfd("a doorbell", error))?;
            self.fd.register_irqfd(&bell, gsi(id)).map_err(ioctl("KVM_IRQFD"))?;
            let port = IoEventAddress::Pio(port.into());
            self.fd.register_ioevent(&bell, &port, id.0).map_err(ioctl("KVM_IOEVENTFD"))?;
            self.doorbells.push(bell);
        }
        Ok(())
    }

    /// Returns the in-kernel devices of this VM.
    pub fn wiring(&self) -> Wiring {
        self.wiring
    }

    /// Wakes a vCPU that halted in KVM, or makes its next HLT return at once. Returns false if the MSI
    /// failed, or if the VM has no local APICs, so that HLT cannot halt in KVM.
    pub fn kick_halted(&self, target: VcpuId) -> bool {
        let msi =
            kvm_msi { address_lo: kick_address(target), data: MSI_DATA_KICK, ..Default::default() };
        self.wiring.has_halt() && self.fd.signal_msi(msi).is_ok()
    }
}

/// Repeats a call interrupted by a signal. KVM registers an MMU notifier, which fails while any signal is
/// pending, even a job-control stop (`mm_take_all_locks` in mm/mmap.c).
fn retry_eintr<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(error) if error.errno() == libc::EINTR => {}
            done => return done,
        }
    }
}

/// Masks all lines of both 8259s, as firmware does.
///
/// KVM creates them unmasked, with vector base 0. A kernel in hardware-reduced ACPI mode does not program
/// them. Without an I/O APIC (`noapic`, `nosmp`, `maxcpus=0`) it still connects them to its CPU (LINT0 as
/// ExtINT), and a serial port's interrupt would arrive as an exception.
fn mask_pics(fd: &VmFd) -> Result<(), KvmError> {
    for chip_id in [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE] {
        let mut chip = kvm_irqchip { chip_id, ..Default::default() };
        fd.get_irqchip(&mut chip).map_err(ioctl("KVM_GET_IRQCHIP"))?;
        chip.chip.pic.imr = ALL_LINES;
        fd.set_irqchip(&chip).map_err(ioctl("KVM_SET_IRQCHIP"))?;
    }
    Ok(())
}

const fn kick_address(target: VcpuId) -> u32 {
    MSI_ADDRESS | (target.0 << 12)
}

/// Returns the routes that KVM_CREATE_IRQCHIP sets up, because KVM_SET_GSI_ROUTING replaces all routes.
fn irqchip_routes() -> Vec<kvm_irq_routing_entry> {
    let route = |gsi, irqchip, pin| kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_IRQCHIP,
        u: kvm_irq_routing_entry__bindgen_ty_1 {
            irqchip: kvm_irq_routing_irqchip { irqchip, pin },
        },
        ..Default::default()
    };
    let ioapic = (0..IOAPIC_PINS).map(|gsi| route(gsi, KVM_IRQCHIP_IOAPIC, gsi));
    let master = (0..PIC_PINS).map(|pin| route(pin, KVM_IRQCHIP_PIC_MASTER, pin));
    let slave = (0..PIC_PINS).map(|pin| route(PIC_PINS + pin, KVM_IRQCHIP_PIC_SLAVE, pin));
    ioapic.chain(master).chain(slave).collect()
}

pub(super) fn open() -> Result<Kvm, KvmError> {
    let path = Path::new(DEV_KVM);
    let kvm = Kvm::new().map_err(|errno| {
        match std::io::Error::from_raw_os_error(errno.errno()).kind() {
            ErrorKind::PermissionDenied => KvmError::Denied(path.into()),
            ErrorKind::NotFound => KvmError::Absent(path.into()),
            _ => KvmError::Open(path.into(), errno),
        }
    })?;
    match kvm.get_api_version() {
        API_VERSION => Ok(kvm),
        // The ioctl itself failed.
        -1 => Err(KvmError::NotKvm(path.into())),
        version => Err(KvmError::ApiVersion(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a SIGCHLD or SIGCONT at startup ended the command (`KVM_CREATE_VM failed: Interrupted
    /// ...`).
    #[test]
    fn retries_interrupted_calls() {
        let mut answers = [Err(libc::EINTR), Err(libc::EINTR), Ok(5)].into_iter();
        let result = retry_eintr(|| answers.next().unwrap_or(Err(libc::EIO)).map_err(Errno::new));
        assert_eq!(result, Ok(5));
        assert_eq!(
            retry_eintr(|| Err::<(), _>(Errno::new(libc::ENOMEM))),
            Err(Errno::new(libc::ENOMEM))
        );
    }
}
