//! Large and small tickets.

use crate::sync::{AtomicU8, AtomicU16, Ordering};
use crate::ticket::INC;

/// The width of a ticketlock's tickets: [`u16`] and [`u8`] as atomics, large and small.
///
/// Outside the lock's word a ticket is a `u16` with the valid bits [`Cell::MASK`].
pub trait Width: Cell {}

impl Width for AtomicU16 {}
impl Width for AtomicU8 {}

/// The operations of a [`Width`]: an atomic, accessed as if it had 16 bits. Not exported from the
/// crate.
pub trait Cell: Default + core::fmt::Debug + Send + Sync {
    /// The valid bits of a ticket.
    const MASK: u16;

    /// Whether the head is where an observer expects it: in the first 16 bits.
    const IS_OBSERVABLE: bool;

    /// Number of CPUs that can be counted: one less than there are tickets. With one CPU more, a
    /// full queue would look like an empty queue, and so to `try_lock` like a free lock.
    const CPUS: u32 = (Self::MASK / INC) as u32;

    /// The ticket drawn after `ticket`.
    #[inline]
    fn after(ticket: u16) -> u16 {
        ticket.wrapping_add(INC) & Self::MASK
    }

    /// Number of tickets from `from` to `to`.
    #[inline]
    fn distance(from: u16, to: u16) -> u16 {
        (to.wrapping_sub(from) & Self::MASK) / INC
    }

    /// The ticket as passed to an observer.
    #[inline]
    fn for_observer(ticket: u16) -> Option<u16> {
        Self::IS_OBSERVABLE.then_some(ticket)
    }

    /// See the standard library's atomics.
    #[track_caller]
    fn load(&self, order: Ordering) -> u16;
    /// See the standard library's atomics.
    #[track_caller]
    fn store(&self, value: u16, order: Ordering);
    /// See the standard library's atomics.
    #[track_caller]
    fn fetch_add(&self, value: u16, order: Ordering) -> u16;
    /// See the standard library's atomics.
    #[track_caller]
    fn fetch_or(&self, value: u16, order: Ordering) -> u16;
    /// See the standard library's atomics.
    #[track_caller]
    fn fetch_and(&self, value: u16, order: Ordering) -> u16;
    /// See the standard library's atomics.
    #[track_caller]
    fn compare_exchange(
        &self,
        from: u16,
        to: u16,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u16, u16>;
}

macro_rules! cell {
    ($atomic:ident, $value:ty, $is_observable:expr) => {
        impl Cell for $atomic {
            const MASK: u16 = <$value>::MAX as u16;
            const IS_OBSERVABLE: bool = $is_observable;

            #[inline]
            fn load(&self, order: Ordering) -> u16 {
                $atomic::load(self, order).into()
            }

            #[inline]
            fn store(&self, value: u16, order: Ordering) {
                $atomic::store(self, value as $value, order);
            }

            #[inline]
            fn fetch_add(&self, value: u16, order: Ordering) -> u16 {
                $atomic::fetch_add(self, value as $value, order).into()
            }

            #[inline]
            fn fetch_or(&self, value: u16, order: Ordering) -> u16 {
                $atomic::fetch_or(self, value as $value, order).into()
            }

            #[inline]
            fn fetch_and(&self, value: u16, order: Ordering) -> u16 {
                $atomic::fetch_and(self, value as $value, order).into()
            }

            #[inline]
            fn compare_exchange(
                &self,
                from: u16,
                to: u16,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u16, u16> {
                $atomic::compare_exchange(self, from as $value, to as $value, success, failure)
                    .map(u16::from)
                    .map_err(u16::from)
            }
        }
    };
}

cell!(AtomicU16, u16, true);
cell!(AtomicU8, u8, false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tickets_are_counted_modulo_256() {
        assert_eq!(AtomicU8::after(0xfe), 0);
        assert_eq!(AtomicU8::distance(0xfc, 4), 4);
        assert_eq!(AtomicU16::after(0xfe), 0x100);
        assert_eq!(AtomicU16::distance(0xfffc, 4), 4);
    }

    #[test]
    fn a_full_queue_differs_from_an_empty_queue() {
        assert_eq!((AtomicU8::CPUS, AtomicU16::CPUS), (127, 32767));
        let tail = (AtomicU8::CPUS as u16 * INC) & AtomicU8::MASK;
        assert_eq!(AtomicU8::distance(0, tail), 127);
        assert_eq!(AtomicU8::distance(0, AtomicU8::after(tail)), 0);
    }
}
