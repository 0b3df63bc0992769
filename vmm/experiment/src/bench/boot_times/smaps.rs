//! Memory of a VMM process, excluding guest memory, from `/proc/PID/smaps`.

use std::fs;

use serde::Serialize;

use super::BenchError;
use base::units::ByteSize;

/// Memory of a VMM process, excluding the mappings of guest memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VmmMemory {
    /// Resident set in KiB: every mapped page, shared or not. This is the cost of the process if no other
    /// process runs the same program.
    pub rss_kib: u64,
    /// Proportional set size in KiB: each page is divided by the number of processes that map it.
    pub pss_kib: u64,
    /// Anonymous pages in KiB, which cannot be shared.
    pub anonymous_kib: u64,
}

/// Reads the memory of VMM process `pid`. Fails if smaps shows a size of guest memory other than `guest`.
pub fn vmm_memory(pid: u32, guest: ByteSize) -> Result<VmmMemory, BenchError> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).map_err(|error| BenchError::Read(path, error))?;
    let (vmm_memory, excluded) = sum(&text);
    if excluded == guest.0 {
        Ok(vmm_memory)
    } else {
        Err(BenchError::GuestMemory { mapped: ByteSize(excluded), expected: guest })
    }
}

#[derive(Default)]
struct MappedRegion {
    size: u64,
    nameless: bool,
    usage: VmmMemory,
}

/// Sums up the memory outside the guest, and the size of guest memory. A nameless mapping that is excluded
/// from core dumps is guest memory (`kvm::sys::advice`).
fn sum(smaps: &str) -> (VmmMemory, u64) {
    let (mut total, mut excluded) = (VmmMemory::default(), 0);
    let mut mapping = MappedRegion::default();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Rss:") => mapping.usage.rss_kib = kib(words.next()),
            Some("Pss:") => mapping.usage.pss_kib = kib(words.next()),
            Some("Anonymous:") => mapping.usage.anonymous_kib = kib(words.next()),
            // The last line of each mapping.
            Some("VmFlags:") if mapping.nameless && words.any(|flag| flag == "dd") => {
                excluded += mapping.size;
            }
            Some("VmFlags:") => {
                total.rss_kib += mapping.usage.rss_kib;
                total.pss_kib += mapping.usage.pss_kib;
                total.anonymous_kib += mapping.usage.anonymous_kib;
            }
            Some(first) => {
                // A mapping's first line: range, permissions, offset, device, inode, name.
                if let Some(size) = range_size(first) {
                    mapping = MappedRegion { size, nameless: words.nth(4).is_none(), ..mapping };
                }
            }
            None => {}
        }
    }
    (total, excluded)
}

fn kib(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn range_size(word: &str) -> Option<u64> {
    let (start, end) = word.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    address(end)?.checked_sub(address(start)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = include_str!("smaps_test.txt");

    #[test]
    fn only_guest_memory_is_excluded() {
        let (vmm_memory, excluded) = sum(SMAPS);
        assert_eq!(vmm_memory, VmmMemory { rss_kib: 416, pss_kib: 313, anonymous_kib: 16 });
        assert_eq!(excluded, 512 << 20);
    }

    #[test]
    fn this_process_has_no_guest() {
        assert!(vmm_memory(std::process::id(), ByteSize(0)).unwrap().pss_kib > 0);
        let error = vmm_memory(std::process::id(), ByteSize::mib(1)).unwrap_err();
        assert!(error.to_string().contains("1 MiB"), "{error}");
    }
}
