//! One vCPU's file, and its step `run() -> Exit`.

use std::{fmt, mem, ptr, slice, sync::atomic::Ordering};

use kvm_bindings::{
    CpuId, KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_INTR, KVM_EXIT_IO,
    KVM_EXIT_IO_OUT, KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN, KVM_EXIT_SYSTEM_EVENT,
    KVM_INTERNAL_ERROR_DELIVERY_EV, KVM_INTERNAL_ERROR_EMULATION,
    KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES, KVM_INTERNAL_ERROR_SIMUL_EX,
    KVM_MP_STATE_HALTED, KVM_MP_STATE_RUNNABLE, KVM_MP_STATE_UNINITIALIZED, KVM_VCPU_TSC_CTRL,
    KVM_VCPU_TSC_OFFSET, Msrs, kvm_cpuid_entry2, kvm_device_attr, kvm_lapic_state, kvm_mp_state,
    kvm_msr_entry, kvm_regs, kvm_run, kvm_sregs, kvm_xcr, kvm_xcrs,
};
use kvm_ioctls::VcpuFd;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::{
    errno::Error as Errno,
    ioctl::{ioctl as call, ioctl_with_ref},
};

use super::{
    KvmError, ioctl,
    requests::{KVM_GET_DEVICE_ATTR, KVM_RUN, KVM_SET_SIGNAL_MASK},
    signal,
};
use base::units::{Nanos, VcpuId};

/// `struct kvm_signal_mask` followed by the kernel's 8-byte mask.
#[repr(C, packed)]
struct SignalMask {
    len: u32,
    mask: u64,
}

/// Why a vCPU left the guest. Borrowed data is the guest's operand.
#[derive(Debug)]
pub enum Exit<'a> {
    /// `out`, or a run of them (`rep outs`): `data.len() / width` operations.
    PortWrite {
        /// The port number.
        port: u16,
        /// Bytes per operation: 1, 2 or 4.
        width: u8,
        /// The operations' bytes, in order.
        data: &'a [u8],
    },
    /// `in`, or a run of them: fill `data`.
    PortRead {
        /// The port number.
        port: u16,
        /// Bytes per operation: 1, 2 or 4.
        width: u8,
        /// What the guest will read.
        data: &'a mut [u8],
    },
    /// A load from an address without memory: fill `data`.
    MmioRead(&'a mut [u8]),
    /// A store to an address without memory.
    MmioWrite,
    /// HLT on a machine without in-kernel local APICs.
    Halt,
    /// A signal ended the run.
    Interrupted,
    /// It waits for INIT and SIPI, as all vCPUs but the first do on machines with local APICs, or
    /// has just received them. KVM returns this at once and repeatedly as long as a kick is pending
    /// for its first HLT.
    NotStarted,
    /// The vCPU took a triple fault.
    TripleFault,
    /// KVM cannot emulate an instruction of the guest; the instruction's bytes, if KVM reported
    /// them.
    CannotEmulate(Vec<u8>),
    /// Any other internal error of KVM.
    InternalError(Suberror),
    /// The processor refused the guest's state.
    EntryRefused(u64),
    /// Any other exit, by KVM's exit reason.
    Other(u32),
}

/// The cause of a KVM_EXIT_INTERNAL_ERROR, by KVM's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suberror(pub u32);

impl fmt::Display for Suberror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            KVM_INTERNAL_ERROR_SIMUL_EX => "it met two exceptions at once",
            KVM_INTERNAL_ERROR_DELIVERY_EV => {
                "it could not deliver an exception or interrupt; the guest's tables or stack for it \
                 may lie where no memory is"
            }
            _ => "see KVM_EXIT_INTERNAL_ERROR in the kernel's kvm/api.rst",
        };
        write!(f, "suberror {}: {what}", self.0)
    }
}

