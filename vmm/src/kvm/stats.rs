//! KVM's own counters of a vCPU, from the binary statistics file
//! (`KVM_GET_STATS_FD`, kvm/api.rst 4.133).

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::FromRawFd, unix::fs::FileExt},
};

use kvm_bindings::KVMIO;
use vmm_sys_util::{errno::Error as Errno, ioctl::ioctl, ioctl_io_nr};

use super::{KvmError, Vcpu};

ioctl_io_nr!(KVM_GET_STATS_FD, KVMIO, 0xce);

/// `struct kvm_stats_header` in 32-bit words.
const HEADER_WORDS: usize = 6;
/// `struct kvm_stats_desc` without its name: flags u32, exponent i16, size u16,
/// offset u32, bucket_size u32.
const DESC_FIXED: usize = 16;

/// The statistics file of one vCPU. It outlives the vCPU's own descriptor.
#[derive(Debug)]
pub struct VcpuStats(File);

impl VcpuStats {
    /// Opens the statistics of this vCPU (Linux 5.14 and later).
    pub fn open(vcpu: &Vcpu) -> Result<Self, KvmError> {
        // SAFETY: the ioctl takes no argument and returns a new descriptor or -1.
        let fd = unsafe { ioctl(vcpu.file(), KVM_GET_STATS_FD()) };
        if fd < 0 {
            return Err(KvmError::Ioctl("KVM_GET_STATS_FD", Errno::last()));
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Every scalar counter by KVM's name (`hypercalls`, `halt_exits`, ...).
    pub fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        let mut header = [0_u8; HEADER_WORDS * 4];
        self.0.read_exact_at(&mut header, 0)?;
        let word = |index: usize| u32_at(&header, index * 4);
        let (name_size, count) = (word(1) as usize, word(2) as usize);
        let (desc_offset, data_offset) = (u64::from(word(4)), u64::from(word(5)));

        let mut descriptors = vec![0_u8; count * (DESC_FIXED + name_size)];
        self.0.read_exact_at(&mut descriptors, desc_offset)?;
        let mut counters = BTreeMap::new();
        for desc in descriptors.chunks_exact(DESC_FIXED + name_size) {
            let size = u16::from_le_bytes([desc[6], desc[7]]);
            if size != 1 {
                continue; // a histogram
            }
            let mut value = [0_u8; 8];
            self.0.read_exact_at(&mut value, data_offset + u64::from(u32_at(desc, 8)))?;
            let name = desc[DESC_FIXED..].split(|byte| *byte == 0).next().unwrap_or_default();
            counters.insert(String::from_utf8_lossy(name).into_owned(), u64::from_le_bytes(value));
        }
        Ok(counters)
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}
