//! Decodes KVM's exit record, from the pages that KVM shares with user space.
//!
//! Every field of a record is untrusted: offsets and lengths are checked against the pages before
//! use.

use std::{fmt, mem::offset_of, ops::Range};

use kvm_bindings::{
    KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_INTR, KVM_EXIT_IO,
    KVM_EXIT_IO_OUT, KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN, KVM_EXIT_SYSTEM_EVENT, KVM_EXIT_X86_RDMSR,
    KVM_EXIT_X86_WRMSR, KVM_INTERNAL_ERROR_DELIVERY_EV, KVM_INTERNAL_ERROR_EMULATION,
    KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES, KVM_INTERNAL_ERROR_SIMUL_EX, kvm_run,
    kvm_run__bindgen_ty_1__bindgen_ty_2 as FailEntry, kvm_run__bindgen_ty_1__bindgen_ty_4 as Io,
    kvm_run__bindgen_ty_1__bindgen_ty_6 as Mmio, kvm_run__bindgen_ty_1__bindgen_ty_13 as Internal,
    kvm_run__bindgen_ty_1__bindgen_ty_23 as Msr,
};

/// The reason for a VM exit to user space. Borrowed data is the guest's operand.
#[derive(Debug)]
pub enum Exit<'a> {
    /// `out`, or a string operation (`rep outs`): `data.len() / width` operations.
    PortWrite {
        /// The port number.
        port: u16,
        /// Bytes per operation: 1, 2 or 4.
        width: u8,
        /// The data of all operations, in order.
        data: &'a [u8],
    },
    /// `in`, or a string operation. The handler must fill `data`.
    PortRead {
        /// The port number.
        port: u16,
        /// Bytes per operation: 1, 2 or 4.
        width: u8,
        /// Buffer for the values that the guest reads.
        data: &'a mut [u8],
    },
    /// A load from an address without memory. The handler must fill the buffer.
    MmioRead(&'a mut [u8]),
    /// A store to an address without memory.
    MmioWrite,
    /// WRMSR to the steal-time MSR ([`KvmVm::intercept_steal_time`](crate::KvmVm::intercept_steal_time)).
    StealTimeWrite {
        /// The operand.
        value: u64,
        /// Set by the handler to 1 if the guest takes #GP.
        refused: &'a mut u8,
    },
    /// RDMSR of the steal-time MSR. The handler must fill the eight bytes.
    StealTimeRead(&'a mut [u8]),
    /// HLT in a VM without in-kernel local APICs.
    Halt,
    /// A signal interrupted the run.
    Interrupted,
    /// The vCPU waits for INIT and SIPI (with local APICs, all except the first do), has just received
    /// them, or cannot be run (`KvmError::run_refused`). While a kick is pending for its first HLT, every
    /// run returns this at once.
    NotStarted,
    /// The vCPU took a triple fault, or KVM reports a system event.
    TripleFault,
    /// KVM cannot emulate this guest instruction (empty if KVM did not report its bytes).
    CannotEmulate(Vec<u8>),
    /// Any other internal KVM error.
    InternalError(Suberror),
    /// The processor rejected the guest state at VM entry. Contains its failure reason.
    EntryRefused(u64),
    /// Any other exit. Contains KVM's exit reason.
    Other(u32),
}

/// The cause of a KVM_EXIT_INTERNAL_ERROR, by KVM's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suberror(pub u32);

impl fmt::Display for Suberror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.0 {
            KVM_INTERNAL_ERROR_SIMUL_EX => "two simultaneous exceptions",
            KVM_INTERNAL_ERROR_DELIVERY_EV => {
                "cannot deliver an exception or interrupt; the guest's descriptor tables or stack \
                 may be outside its memory"
            }
            _ => "see KVM_EXIT_INTERNAL_ERROR in the kernel's kvm/api.rst",
        };
        write!(f, "suberror {}: {cause}", self.0)
    }
}

/// MSR_KVM_STEAL_TIME (Documentation/virt/kvm/x86/msr.rst).
pub const MSR_STEAL_TIME: u32 = 0x4b56_4d03;

/// Offset of the union in `struct kvm_run`.
const UNION: usize = offset_of!(kvm_run, __bindgen_anon_1);

/// Decodes an exit record. Returns None if it refers to bytes outside `pages`, which no correct KVM
/// does. kvm-ioctls drops the width of a port access and therefore cannot distinguish one 4-byte
/// `out` from four 1-byte ones.
pub fn decode(pages: &mut [u8]) -> Option<Exit<'_>> {
    Some(match u32_at(pages, offset_of!(kvm_run, exit_reason))? {
        KVM_EXIT_IO => return decode_io(pages),
        KVM_EXIT_MMIO => return decode_mmio(pages),
        reason @ (KVM_EXIT_X86_RDMSR | KVM_EXIT_X86_WRMSR) => return decode_msr(pages, reason),
        KVM_EXIT_HLT => Exit::Halt,
        KVM_EXIT_INTR => Exit::Interrupted,
        KVM_EXIT_SHUTDOWN | KVM_EXIT_SYSTEM_EVENT => Exit::TripleFault,
        KVM_EXIT_INTERNAL_ERROR => return internal_error(pages),
        KVM_EXIT_FAIL_ENTRY => Exit::EntryRefused(u64_at(
            pages,
            UNION + offset_of!(FailEntry, hardware_entry_failure_reason),
        )?),
        reason => Exit::Other(reason),
    })
}

