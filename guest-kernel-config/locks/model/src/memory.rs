//! Memory that has been freed.
//!
//! After a release the next owner may free the lock. Here nothing is really freed; touching what
//! counts as such is a panic. All threads of an engine's execution are one thread of the host, so
//! that a thread-local of the host is what they share.

use std::{cell::RefCell, ops::Range, thread};

thread_local! {
    static FREED: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Nothing is freed yet: an execution begins.
pub fn reset() {
    FREED.with_borrow_mut(Vec::clear);
}

/// Nobody may touch `object` again.
pub fn free<T>(object: &T) {
    let start = std::ptr::from_ref(object).addr();
    FREED.with_borrow_mut(|freed| freed.push(start..start + size_of::<T>()));
}

/// An atomic at `address` is touched.
pub fn touch(address: usize) {
    let is_freed = FREED.with_borrow(|freed| freed.iter().any(|range| range.contains(&address)));
    assert!(!is_freed || thread::panicking(), "freed memory is touched");
}
