//! A vCPU's file descriptor and its operations, above all `run() -> Exit`.

use std::{mem, ptr};

use kvm_bindings::{
    CpuId, KVM_MP_STATE_HALTED, KVM_MP_STATE_RUNNABLE, KVM_MP_STATE_UNINITIALIZED,
    KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, Msrs, kvm_cpuid_entry2, kvm_device_attr,
    kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_xcr, kvm_xcrs,
};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::{
    errno::Error as Errno,
    ioctl::{ioctl as call, ioctl_with_ref},
};

use super::{
    Exit, KvmError, exit,
    exit_pages::ExitPages,
    ioctl,
    requests::{KVM_GET_DEVICE_ATTR, KVM_RUN, KVM_SET_SIGNAL_MASK},
    signal,
};
use crate::sys::ram::Ram;
use base::units::{Nanos, VcpuId};

/// `struct kvm_signal_mask` followed by the kernel's 8-byte mask.
#[repr(C, packed)]
struct SignalMask {
    len: u32,
    mask: u64,
}

/// The relation between a guest's time stamp counter and the host's.
#[derive(Debug, Default, Clone, Copy)]
pub struct TscClock {
    /// Guest counter minus host counter (kvm/devices/vcpu.rst, KVM_VCPU_TSC_OFFSET).
    pub offset: u64,
    /// Frequency of the guest's counter in kHz.
    pub khz: u64,
}

impl TscClock {
    /// Returns the time since the guest's counter showed `then`, when the host's shows `host`. None if `then`
    /// is in the future, or an hour or more ago: values from the guest are untrusted.
    pub fn elapsed_since(&self, then: u64, host: u64) -> Option<Nanos> {
        self.ticks_since(then, host).map(|ticks| Nanos(self.nanos(ticks) as u64))
    }

    /// [`TscClock::elapsed_since`] in ticks.
    pub fn ticks_since(&self, then: u64, host: u64) -> Option<u64> {
        const HOUR: u128 = 3_600_000_000_000;
        let elapsed = host.wrapping_add(self.offset).wrapping_sub(then);
        (self.nanos(elapsed) < HOUR).then_some(elapsed)
    }

    /// Returns the guest counter's value `span` after the moment at which the host's shows `host`.
    pub fn after(&self, span: Nanos, host: u64) -> u64 {
        let ticks = u128::from(span.0) * u128::from(self.khz) / 1_000_000;
        host.wrapping_add(self.offset).wrapping_add(ticks as u64)
    }

    fn nanos(&self, ticks: u64) -> u128 {
        u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1))
    }
}

/// The registers that show what a vCPU does in ring 0.
#[derive(Debug, Clone, Copy)]
pub struct KernelRegisters {
    /// The instruction pointer.
    pub rip: u64,
    /// The general registers, in encoding order (SDM vol. 2, table 3-1).
    pub general: [u64; 16],
    /// The base of GS.
    pub gs_base: u64,
}

/// The state of a vCPU outside the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuState {
    /// The activity that it resumes with on VM entry.
    pub activity: Activity,
    /// The instruction pointer.
    pub rip: u64,
    /// Whether interrupts are enabled (RFLAGS.IF).
    pub takes_interrupts: bool,
}

/// The activity of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Waits for its guest to start it.
    NotStarted,
    /// Halted in HLT.
    Halted,
    /// Neither of these, or not reported by KVM.
    Running,
}

/// One vCPU. Only the thread that called [`Vcpu::arm_kick`] may call `run`.
#[derive(Debug)]
pub struct Vcpu {
    id: VcpuId,
    fd: VcpuFd,
    pages: ExitPages,
    /// Dropped last: KVM may access guest memory for as long as the vCPU's file is open, even after the VM's
    /// file is closed.
    _memory: Ram,
}

impl Vcpu {
    /// `mapped` is the number of bytes of the file shared with KVM (KVM_GET_VCPU_MMAP_SIZE).
    pub(super) fn new(
        id: VcpuId,
        fd: VcpuFd,
        mapped: usize,
        memory: Ram,
    ) -> Result<Self, KvmError> {
        let pages = ExitPages::map(&fd, mapped)?;
        Ok(Self { id, fd, pages, _memory: memory })
    }

    /// Returns the vCPU's index in the VM.
    pub fn id(&self) -> VcpuId {
        self.id
    }

