//! A global allocator that prints one line and ends the program when out of memory.

use std::alloc::{GlobalAlloc, Layout, System};

use super::fatal;

/// The system allocator. When it fails, Rust would abort and leave the terminal modes changed.
#[derive(Debug)]
pub struct Heap;

fn or_exit(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        fatal::exit_with("pvticket: out of memory: check the limits (ulimit -v, ulimit -d)");
    }
    memory
}

// SAFETY: each call is forwarded unchanged, under the caller's contract.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_exit(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_exit(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        or_exit(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