fn decode_io(pages: &mut [u8]) -> Option<Exit<'_>> {
    let direction = array_at::<1>(pages, UNION + offset_of!(Io, direction))?[0];
    let width = array_at::<1>(pages, UNION + offset_of!(Io, size))?[0];
    let port = u16::from_le_bytes(array_at(pages, UNION + offset_of!(Io, port))?);
    let count = u32_at(pages, UNION + offset_of!(Io, count))?;
    let at = u64_at(pages, UNION + offset_of!(Io, data_offset))?;
    let len = usize::from(width).checked_mul(usize::try_from(count).ok()?)?;
    let data = pages.get_mut(range(usize::try_from(at).ok()?, len)?)?;
    Some(match u32::from(direction) {
        KVM_EXIT_IO_OUT => Exit::PortWrite { port, width, data },
        _ => Exit::PortRead { port, width, data },
    })
}

fn decode_mmio(pages: &mut [u8]) -> Option<Exit<'_>> {
    const MAX_LEN: usize = 8;
    if array_at::<1>(pages, UNION + offset_of!(Mmio, is_write))? != [0] {
        return Some(Exit::MmioWrite);
    }
    let len = u32_at(pages, UNION + offset_of!(Mmio, len))? as usize;
    let data = range(UNION + offset_of!(Mmio, data), len.min(MAX_LEN))?;
    pages.get_mut(data).map(Exit::MmioRead)
}

fn decode_msr(pages: &mut [u8], reason: u32) -> Option<Exit<'_>> {
    const DATA: usize = UNION + offset_of!(Msr, data);
    if u32_at(pages, UNION + offset_of!(Msr, index))? != MSR_STEAL_TIME {
        return Some(Exit::Other(reason));
    }
    Some(if reason == KVM_EXIT_X86_RDMSR {
        Exit::StealTimeRead(pages.get_mut(range(DATA, size_of::<u64>())?)?)
    } else {
        let value = u64_at(pages, DATA)?;
        Exit::StealTimeWrite { value, refused: pages.get_mut(UNION + offset_of!(Msr, error))? }
    })
}

/// KVM_INTERNAL_ERROR_EMULATION includes the instruction's bytes if flag bit 0 is set (`struct
/// kvm_run.emulation_failure`, kvm/api.rst 5).
fn internal_error(pages: &[u8]) -> Option<Exit<'static>> {
    const FLAG_BYTES: u64 = KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES as u64;
    const DATA: usize = UNION + offset_of!(Internal, data);
    let suberror = u32_at(pages, UNION + offset_of!(Internal, suberror))?;
    if suberror != KVM_INTERNAL_ERROR_EMULATION {
        return Some(Exit::InternalError(Suberror(suberror)));
    }
    let words = u32_at(pages, UNION + offset_of!(Internal, ndata))?;
    if words < 3 || u64_at(pages, DATA)? & FLAG_BYTES == 0 {
        return Some(Exit::CannotEmulate(Vec::new()));
    }
    // The second word starts with insn_size (u8), followed by up to 15 bytes.
    let [size, bytes @ ..] = array_at::<16>(pages, DATA + 8)?;
    let len = usize::from(size).min(bytes.len());
    Some(Exit::CannotEmulate(bytes[..len].to_vec()))
}

fn range(at: usize, len: usize) -> Option<Range<usize>> {
    Some(at..at.checked_add(len)?)
}

fn array_at<const N: usize>(pages: &[u8], at: usize) -> Option<[u8; N]> {
    pages.get(range(at, N)?)?.try_into().ok()
}

fn u32_at(pages: &[u8], at: usize) -> Option<u32> {
    array_at(pages, at).map(u32::from_le_bytes)
}

