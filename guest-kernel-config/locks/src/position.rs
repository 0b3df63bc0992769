//! The memory words that show the position of a waiter without a ticket.

use crate::sync::AtomicU16;

/// The memory locations that show a waiter's position in a queue. An observer may read the words while the
/// CPU waits, whether or not that CPU is running; if it is running, the values may be outdated at once.
///
/// - A waiter with a name is next in line while bits 31 to 16 of the lock's first 32 bits are that name, and
///   has been served once its gate is more than 1.
/// - A waiter without a name is next in line once bit 1 of its gate is set. It has been served if bit 0 of
///   the lock's first word is then clear: it may take the lock, unless a newcomer is faster.
///
/// In all other cases other CPUs are served before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The waiter's name in the lock's word; zero: none.
    pub name: u16,
    /// The node at whose gate the waiter spins, for
    /// [`RawLock::releases_before`](crate::RawLock::releases_before). Has no meaning outside the library.
    pub node: u16,
    /// The address of the gate, the 16 bits that the waiter polls.
    pub gate: usize,
}

impl Position {
    /// Describes a waiter that spins at `gate`, the gate of `node`.
    pub(crate) fn new(name: u16, node: u16, gate: &AtomicU16) -> Self {
        Self { name, node, gate: core::ptr::from_ref(gate).addr() }
    }
}

/// Number of releases until a waiter is served: 0 if `is_served`, 1 if `is_next`, otherwise 2 for two or
/// more.
pub(crate) fn releases(is_next: bool, is_served: bool) -> Option<u16> {
    Some(match (is_served, is_next) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    })
}