    /// Sets the CPUID entries. Must precede the MSRs, which KVM checks against CPUID.
    pub fn set_cpuid(&self, entries: &[kvm_cpuid_entry2]) -> Result<(), KvmError> {
        let cpuid = CpuId::from_entries(entries)
            .map_err(|_| KvmError::Capability("that many CPUID leaves"))?;
        self.fd.set_cpuid2(&cpuid).map_err(ioctl("KVM_SET_CPUID2"))
    }

    /// Sets model-specific registers.
    pub fn set_msrs(&self, entries: &[kvm_msr_entry]) -> Result<(), KvmError> {
        let msrs =
            Msrs::from_entries(entries).map_err(|_| KvmError::Capability("that many MSRs"))?;
        let accepted = self.fd.set_msrs(&msrs).map_err(ioctl("KVM_SET_MSRS"))?;
        entries.get(accepted).map_or(Ok(()), |rejected| Err(KvmError::Msr(rejected.index)))
    }

    /// Sets XCR0, the enabled extended state. Must follow CPUID, which limits it.
    pub fn set_xcr0(&self, value: u64) -> Result<(), KvmError> {
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..Default::default() };
        xcrs.xcrs[0] = kvm_xcr { xcr: 0, value, ..Default::default() };
        self.fd.set_xcrs(&xcrs).map_err(ioctl("KVM_SET_XCRS"))
    }

    /// Reads the special registers.
    pub fn sregs(&self) -> Result<kvm_sregs, KvmError> {
        self.fd.get_sregs().map_err(ioctl("KVM_GET_SREGS"))
    }

    /// Sets the special registers.
    pub fn set_sregs(&self, sregs: &kvm_sregs) -> Result<(), KvmError> {
        self.fd.set_sregs(sregs).map_err(ioctl("KVM_SET_SREGS"))
    }

    /// Reads the general registers.
    pub fn regs(&self) -> Result<kvm_regs, KvmError> {
        self.fd.get_regs().map_err(ioctl("KVM_GET_REGS"))
    }

    /// Sets the general registers.
    pub fn set_regs(&self, regs: &kvm_regs) -> Result<(), KvmError> {
        self.fd.set_regs(regs).map_err(ioctl("KVM_SET_REGS"))
    }

    /// Reads the local APIC's registers.
    pub fn lapic(&self) -> Result<kvm_lapic_state, KvmError> {
        self.fd.get_lapic().map_err(ioctl("KVM_GET_LAPIC"))
    }

    /// Sets the local APIC's registers.
    pub fn set_lapic(&self, lapic: &kvm_lapic_state) -> Result<(), KvmError> {
        self.fd.set_lapic(lapic).map_err(ioctl("KVM_SET_LAPIC"))
    }

    /// Makes the vCPU run from its current registers at once, instead of waiting for INIT and SIPI as all
    /// vCPUs except the first do in VMs with local APICs.
    pub fn set_runnable(&self) -> Result<(), KvmError> {
        let state = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
        self.fd.set_mp_state(state).map_err(ioctl("KVM_SET_MP_STATE"))
    }

    /// Whether the vCPU has not received INIT yet. False if KVM does not report it.
    pub fn awaits_start(&self) -> bool {
        let state = self.fd.get_mp_state().map(|state| state.mp_state);
        state.is_ok_and(|state| state == KVM_MP_STATE_UNINITIALIZED)
    }

    /// Returns the relation of the vCPU's time stamp counter to the host's. If KVM does not report the
    /// offset, it is assumed to be zero: on a software KVM, ring 3 reads the host's counter.
    pub fn tsc_clock(&self) -> Result<TscClock, KvmError> {
        let mut offset = 0_u64;
        let attribute = kvm_device_attr {
            group: KVM_VCPU_TSC_CTRL,
            attr: KVM_VCPU_TSC_OFFSET.into(),
            // The kernel writes through this pointer, so its provenance is exposed.
            addr: ptr::from_mut(&mut offset).expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the kernel writes 8 bytes at `addr`, which is `offset`, or nothing on failure.
        let result = unsafe { ioctl_with_ref(&self.fd, KVM_GET_DEVICE_ATTR(), &attribute) };
        let khz = self.fd.get_tsc_khz().map_err(ioctl("KVM_GET_TSC_KHZ"))?;
        Ok(TscClock { offset: if result == 0 { offset } else { 0 }, khz: khz.into() })
    }

    /// Whether the guest is in ring 3 (CS.DPL). None if KVM does not report it.
    pub fn is_in_user_mode(&self) -> Option<bool> {
        self.sregs().ok().map(|sregs| sregs.cs.dpl == 3)
    }

    /// Whether the vCPU has executed HLT and received no kick since. Only for VMs with local APICs. (A
    /// pending interrupt takes effect only on the next VM entry.)
    pub fn is_halted(&self) -> bool {
        self.fd.get_mp_state().is_ok_and(|state| state.mp_state == KVM_MP_STATE_HALTED)
    }

    /// Returns the vCPU's current state.
    pub fn state(&self) -> Result<VcpuState, KvmError> {
        const IF: u64 = 1 << 9;
        let regs = self.regs()?;
        let activity = match self.fd.get_mp_state().map(|state| state.mp_state) {
            Ok(KVM_MP_STATE_UNINITIALIZED) => Activity::NotStarted,
            Ok(KVM_MP_STATE_HALTED) => Activity::Halted,
            _ => Activity::Running,
        };
        Ok(VcpuState { activity, rip: regs.rip, takes_interrupts: regs.rflags & IF != 0 })
    }

    /// Returns the registers of a vCPU in ring 0, or None if it is in ring 3.
    pub fn kernel_registers(&self) -> Result<Option<KernelRegisters>, KvmError> {
        let sregs = self.sregs()?;
        if sregs.cs.dpl == 3 {
            return Ok(None);
        }
        let r = self.regs()?;
        let general = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        Ok(Some(KernelRegisters { rip: r.rip, general, gs_base: sregs.gs.base }))
    }

    /// Translates a guest-virtual address with the vCPU's current page tables. None if unmapped or on error.
    pub fn translate(&self, address: u64) -> Option<u64> {
        let translation = self.fd.translate_gva(address).ok()?;
        (translation.valid != 0).then_some(translation.physical_address)
    }

    /// Returns the SYSCALL entry point of the guest's kernel (MSR LSTAR, SDM vol. 4). None if unset, or on
    /// error.
    pub fn syscall_entry(&self) -> Option<u64> {
        const LSTAR: u32 = 0xc000_0082;
        let query = kvm_msr_entry { index: LSTAR, ..Default::default() };
        let mut msrs = Msrs::from_entries(&[query]).ok()?;
        let count = self.fd.get_msrs(&mut msrs).ok()?;
        let entry = msrs.as_slice().first().filter(|_| count == 1)?.data;
        (entry != 0).then_some(entry)
    }

    /// Prepares the calling thread so that [`signal::kick`] interrupts its `run`, even if the kick arrives
    /// before the thread is in `KVM_RUN`.
    pub fn arm_kick(&self) -> Result<(), KvmError> {
        let mask = SignalMask { len: 8, mask: signal::block_in_this_thread()? };
        // SAFETY: the kernel reads `len` and then `len` bytes after it, all within this struct, and keeps no
        // pointer.
        let result = unsafe { ioctl_with_ref(&self.fd, KVM_SET_SIGNAL_MASK(), &mask) };
        match result {
            0 => Ok(()),
            _ => Err(KvmError::Ioctl("KVM_SET_SIGNAL_MASK", Errno::last())),
        }
    }

    pub(super) fn file(&self) -> &VcpuFd {
        &self.fd
    }

    /// Enters the guest once without decoding the exit, to measure the cost of a bare `KVM_RUN`. For an `in`
    /// instruction, the guest reads the leftover data of the exit record.
    pub fn enter(&mut self) -> Result<(), KvmError> {
        self.kvm_run().map_err(ioctl("KVM_RUN"))
    }

    /// Issues the ioctl directly because `VcpuFd::run` of kvm-ioctls would also decode the exit.
    fn kvm_run(&mut self) -> Result<(), Errno> {
        // SAFETY: the request takes no argument. The kernel writes to the exit record's pages, which cannot
        // be borrowed now because of `&mut self`, and to guest memory, which outlives `self` and is accessed
        // only as volatile memory in Rust.
        match unsafe { call(&self.fd, KVM_RUN()) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Runs the guest until an exit to the VMM or a kick.
    pub fn run(&mut self) -> Result<Exit<'_>, KvmError> {
        if let Err(errno) = self.kvm_run() {
            return match errno.errno() {
                libc::EINTR => {
                    signal::consume();
                    Ok(Exit::Interrupted)
                }
                libc::EAGAIN => {
                    signal::consume();
                    Ok(Exit::NotStarted)
                }
                libc::EIO => Err(KvmError::VmDead),
                _ => Err(KvmError::Ioctl("KVM_RUN", errno)),
            };
        }
        exit::decode(self.pages.bytes()).ok_or(KvmError::ExitRecord)
    }
}

const _: () = assert!(mem::size_of::<SignalMask>() == 12);
