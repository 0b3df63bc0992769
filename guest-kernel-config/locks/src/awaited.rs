//! The words of memory that tell where a waiter without a ticket stands.

use crate::sync::AtomicU16;

/// What a waiter in a queue goes by. A watcher may read the words while the CPU waits, whether or not that CPU runs; of a
/// waiter whose CPU runs, what it finds may be outdated at once.
///
/// - A waiter with a name is next while bits 31 to 16 of the lock's first 32 bits are that name, and has been served
///   once its gate is more than 1.
/// - A waiter without one is next once bit 1 of its gate is set, and served if bit 0 of the lock's first word is then
///   clear: it may take the lock, unless a newcomer does so first.
///
/// Else others are served before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// The number by which the lock's word calls the waiter; zero: by none.
    pub name: u16,
    /// The node at whose gate the waiter looks, for [`RawLock::releases_before`](crate::RawLock::releases_before). Means
    /// nothing outside of the library.
    pub node: u16,
    /// The address of the gate, 16 bits.
    pub gate: usize,
}

impl Awaited {
    /// Of a waiter that looks at `gate`, that of `node`.
    pub(crate) fn new(name: u16, node: u16, gate: &AtomicU16) -> Self {
        Self { name, node, gate: core::ptr::from_ref(gate).addr() }
    }
}

/// Releases until a waiter is served that is next if `is_next`, and served if `is_served`: 2 or more, if it is
/// neither.
pub(crate) fn releases(is_next: bool, is_served: bool) -> Option<u16> {
    Some(match (is_served, is_next) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    })
}