/// The relation of a guest's time stamp counter to the host's.
#[derive(Debug, Default, Clone, Copy)]
pub struct TscClock {
    /// Guest counter minus host counter (kvm/devices/vcpu.rst, KVM_VCPU_TSC_OFFSET).
    pub offset: u64,
    /// Its frequency in kHz.
    pub khz: u64,
}

impl TscClock {
    /// How long ago the guest's counter showed `then`, when the host's shows `host`. None if that
    /// is in the future or more than an hour ago: a guest may claim anything.
    pub fn since(&self, then: u64, host: u64) -> Option<Nanos> {
        self.ticks_since(then, host).map(|ticks| Nanos(self.nanos(ticks) as u64))
    }

    /// [`TscClock::since`] in ticks.
    pub fn ticks_since(&self, then: u64, host: u64) -> Option<u64> {
        const HOUR: u128 = 3_600_000_000_000;
        let ago = host.wrapping_add(self.offset).wrapping_sub(then);
        (self.nanos(ago) < HOUR).then_some(ago)
    }

    fn nanos(&self, ticks: u64) -> u128 {
        u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1))
    }
}

/// One vCPU. `run` must be called only by the thread that called [`Vcpu::arm_kick`].
#[derive(Debug)]
pub struct Vcpu {
    id: VcpuId,
    fd: VcpuFd,
}

impl Vcpu {
    pub(super) fn new(id: VcpuId, fd: VcpuFd) -> Self {
        Self { id, fd }
    }

    /// Its index in the machine.
    pub fn id(&self) -> VcpuId {
        self.id
    }

    /// Sets what CPUID reports. Must precede the MSRs: KVM checks them against it.
    pub fn set_cpuid(&self, entries: &[kvm_cpuid_entry2]) -> Result<(), KvmError> {
        let cpuid = CpuId::from_entries(entries)
            .map_err(|_| KvmError::Capability("that many CPUID leaves"))?;
        self.fd.set_cpuid2(&cpuid).map_err(ioctl("KVM_SET_CPUID2"))
    }

