//! Detects accesses to freed memory.
//!
//! After a release the next owner may free the lock. Here nothing is really freed; an access to
//! memory that counts as freed panics. All threads of an engine's execution run on one thread of
//! the host, so they share a thread-local variable of the host.

use std::{cell::RefCell, ops::Range, thread};

thread_local! {
    static FREED: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Begins an execution: no memory is freed.
pub fn reset() {
    FREED.with_borrow_mut(Vec::clear);
}

/// Marks `object` as freed.
pub fn free<T>(object: &T) {
    let start = std::ptr::from_ref(object).addr();
    FREED.with_borrow_mut(|freed| freed.push(start..start + size_of::<T>()));
}

/// Checks an access to the atomic at `address`.
pub fn touch(address: usize) {
    let is_freed = FREED.with_borrow(|freed| freed.iter().any(|range| range.contains(&address)));
    assert!(!is_freed || thread::panicking(), "freed memory is touched");
}
