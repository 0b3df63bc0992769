//! The lines of source code that have made requests, on this thread.

use core::panic::Location;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A source file and a line in it.
pub type SourceLine = (&'static str, u32);

/// Number of locations remembered by their addresses: most requests repeat one of them.
const RECENT: usize = 256;

thread_local! {
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    static RECENT_LOCATIONS: [Cell<usize>; RECENT] = const { [const { Cell::new(0) }; RECENT] };
    static LINES: RefCell<BTreeSet<SourceLine>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records from now on.
pub fn record() {
    IS_RECORDING.set(true);
}

/// The lines recorded so far.
pub fn lines() -> BTreeSet<SourceLine> {
    LINES.with_borrow(Clone::clone)
}

/// Records the caller's line. Callers are `#[track_caller]`, up to the lock code.
#[inline(always)]
#[track_caller]
pub(crate) fn reach() {
    if IS_RECORDING.get() {
        insert(Location::caller());
    }
}

#[inline(never)]
fn insert(location: &'static Location<'static>) {
    let address = core::ptr::from_ref(location).addr();
    // Locations are 24 bytes long.
    let recent = RECENT_LOCATIONS.with(|all| all[address / 8 % RECENT].replace(address));
    if recent != address {
        LINES.with_borrow_mut(|lines| lines.insert((location.file(), location.line())));
    }
}
