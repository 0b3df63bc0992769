//! A heap that never frees: process 1 allocates only at its start.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Room for argv and the environment. Untouched pages cost nothing.
const SIZE: usize = 4 << 20;

#[repr(C, align(16))]
struct Heap {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: `used` hands out every byte of `bytes` at most once.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap { bytes: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) };

// SAFETY: blocks are disjoint parts of `bytes`, aligned as requested, and never reused.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.bytes.get() as usize;
        let place = |used: usize| {
            let block = (start + used).checked_next_multiple_of(layout.align())? - start;
            let end = block.checked_add(layout.size())?;
            (end <= SIZE).then_some((block, end))
        };
        match self.used.fetch_update(Relaxed, Relaxed, |used| place(used).map(|(_, end)| end)) {
            Ok(used) => match place(used) {
                // SAFETY: `place` keeps the block within `bytes`.
                Some((block, _)) => unsafe { self.bytes.get().cast::<u8>().add(block) },
                None => ptr::null_mut(),
            },
            Err(_) => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}
