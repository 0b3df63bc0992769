//! The slots of the ticketlock with a waiting array.

use crate::sync::{AtomicU16, MAX_CPUS};
use crate::ticket::INC;
use crate::wait::LockKey;

/// Slots of an array: a power of two. The paper's array has 4096.
const SLOTS: usize = (8 * MAX_CPUS).next_power_of_two();

/// Slots per cache line of 64 bytes.
const SLOTS_PER_LINE: usize = 64 / size_of::<AtomicU16>();

/// The slots where distant waiters of all [`TwaLock`](crate::TwaLock)s wait for a change.
#[derive(Debug)]
pub(crate) struct WaitingArray([AtomicU16; SLOTS]);

impl WaitingArray {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU16::new(0) }; SLOTS])
    }

    /// The slot of a ticket. Adjacent tickets use different cache lines; the slots depend on
    /// the lock. Waiters that share a slot make unnecessary checks of the head.
    pub(crate) fn slot(&self, lock: LockKey, ticket: u16) -> &AtomicU16 {
        let ticket = usize::from(ticket / INC);
        let place = ticket.wrapping_mul(SLOTS_PER_LINE + 1) ^ (lock.address() / 4);
        &self.0[place % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_tickets_use_different_cache_lines() {
        let array = WaitingArray::new();
        let line = |ticket| {
            let slot: *const AtomicU16 = array.slot(LockKey::new(&array), ticket);
            (slot.addr() - array.0.as_ptr().addr()) / 64
        };
        for ticket in (0..=u16::MAX).step_by(usize::from(INC)) {
            assert_ne!(line(ticket), line(ticket.wrapping_add(INC)), "{ticket}");
        }
    }
}
