//! What each vCPU says of its locks while it runs: the ground truth that tells a
//! lock-holder preemption from any other.
//!
//! The VMM places an array of [`Line`]s, one a vCPU by APIC id, in guest memory, and says
//! where by [`FEATURE_TELEMETRY`](crate::cpuid::FEATURE_TELEMETRY) (Linux) or in
//! [`Params::telemetry`](crate::payload::Params::telemetry) (payload). A vCPU writes the first
//! half of its own line (and two words of the second) by plain stores and reads the rest; the VMM
//! does the reverse. Nothing here is an atomic read-modify-write, so a line costs its vCPU a few
//! stores to cache lines that are its own.
//!
//! A lock is known by the guest-virtual address of its word, whose first 16 bits are the head
//! of a ticketlock (low bit: the slowpath flag): the VMM reads it there to tell how far from
//! being served a waiter is, and whether a lock said to be held still is. Of a lock without such
//! a head the address is given with its low bit set, and the ticket as zero.
//!
//! Order of a vCPU's stores (x86 keeps the order of stores; compilers must be told):
//! before it draws a ticket, [`Wait::Entering`], then `wait_lock`; once it knows that it must wait,
//! `wait_since`, then [`Wait::Spinning`] with the ticket; when served, `held_lock` and
//! `held_ticket` of the new depth, then `held`, then [`Wait::Nothing`]; after a release, `held`.
//! A vCPU that goes outside of a full queue says so before it draws: `wait_lock` and `wait_since`,
//! then [`Wait::Outside`], and [`Wait::Entering`] as soon as it goes on. A vCPU whose release has
//! to kick somebody says [`Wait::Kicking`] before the store to `held`, and puts the `wait*` fields
//! back after the kick. An interrupt handler that waits puts back those that it found.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::MAX_VCPUS;

/// Locks held at once that a line names; of more it only has the number.
pub const NAMED: usize = 3;

/// Bytes of all lines.
pub const SIZE: u64 = MAX_VCPUS as u64 * size_of::<Line>() as u64;

/// What a vCPU waits for: bits 7-0 of [`Line::wait`]. The ticket is in bits 31-16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// Nothing.
    Nothing = 0,
    /// It is about to draw a ticket, or has just drawn one.
    Entering = 1,
    /// It looks at the lock's head.
    Spinning = 2,
    /// It halts, or is about to.
    Halted = 3,
    /// It stands outside of the queue, which is full, and has no ticket; it halts, or is about to,
    /// or has been let in and has not gone on yet. The ticket is zero.
    Outside = 4,
    /// It has released the lock and is about to kick the waiter for the ticket, or one that stands
    /// outside: until it does they sleep, though the lock may be free.
    Kicking = 5,
}

impl Wait {
    /// The word for [`Line::wait`].
    pub const fn word(self, ticket: u16) -> u32 {
        self as u32 | (ticket as u32) << 16
    }

    /// What a word says: the state and the ticket. A state nobody knows is [`Wait::Nothing`].
    pub const fn parse(word: u32) -> (Wait, u16) {
        let wait = match word as u8 {
            1 => Wait::Entering,
            2 => Wait::Spinning,
            3 => Wait::Halted,
            4 => Wait::Outside,
            5 => Wait::Kicking,
            _ => Wait::Nothing,
        };
        (wait, (word >> 16) as u16)
    }
}

/// A named place in the guest's code: a `preempt_point`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Point {
    /// A waiter has published its record and not yet set the slowpath flag.
    BeforeFlag = 0,
    /// A waiter has set the flag, has looked once more, and is about to halt.
    FlagToHalt = 1,
    /// A holder has released the lock and not yet kicked the next in line.
    ReleaseToKick = 2,
    /// In the critical section of a benchmark.
    Critical = 3,
    /// In an interrupt handler.
    Interrupt = 4,
}

impl Point {
    /// All of them.
    pub const ALL: [Point; 5] = [
        Point::BeforeFlag,
        Point::FlagToHalt,
        Point::ReleaseToKick,
        Point::Critical,
        Point::Interrupt,
    ];

    /// Its bit in [`Line::points`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The point that a guest named by its number.
    pub const fn from_raw(raw: u32) -> Option<Point> {
        match raw {
            0..5 => Some(Self::ALL[raw as usize]),
            _ => None,
        }
    }
}

/// One vCPU's line: two cache lines, written from one side each.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line {
    /// Locks it holds.
    pub held: AtomicU32,
    /// [`Wait::word`].
    pub wait: AtomicU32,
    /// The lock of [`Line::wait`], while that says anything but nothing.
    pub wait_lock: AtomicU64,
    /// Its TSC when that wait began.
    pub wait_since: AtomicU64,
    /// The locks it holds, by depth: the first [`NAMED`].
    pub held_lock: [AtomicU64; NAMED],
    /// Its tickets of them.
    pub held_ticket: [AtomicU16; NAMED],
    /// Zero.
    pub reserved: AtomicU16,
    /// Its TSC at the release before its last `unlock_kick`.
    pub released_at: AtomicU64,

    /// VMM: give up the CPU (port [`YIELD`](crate::ports::YIELD)) at the next moment with no
    /// lock held or awaited. The vCPU clears it first.
    pub yield_wanted: AtomicU32,
    /// VMM: the [`Point`]s to report (port [`PREEMPT_POINT`](crate::ports::PREEMPT_POINT)), by
    /// [`Point::bit`].
    pub points: AtomicU32,
    /// VMM: a waiter that has looked so often without being served says so (port
    /// [`SPUN_OUT`](crate::ports::SPUN_OUT)), and counts anew. 0: never.
    pub spin_looks: AtomicU32,
    /// VMM: not zero while a schedule keeps this vCPU off its CPU, or it halts in the VMM. Zero
    /// where the host's scheduler decides, of which the VMM knows nothing.
    pub off_cpu: AtomicU32,
    /// Guest: its TSC at the first instruction after its last halt of `lock_spinning`.
    pub resumed_at: AtomicU64,
    /// Guest: locks that it has taken so far, contended or not. Zero where it does not count them
    /// (the payload counts its operations elsewhere).
    pub taken: AtomicU64,
    /// Zero.
    pub reserved3: [AtomicU64; 4],
}

// The C header repeats these offsets.
const _: () = {
    assert!(size_of::<Line>() == 128);
    assert!(core::mem::offset_of!(Line, yield_wanted) == 64);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_words_carry_state_and_ticket() {
        for wait in [
            Wait::Nothing,
            Wait::Entering,
            Wait::Spinning,
            Wait::Halted,
            Wait::Outside,
            Wait::Kicking,
        ] {
            assert_eq!(Wait::parse(wait.word(0xfffe)), (wait, 0xfffe));
        }
        assert_eq!(Wait::parse(0xab_00ff), (Wait::Nothing, 0xab), "a state nobody knows");
    }

    #[test]
    fn points_are_numbered_in_order() {
        for (raw, point) in (0..).zip(Point::ALL) {
            assert_eq!(Point::from_raw(raw), Some(point));
            assert_eq!(point.bit(), 1 << raw);
        }
        assert_eq!(Point::from_raw(5), None);
    }
}