fn u64_at(pages: &[u8], at: usize) -> Option<u64> {
    array_at(pages, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of a vCPU's mapping on x86: the exit record, port I/O data and the MMIO ring.
    const MAPPED: usize = 3 << 12;

    fn put(pages: &mut [u8], at: usize, bytes: &[u8]) {
        pages[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn exit_record(reason: u32) -> Vec<u8> {
        let mut pages = vec![0; MAPPED];
        put(&mut pages, offset_of!(kvm_run, exit_reason), &reason.to_le_bytes());
        pages
    }

    fn decoded(pages: &mut [u8]) -> String {
        format!("{:?}", decode(pages))
    }

    #[test]
    fn internal_errors_are_distinguished_from_failed_emulation() {
        let failed = |suberror: u32, data: &[u64]| {
            let mut pages = exit_record(KVM_EXIT_INTERNAL_ERROR);
            put(&mut pages, UNION + offset_of!(Internal, suberror), &suberror.to_le_bytes());
            let words = (data.len() as u32).to_le_bytes();
            put(&mut pages, UNION + offset_of!(Internal, ndata), &words);
            for (ix, word) in data.iter().enumerate() {
                put(&mut pages, UNION + offset_of!(Internal, data) + 8 * ix, &word.to_le_bytes());
            }
            decoded(&mut pages)
        };
        assert_eq!(failed(1, &[1, 0x0000_3001_0f03, 0]), "Some(CannotEmulate([15, 1, 48]))");
        let longest = format!("Some(CannotEmulate({:?}))", [255; 15]);
        assert_eq!(failed(1, &[1, u64::MAX, u64::MAX]), longest);
        assert_eq!(failed(1, &[0, 9, 9]), "Some(CannotEmulate([]))");
        assert_eq!(failed(1, &[]), "Some(CannotEmulate([]))");
        assert_eq!(failed(3, &[1, 2, 3]), "Some(InternalError(Suberror(3)))");
    }

    fn io(direction: u32, width: u8, count: u32, at: u64) -> Vec<u8> {
        let mut pages = exit_record(KVM_EXIT_IO);
        put(&mut pages, UNION + offset_of!(Io, direction), &[direction as u8]);
        put(&mut pages, UNION + offset_of!(Io, size), &[width]);
        put(&mut pages, UNION + offset_of!(Io, port), &0x3f8_u16.to_le_bytes());
        put(&mut pages, UNION + offset_of!(Io, count), &count.to_le_bytes());
        put(&mut pages, UNION + offset_of!(Io, data_offset), &at.to_le_bytes());
        pages
    }

    #[test]
    fn reads_port_data_at_the_reported_offset() {
        let mut pages = io(KVM_EXIT_IO_OUT, 2, 2, 4096);
        put(&mut pages, 4096, &[1, 2, 3, 4]);
        let write = "Some(PortWrite { port: 1016, width: 2, data: [1, 2, 3, 4] })";
        assert_eq!(decoded(&mut pages), write);
        let read = "Some(PortRead { port: 1016, width: 1, data: [0] })";
        assert_eq!(decoded(&mut io(0, 1, 1, 4096)), read);
    }

    #[test]
    fn rejects_data_outside_the_pages() {
        let end = MAPPED as u64;
        assert!(decode(&mut io(0, 4, 1, end - 4)).is_some());
        for (width, count, at) in [
            (4, 1, end - 3),
            (1, 1, end),
            (4, u32::MAX, 4096),
            (255, u32::MAX, 0),
            (1, 1, u64::MAX),
            (1, 8, u64::MAX - 3),
        ] {
            assert!(decode(&mut io(0, width, count, at)).is_none(), "{width} * {count} at {at}");
        }
    }

    #[test]
    fn truncated_records_are_not_read_beyond_their_end() {
        for reason in 0..40 {
            let record = exit_record(reason);
            for end in 0..400 {
                let _ = decode(&mut record[..end].to_vec());
            }
        }
    }

    #[test]
    fn steal_time_msr_is_decoded_and_others_are_not() {
        let msr = |reason, index: u32| {
            let mut pages = exit_record(reason);
            put(&mut pages, UNION + offset_of!(Msr, index), &index.to_le_bytes());
            put(&mut pages, UNION + offset_of!(Msr, data), &0x1041_u64.to_le_bytes());
            pages
        };
        let mut pages = msr(KVM_EXIT_X86_WRMSR, MSR_STEAL_TIME);
        let Some(Exit::StealTimeWrite { value: 0x1041, refused }) = decode(&mut pages) else {
            panic!("{}", decoded(&mut pages))
        };
        *refused = 1;
        assert_eq!(pages[UNION + offset_of!(Msr, error)], 1);
        let read = decoded(&mut msr(KVM_EXIT_X86_RDMSR, MSR_STEAL_TIME));
        assert_eq!(read, "Some(StealTimeRead([65, 16, 0, 0, 0, 0, 0, 0]))");
        for reason in [KVM_EXIT_X86_RDMSR, KVM_EXIT_X86_WRMSR] {
            assert_eq!(decoded(&mut msr(reason, 0x10)), format!("Some(Other({reason}))"));
        }
    }

    #[test]
    fn a_load_has_at_most_eight_bytes() {
        let mut pages = exit_record(KVM_EXIT_MMIO);
        put(&mut pages, UNION + offset_of!(Mmio, len), &u32::MAX.to_le_bytes());
        assert_eq!(decoded(&mut pages), "Some(MmioRead([0, 0, 0, 0, 0, 0, 0, 0]))");
        put(&mut pages, UNION + offset_of!(Mmio, is_write), &[1]);
        assert_eq!(decoded(&mut pages), "Some(MmioWrite)");
    }
}
