//! Layout of guest RAM, and its description for the kernel.

use vm_memory::{
    GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, bitmap::Bitmap,
};

use super::layout;
use base::units::{ByteSize, Gpa};

/// The e820 type of a range (ACPI 15, table of address range types).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RangeType {
    /// Usable RAM.
    Ram = 1,
    /// Unusable as RAM.
    Reserved = 2,
    /// ACPI tables; usable as RAM after they have been read.
    Acpi = 3,
}

/// One entry of the e820 map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: Gpa,
    /// First address after the range.
    pub end: Gpa,
    /// Permitted use of the range (the type of its e820 entry).
    pub kind: RangeType,
}

/// Returns the RAM regions of a machine with `size` bytes: one, or two around the hole from 3
/// to 4 GiB. Suitable for `GuestMemoryMmap::from_ranges` and `kvm::sys::ram::map`.
pub fn regions(size: ByteSize) -> Vec<(GuestAddress, usize)> {
    let low = size.0.min(layout::HOLE_START.0);
    [(0, low), (layout::HOLE_END.0, size.0 - low)]
        .into_iter()
        .filter(|(_, len)| *len > 0)
        // On x86-64 the size of an address is 64 bits.
        .map(|(start, len)| (GuestAddress(start), len as usize))
        .collect()
}

/// Returns the first address after the RAM that begins at 0.
pub fn low_end(memory: &GuestMemoryMmap<impl Bitmap>) -> Gpa {
    let end = memory.find_region(GuestAddress(0)).map_or(0, GuestMemoryRegion::len);
    Gpa(end.min(layout::HOLE_START.0))
}

/// Returns the e820 map of `memory`, in ascending order.
pub fn e820(memory: &GuestMemoryMmap<impl Bitmap>) -> Vec<Range> {
    let range = |start, end, kind| Range { start, end, kind };
    let low_end = low_end(memory);
    let mut map = vec![
        range(Gpa(0), layout::LOW_RAM_END.min(low_end), RangeType::Ram),
        range(layout::TELEMETRY, layout::TELEMETRY_END, RangeType::Reserved),
        range(layout::ACPI, layout::ACPI_END, RangeType::Acpi),
        range(layout::HIGH_RAM, low_end, RangeType::Ram),
        range(layout::KVM_IDENTITY_MAP, layout::KVM_PAGES_END, RangeType::Reserved),
    ];
    let high = memory.iter().filter(|region| region.start_addr().0 >= layout::HOLE_END.0);
    map.extend(high.map(|region| {
        let start = region.start_addr().0;
        range(Gpa(start), Gpa(start + region.len()), RangeType::Ram)
    }));
    map.retain(|range| range.start < range.end);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_of(size: ByteSize) -> Vec<Range> {
        // The memory is never touched, so its size costs nothing.
        e820(&GuestMemoryMmap::<()>::from_ranges(&regions(size)).unwrap())
    }

    fn ram(map: &[Range]) -> u64 {
        map.iter().filter(|r| r.kind == RangeType::Ram).map(|r| r.end.0 - r.start.0).sum()
    }

    #[test]
    fn ram_skips_the_hole() {
        let gib = 1 << 30;
        let expected: [(u64, &[(u64, u64)]); 6] = [
            (0, &[]),
            (512 << 20, &[(0, 512 << 20)]),
            (3 * gib, &[(0, 3 * gib)]),
            (3 * gib + 4096, &[(0, 3 * gib), (4 * gib, 4096)]),
            (4 * gib, &[(0, 3 * gib), (4 * gib, gib)]),
            (64 * gib, &[(0, 3 * gib), (4 * gib, 61 * gib)]),
        ];
        for (size, ranges) in expected {
            let regions: Vec<_> =
                regions(ByteSize(size)).iter().map(|(at, len)| (at.0, *len as u64)).collect();
            assert_eq!(regions, ranges, "{size:#x}");
        }
    }

    #[test]
    fn e820_is_sorted_disjoint_and_complete() {
        for mib in [2, 512, 3071, 3072, 3073, 8192] {
            let map = map_of(ByteSize::mib(mib));
            assert!(map.windows(2).all(|w| w[0].end <= w[1].start), "{mib}: {map:x?}");
            // All memory is RAM except the legacy area from 639 KiB to 1 MiB.
            let legacy = layout::HIGH_RAM.0 - layout::LOW_RAM_END.0;
            assert_eq!(ram(&map), (mib << 20) - legacy, "{mib}");
        }
    }

    #[test]
    fn no_ram_in_the_hole() {
        for range in map_of(ByteSize::mib(6144)).iter().filter(|r| r.kind == RangeType::Ram) {
            assert!(range.end <= layout::HOLE_START || range.start >= layout::HOLE_END);
        }
    }
}
