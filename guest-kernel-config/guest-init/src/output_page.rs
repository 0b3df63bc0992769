//! A page of this process at a known, fixed address in guest memory.

use core::ptr::NonNull;

use rustix::{
    fs::{self, Mode, OFlags},
    mm::{MapFlags, ProtFlags, mmap_anonymous},
};

/// Bytes in a page.
pub const SIZE: usize = 4096;

/// A locked page that is never unmapped.
pub struct OutputPage {
    bytes: NonNull<[u8; SIZE]>,
    frame: u32,
}

impl OutputPage {
    /// Maps and locks a page; `None` if this fails or the kernel does not report its frame.
    pub fn new() -> Option<Self> {
        // A locked page can only be moved by compaction, which can be disabled for such pages. A
        // kernel without compaction has no such file and moves no pages.
        let knob = c"/proc/sys/vm/compact_unevictable_allowed";
        if let Ok(knob) = fs::open(knob, OFlags::WRONLY, Mode::empty()) {
            rustix::io::write(knob, b"0").ok()?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Shared: a private page would be copied at the first write after a fork.
        let flags = MapFlags::SHARED | MapFlags::LOCKED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { mmap_anonymous(core::ptr::null_mut(), SIZE, protection, flags) }.ok()?;
        let bytes = NonNull::new(address.cast::<[u8; SIZE]>())?;
        // SAFETY: mapped just now. Writing to it allocates the page.
        unsafe { bytes.write([0; SIZE]) };
        Some(Self { bytes, frame: frame_of(address as u64)? })
    }

    pub fn frame(&self) -> u32 {
        self.frame
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: never unmapped, and borrowed once, because `self` is borrowed mutably.
        unsafe { self.bytes.as_mut() }
    }
}

/// The page frame of a virtual address, if known, from `/proc/self/pagemap` (bit 63: present, bits
/// 0-54: the frame; Documentation/admin-guide/mm/pagemap.rst of the kernel).
pub fn frame_of(address: u64) -> Option<u32> {
    let pagemap = fs::open(c"/proc/self/pagemap", OFlags::RDONLY, Mode::empty()).ok()?;
    let mut entry = [0; 8];
    fs::seek(&pagemap, fs::SeekFrom::Start(address / SIZE as u64 * 8)).ok()?;
    rustix::io::read(&pagemap, &mut entry).ok().filter(|count| *count == entry.len())?;
    let entry = u64::from_le_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)?.try_into().ok()
}