    /// Sets model-specific registers.
    pub fn set_msrs(&self, entries: &[kvm_msr_entry]) -> Result<(), KvmError> {
        let msrs =
            Msrs::from_entries(entries).map_err(|_| KvmError::Capability("that many MSRs"))?;
        let taken = self.fd.set_msrs(&msrs).map_err(ioctl("KVM_SET_MSRS"))?;
        entries.get(taken).map_or(Ok(()), |refused| Err(KvmError::Msr(refused.index)))
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

    /// Lets it run from its registers at once, instead of waiting for INIT and SIPI as all vCPUs
    /// but the first do on machines with local APICs.
    pub fn set_runnable(&self) -> Result<(), KvmError> {
        let state = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
        self.fd.set_mp_state(state).map_err(ioctl("KVM_SET_MP_STATE"))
    }

    /// Is it still waiting for INIT and SIPI?
    pub fn awaits_start(&self) -> bool {
        let state = self.fd.get_mp_state().map(|state| state.mp_state);
        state.is_ok_and(|state| state == KVM_MP_STATE_UNINITIALIZED)
    }

    /// The relation of its time stamp counter to the host's. If KVM does not report the offset, it
    /// is taken as zero: software KVMs let ring 3 read the host's counter.
    pub fn tsc_clock(&self) -> Result<TscClock, KvmError> {
        let mut offset = 0_u64;
        let attribute = kvm_device_attr {
            group: KVM_VCPU_TSC_CTRL,
            attr: KVM_VCPU_TSC_OFFSET.into(),
            addr: ptr::from_mut(&mut offset).addr() as u64,
            ..Default::default()
        };
        // SAFETY: the kernel writes 8 bytes at `addr`, which is `offset`, or nothing if it fails.
        let result = unsafe { ioctl_with_ref(&self.fd, KVM_GET_DEVICE_ATTR(), &attribute) };
        let khz = self.fd.get_tsc_khz().map_err(ioctl("KVM_GET_TSC_KHZ"))?;
        Ok(TscClock { offset: if result == 0 { offset } else { 0 }, khz: khz.into() })
    }

    /// Is the guest in ring 3 (CS.DPL)? None if KVM does not say.
    pub fn is_in_user_mode(&self) -> Option<bool> {
        self.sregs().ok().map(|sregs| sregs.cs.dpl == 3)
    }

    /// Has it executed HLT and received no kick since? Only for machines with local APICs. (A
    /// pending interrupt shows only when it is entered again.)
    pub fn is_halted(&self) -> bool {
        self.fd.get_mp_state().is_ok_and(|state| state.mp_state == KVM_MP_STATE_HALTED)
    }

    /// A word of the per-CPU area that the guest's kernel has in GS, by its offset there. None
    /// while GS is not the kernel's: in ring 3, and in the first instructions of a kernel entry.
    pub fn per_cpu_word(&self, offset: u64, memory: &GuestMemoryMmap) -> Option<u32> {
        const KERNEL_HALF: u64 = 1 << 63;
        let sregs = self.sregs().ok()?;
        if sregs.cs.dpl == 3 || sregs.gs.base & KERNEL_HALF == 0 {
            return (sregs.cs.dpl == 3).then_some(0);
        }
        let place = self.fd.translate_gva(sregs.gs.base.wrapping_add(offset)).ok()?;
        let at = GuestAddress(place.physical_address);
        memory.load(at, Ordering::Relaxed).ok().filter(|_| place.valid != 0)
    }

    /// Prepares the calling thread so that [`signal::kick`] interrupts its `run`, even if it comes
    /// early.
    pub fn arm_kick(&self) -> Result<(), KvmError> {
        let mask = SignalMask { len: 8, mask: signal::block_in_this_thread()? };
        // SAFETY: the kernel reads `len` and then `len` bytes behind it, which is
        // this struct; it keeps no pointer.
        let result = unsafe { ioctl_with_ref(&self.fd, KVM_SET_SIGNAL_MASK(), &mask) };
        match result {
            0 => Ok(()),
            _ => Err(KvmError::Ioctl("KVM_SET_SIGNAL_MASK", Errno::last())),
        }
    }

    pub(super) fn file(&self) -> &VcpuFd {
        &self.fd
    }

    /// Enters the guest and returns for any reason, undecoded: measures the cost of a bare
    /// `KVM_RUN`. A port that the guest reads has the value that KVM left there.
    pub fn enter(&mut self) -> Result<(), KvmError> {
        self.kvm_run().map_err(ioctl("KVM_RUN"))
    }

    /// The ioctl itself. The one of kvm-ioctls would decode the exit an extra time.
    fn kvm_run(&mut self) -> Result<(), Errno> {
        // SAFETY: the request takes no argument. The kernel writes to the mapping
        // of `struct kvm_run`, which `&mut self` keeps from being borrowed now, and
        // to guest memory, which Rust sees as volatile only.
        match unsafe { call(&self.fd, KVM_RUN()) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Runs the guest until it needs something, or a kick arrives.
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
                _ => Err(KvmError::Ioctl("KVM_RUN", errno)),
            };
        }
        Ok(decode(self.fd.get_kvm_run()))
    }
}

/// Decodes KVM's exit record. kvm-ioctls drops the width of a port access, and thus the difference
/// between one `out` of 4 bytes and four of 1.
fn decode(run: &mut kvm_run) -> Exit<'_> {
    match run.exit_reason {
        KVM_EXIT_IO => decode_io(run),
        KVM_EXIT_MMIO => {
            // SAFETY: exit_reason says that `mmio` is the live union member.
            let mmio = unsafe { &mut run.__bindgen_anon_1.mmio };
            if mmio.is_write != 0 {
                return Exit::MmioWrite;
            }
            let len = (mmio.len as usize).min(mmio.data.len());
            Exit::MmioRead(&mut mmio.data[..len])
        }
        KVM_EXIT_HLT => Exit::Halt,
        KVM_EXIT_INTR => Exit::Interrupted,
        KVM_EXIT_SHUTDOWN | KVM_EXIT_SYSTEM_EVENT => Exit::TripleFault,
        KVM_EXIT_INTERNAL_ERROR => internal_error(run),
        KVM_EXIT_FAIL_ENTRY => {
            // SAFETY: exit_reason says that `fail_entry` is the live union member.
            let reason = unsafe { run.__bindgen_anon_1.fail_entry.hardware_entry_failure_reason };
            Exit::EntryRefused(reason)
        }
        other => Exit::Other(other),
    }
}

