//! Per-vCPU counters of KVM, read from the binary statistics file (`KVM_GET_STATS_FD`, kvm/api.rst
//! 4.133).

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::FromRawFd, unix::fs::FileExt},
};

use vmm_sys_util::{errno::Error as Errno, ioctl::ioctl};

use base::host_counts::YieldCounts;

use super::{KvmError, Vcpu, requests::KVM_GET_STATS_FD};

/// `struct kvm_stats_header` in 32-bit words.
const HEADER_WORDS: usize = 6;
/// `struct kvm_stats_desc` without its name: flags u32, exponent i16, size u16, offset u32,
/// bucket_size u32.
const DESC_FIXED: usize = 16;

/// The statistics file of one vCPU. It remains valid after the vCPU's own descriptor is closed.
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
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Returns every scalar counter, keyed by KVM's name (`hypercalls`, `halt_exits`, ...).
    pub fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        let mut counters = BTreeMap::new();
        for (name, offset) in scalars(&self.0)? {
            let mut value = [0_u8; 8];
            self.0.read_exact_at(&mut value, offset)?;
            counters.insert(name, u64::from_le_bytes(value));
        }
        Ok(counters)
    }
}

/// Returns the name and file offset of each scalar counter.
fn scalars(file: &File) -> io::Result<Vec<(String, u64)>> {
    let mut header = [0_u8; HEADER_WORDS * 4];
    file.read_exact_at(&mut header, 0)?;
    let word = |index: usize| u32_at(&header, index * 4);
    let (name_size, count) = (word(1) as usize, word(2) as usize);
    let (desc_offset, data_offset) = (u64::from(word(4)), u64::from(word(5)));

    let mut descriptors = vec![0_u8; count * (DESC_FIXED + name_size)];
    file.read_exact_at(&mut descriptors, desc_offset)?;
    let scalars = descriptors.chunks_exact(DESC_FIXED + name_size).filter_map(|desc| {
        let size = u16::from_le_bytes([desc[6], desc[7]]);
        let name = desc[DESC_FIXED..].split(|byte| *byte == 0).next().unwrap_or_default();
        let offset = data_offset + u64::from(u32_at(desc, 8));
        // Entries of another size are histograms.
        (size == 1).then(|| (String::from_utf8_lossy(name).into_owned(), offset))
    });
    Ok(scalars.collect())
}

/// Names under which a KVM may count pause-loop exits. Mainline does not on x86 (as of Linux 7.0).
const PAUSE_EXITS: [&str; 2] = ["pause_exits", "ple_exits"];

/// KVM's pause and yield counters of one vCPU.
#[derive(Debug)]
pub struct Yields {
    file: File,
    pause_exits: Option<u64>,
    attempted: Option<u64>,
    successful: Option<u64>,
}

impl Yields {
    /// Locates the counters of this vCPU.
    pub fn open(vcpu: &Vcpu) -> Result<Self, KvmError> {
        let VcpuStats(file) = VcpuStats::open(vcpu)?;
        Ok(Self::from_file(file))
    }

    fn from_file(file: File) -> Self {
        let table = scalars(&file).unwrap_or_default();
        let offset = |names: &[&str]| {
            table.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, at)| *at)
        };
        Self {
            pause_exits: offset(&PAUSE_EXITS),
            attempted: offset(&["directed_yield_attempted"]),
            successful: offset(&["directed_yield_successful"]),
            file,
        }
    }

    /// Returns the current counts.
    pub fn read(&self) -> YieldCounts {
        let value = |offset: Option<u64>| {
            let mut value = [0; 8];
            self.file.read_exact_at(&mut value, offset?).ok()?;
            Some(u64::from_le_bytes(value))
        };
        YieldCounts {
            pause_exits: value(self.pause_exits),
            yields_attempted: value(self.attempted),
            yields_successful: value(self.successful),
        }
    }
}

/// Reports whether one vCPU is blocked in KVM's HLT. Cheap enough for frequent polling.
#[derive(Debug)]
pub struct Blocking {
    file: File,
    offset: u64,
}

impl Blocking {
    /// Opens the counter. None if it is absent (before Linux 5.16) or unreadable.
    pub fn open(vcpu: &Vcpu) -> Result<Option<Self>, KvmError> {
        let VcpuStats(file) = VcpuStats::open(vcpu)?;
        let offset = scalars(&file).ok().and_then(|counters| {
            counters.into_iter().find_map(|(name, offset)| (name == "blocking").then_some(offset))
        });
        Ok(offset.map(|offset| Self { file, offset }))
    }

    /// Returns a function that reports whether the vCPU is blocked right now.
    pub fn into_fn(self) -> Box<dyn Fn() -> bool + Send + Sync> {
        Box::new(move || self.is_blocked())
    }

    /// Whether the vCPU is blocked right now. False on error.
    pub fn is_blocked(&self) -> bool {
        let mut value = [0; 8];
        self.file.read_exact_at(&mut value, self.offset).is_ok() && u64::from_le_bytes(value) != 0
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Builds a statistics file with these counters, in the format of kvm/api.rst (4.133).
    fn file(counters: &[(&str, u64)]) -> File {
        const NAME: usize = 48;
        let count = counters.len() as u32;
        let descriptors = HEADER_WORDS as u32 * 4;
        let data = descriptors + count * (DESC_FIXED + NAME) as u32;
        let mut bytes = Vec::new();
        for word in [0, NAME as u32, count, 0, descriptors, data] {
            bytes.extend(word.to_le_bytes());
        }
        for (ix, (name, _)) in counters.iter().enumerate() {
            bytes.extend([0; 6]);
            bytes.extend(1_u16.to_le_bytes());
            bytes.extend((ix as u32 * 8).to_le_bytes());
            bytes.extend([0; 4]);
            let mut text = name.as_bytes().to_vec();
            text.resize(NAME, 0);
            bytes.extend(text);
        }
        bytes.extend(counters.iter().flat_map(|(_, value)| value.to_le_bytes()));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn yield_counters_are_read_by_name() {
        let mainline =
            [("exits", 7), ("directed_yield_attempted", 5), ("directed_yield_successful", 3)];
        let counts = Yields::from_file(file(&mainline)).read();
        assert_eq!((counts.yields_attempted, counts.yields_successful), (Some(5), Some(3)));
        assert_eq!(counts.pause_exits, None);
        let patched = Yields::from_file(file(&[("blocking", 1), ("ple_exits", 9)])).read();
        assert_eq!((patched.pause_exits, patched.yields_attempted), (Some(9), None));
    }
}