fn decode_io(run: &mut kvm_run) -> Exit<'_> {
    let base: *mut u8 = std::ptr::from_mut(run).cast();
    // SAFETY: exit_reason says that `io` is the live union member. KVM keeps
    // data_offset and size * count inside the pages it mapped for this vCPU
    // (kvm/api.rst, 5), which live as long as `run`'s borrow of the vCPU.
    let (io, data) = unsafe {
        let io = run.__bindgen_anon_1.io;
        let len = usize::from(io.size) * io.count as usize;
        (io, slice::from_raw_parts_mut(base.add(io.data_offset as usize), len))
    };
    if u32::from(io.direction) == KVM_EXIT_IO_OUT {
        Exit::PortWrite { port: io.port, width: io.size, data }
    } else {
        Exit::PortRead { port: io.port, width: io.size, data }
    }
}

/// KVM_INTERNAL_ERROR_EMULATION with flag bit 0 includes the instruction's bytes (`struct
/// kvm_run.emulation_failure`, kvm/api.rst 5).
fn internal_error(run: &kvm_run) -> Exit<'static> {
    const FLAG_BYTES: u64 = KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES as u64;
    // SAFETY: exit_reason says that `internal` is the live union member; all its
    // fields are plain integers.
    let internal = unsafe { run.__bindgen_anon_1.internal };
    if internal.suberror != KVM_INTERNAL_ERROR_EMULATION {
        return Exit::InternalError(Suberror(internal.suberror));
    }
    if internal.ndata < 3 || internal.data[0] & FLAG_BYTES == 0 {
        return Exit::CannotEmulate(Vec::new());
    }
    // data[1] starts with insn_size (u8), then up to 15 bytes.
    let raw: Vec<u8> = internal.data[1..4].iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = usize::from(raw[0]).min(15);
    Exit::CannotEmulate(raw[1..=len].to_vec())
}

const _: () = assert!(mem::size_of::<SignalMask>() == 12);

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit record of an internal error with these words.
    fn left(suberror: u32, data: &[u64]) -> kvm_run {
        let mut run = kvm_run { exit_reason: KVM_EXIT_INTERNAL_ERROR, ..kvm_run::default() };
        let mut internal = kvm_bindings::kvm_run__bindgen_ty_1__bindgen_ty_13::default();
        (internal.suberror, internal.ndata) = (suberror, data.len() as u32);
        internal.data[..data.len()].copy_from_slice(data);
        run.__bindgen_anon_1.internal = internal;
        run
    }

    #[test]
    fn only_a_failed_emulation_is_called_one() {
        let decoded = |suberror, data: &[u64]| format!("{:?}", decode(&mut left(suberror, data)));
        assert_eq!(decoded(1, &[1, 0x0000_3001_0f03, 0]), "CannotEmulate([15, 1, 48])");
        assert_eq!(decoded(1, &[1, u64::MAX, u64::MAX]), format!("CannotEmulate({:?})", [255; 15]));
        assert_eq!(decoded(1, &[0, 9, 9]), "CannotEmulate([])");
        assert_eq!(decoded(1, &[]), "CannotEmulate([])");
        assert_eq!(decoded(3, &[1, 2, 3]), "InternalError(Suberror(3))");
    }
}
