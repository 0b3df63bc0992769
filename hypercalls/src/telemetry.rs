//! The lock state that each vCPU publishes while it runs. It distinguishes lock-holder preemptions from other
//! preemptions.
//!
//! The VMM places an array of [`Line`]s, one per vCPU by APIC id, in guest memory and announces its address
//! by [`FEATURE_TELEMETRY`](crate::cpuid::FEATURE_TELEMETRY) (Linux) or in
//! [`Params::telemetry`](crate::payload::Params::telemetry) (payload). A vCPU writes the first half of its
//! own line, and the guest's words in the second half, by plain stores and reads the rest; the VMM does the
//! reverse. There are no atomic read-modify-writes, so a line costs its vCPU a few stores to its own cache
//! lines.
//!
//! A lock is identified by the guest-virtual address of its word, whose first 16 bits are the head of a
//! ticketlock (low bit: the slowpath flag). From the head the VMM determines how many waiters are ahead of a
//! waiter, and whether a lock published as held is still held. For a lock without such a head the low bit of the
//! address is set ([`NO_HEAD`]), and the ticket of a waiter is a name, or zero: see [`releases_before`]. If
//! the next bit is set, too ([`QUEUED_LOCK`]), it is one of mainline Linux's queued spinlocks: the VMM reads
//! whether it is held (byte 0) and whether a waiter is pending (bit 8), and the ticket of a waiter is its
//! [rank](QUEUED_BEHIND).
//!
//! Order of a vCPU's stores (x86 keeps the order of stores; compilers need barriers): before it draws a
//! ticket, [`Wait::Entering`], then `wait_lock`; once it knows that it must wait, `wait_since`, then
//! [`Wait::Spinning`] with the ticket; when served, `held_lock` and `held_ticket` of the new depth, then
//! `held`, then [`Wait::Nothing`]; after a release, `held`. A vCPU that has to wait outside a full queue
//! publishes that before it draws a ticket: `wait_lock` and `wait_since`, then [`Wait::Throttled`], and
//! [`Wait::Entering`] as soon as it continues. A vCPU whose release has to kick a waiter publishes
//! [`Wait::Kicking`] before the store to `held`, and restores the `wait*` fields after the kick. An interrupt
//! handler that waits restores the fields that it found.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::MAX_VCPUS;

/// Number of held locks that a line identifies; deeper ones are only counted.
pub const MAX_NAMED: usize = 3;

/// This bit of a lock's address is set for a lock without a head that the VMM could read.
pub const NO_HEAD: u64 = 1;

/// These bits of a lock's address are set for a queued spinlock (`struct qspinlock`).
pub const QUEUED_LOCK: u64 = 3;

/// Rank of a waiter for a queued spinlock: the next owner. It has set the pending bit, which only it clears.
pub const QUEUED_PENDING: u16 = 2;
/// The first in a PV queued lock's queue, which is the next owner and may set the pending bit.
pub const QUEUED_PV_HEAD: u16 = 3;
/// The first in the queue: next, or next after a pending waiter.
pub const QUEUED_HEAD: u16 = 4;
/// Behind the head and any pending waiter, or about to join. The CPU that joined last is in the lock's word.
pub const QUEUED_BEHIND: u16 = 6;
/// Undecided whether to join the queue: it may just have set the pending bit.
pub const QUEUED_JOINING: u16 = 8;

/// Number of releases until a waiter for a lock without a head is served: 0 if it has been served, 2 for two
/// or more. `word` is the lock's first 32 bits, `gate` the 16 bits at [`Line::queue_node`], if that is
/// nonzero.
///
/// - With a name, a waiter is next while bits 31-16 of the word equal it, and served once `gate` exceeds 1.
/// - With `name` zero, a waiter is next once bit 1 of the gate is set, and served if bit 0 of the word is
///   then clear.
pub const fn releases_before(name: u16, word: u32, gate: u16) -> u16 {
    let (is_next, is_served) = match name {
        0 => (gate & 2 != 0, gate & 2 != 0 && word & 1 == 0),
        _ => ((word >> 16) as u16 == name, gate > 1),
    };
    match (is_served, is_next) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}

/// Size of all lines in bytes.
pub const SIZE: u64 = MAX_VCPUS as u64 * size_of::<Line>() as u64;

/// Offset of the [`MachineWords`] from the lines: the page behind them.
pub const MACHINE: u64 = SIZE;

/// Size in bytes of the reserved memory: the lines and the page of the [`MachineWords`].
pub const MEMORY: u64 = MACHINE + 4096;

/// The state of a vCPU's wait: bits 7-0 of [`Line::wait`]. The ticket is in bits 31-16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// No wait.
    Nothing = 0,
    /// About to draw a ticket, or has just drawn it.
    Entering = 1,
    /// Spins for the lock.
    Spinning = 2,
    /// Halts, or is about to halt.
    Halted = 3,
    /// Waits outside the queue, which is full, and has no ticket: it halts, is about to halt, or has been let
    /// in and has not continued yet. The ticket is zero.
    Throttled = 4,
    /// About to kick the waiter with this ticket, or a throttled waiter, after a release: that waiter sleeps
    /// until the kick, although the lock may be free.
    Kicking = 5,
}

impl Wait {
    /// Encodes the word for [`Line::wait`].
    pub const fn word(self, ticket: u16) -> u32 {
        self as u32 | (ticket as u32) << 16
    }

    /// The state and the ticket of a word. An unknown state counts as [`Wait::Nothing`].
    pub const fn parse(word: u32) -> (Wait, u16) {
        let wait = match word as u8 {
            1 => Wait::Entering,
            2 => Wait::Spinning,
            3 => Wait::Halted,
            4 => Wait::Throttled,
            5 => Wait::Kicking,
            _ => Wait::Nothing,
        };
        (wait, (word >> 16) as u16)
    }
}

/// A place in the guest's code where it can be preempted on purpose: a `preempt_point`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Point {
    /// A waiter has published its record, but not set the slowpath flag yet.
    BeforeFlag = 0,
    /// A waiter has set the flag, has checked again, and is about to halt.
    FlagToHalt = 1,
    /// A holder has released the lock, but not kicked the next in line yet.
    ReleaseToKick = 2,
    /// In the critical section of a benchmark.
    Critical = 3,
    /// In an interrupt handler.
    Interrupt = 4,
}

impl Point {
    /// All points, by number.
    pub const ALL: [Point; 5] = [
        Point::BeforeFlag,
        Point::FlagToHalt,
        Point::ReleaseToKick,
        Point::Critical,
        Point::Interrupt,
    ];

    /// The point's bit in [`Line::points`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The point with this number.
    pub const fn from_raw(raw: u32) -> Option<Point> {
        match raw {
            0..5 => Some(Self::ALL[raw as usize]),
            _ => None,
        }
    }
}

/// One vCPU's line: two cache lines, the first written by the guest, the second by the VMM except as noted.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line {
    /// Number of locks held.
    pub held: AtomicU32,
    /// The state of the vCPU's wait: a [`Wait::word`].
    pub wait: AtomicU32,
    /// The lock that [`Line::wait`] refers to, unless that is [`Wait::Nothing`].
    pub wait_lock: AtomicU64,
    /// The vCPU's TSC when the wait began.
    pub wait_since: AtomicU64,
    /// The locks held, by depth: the first [`MAX_NAMED`].
    pub held_lock: [AtomicU64; MAX_NAMED],
    /// The tickets of [`Line::held_lock`].
    pub held_ticket: [AtomicU16; MAX_NAMED],
    /// Reserved, zero.
    pub reserved: AtomicU16,
    /// The vCPU's TSC at the release before its last `unlock_kick`.
    pub released_at: AtomicU64,

    /// VMM: request to yield the CPU (port [`YIELD`](crate::ports::YIELD)) as soon as no lock is
    /// held or awaited. The vCPU clears the word before it yields.
    pub yield_wanted: AtomicU32,
    /// VMM: the [`Point`]s to report (port [`PREEMPT_POINT`](crate::ports::PREEMPT_POINT)), by
    /// [`Point::bit`].
    pub points: AtomicU32,
    /// VMM: number of spin iterations after which a waiter that is not served reports it (port
    /// [`SPUN_OUT`](crate::ports::SPUN_OUT)) and restarts its count; 0: never.
    pub spin_limit: AtomicU32,
    /// VMM: nonzero while a schedule keeps this vCPU off its CPU, or it halts in the VMM. Always zero under
    /// the host's scheduler, whose decisions the VMM does not see.
    pub off_cpu: AtomicU32,
    /// Guest: the vCPU's TSC at the first instruction after its last halt by `lock_spinning`.
    pub resumed_at: AtomicU64,
    /// Guest: number of locks taken so far, contended or not. Zero if the guest does not count them
    /// (the payload counts its operations elsewhere).
    pub taken: AtomicU64,
    /// Guest: if [`Line::wait`] is for a queued spinlock and the rank is [`QUEUED_BEHIND`], the address of
    /// the vCPU's node in the queue (`struct mcs_spinlock`), whose bytes 8 to 11 are nonzero once the vCPU is
    /// the first in the queue, whether or not it has noticed. For a lock without a head, the address of the
    /// gate that the vCPU polls ([`releases_before`]); zero: none.
    pub queue_node: AtomicU64,
    /// VMM: the vCPU's TSC at the end of its slice, when a schedule may take its CPU; zero: unknown. A
    /// schedule may take it earlier, for reasons that it cannot foresee. Zero under the host's scheduler
    /// ([`FEATURE_SLICE_END`](crate::cpuid::FEATURE_SLICE_END)).
    pub slice_end: AtomicU64,
    /// Reserved, zero.
    pub reserved3: [AtomicU64; 2],
}

/// Words that all vCPUs of a machine read, in their own cache lines. Written by the VMM
/// ([`FEATURE_MACHINE_WORDS`](crate::cpuid::FEATURE_MACHINE_WORDS)).
#[derive(Debug)]
#[repr(C, align(128))]
pub struct MachineWords {
    /// Number of vCPUs without a CPU, by the schedule, that held a lock ([`Line::held`]), were next in line,
    /// or owed a kick when they lost it. Excludes a waiter that is next but halts or became next later, and a vCPU
    /// stopped between taking a lock and publishing it. Always zero under the host's scheduler.
    pub critical_off: AtomicU32,
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
    fn wait_words_encode_state_and_ticket() {
        for wait in [
            Wait::Nothing,
            Wait::Entering,
            Wait::Spinning,
            Wait::Halted,
            Wait::Throttled,
            Wait::Kicking,
        ] {
            assert_eq!(Wait::parse(wait.word(0xfffe)), (wait, 0xfffe));
        }
        assert_eq!(Wait::parse(0xab_00ff), (Wait::Nothing, 0xab), "an unknown state");
    }

    #[test]
    fn releases_before_by_name_and_by_gate() {
        let ahead = |word, gate| releases_before(12, word, gate);
        assert_eq!((ahead(8 << 16 | 12, 0), ahead(12 << 16, 1), ahead(12 << 16, 2)), (2, 1, 0));
        assert_eq!(ahead(8 << 16, 400), 0, "a gate may carry a word");
        let head = |word, gate| releases_before(0, word, gate);
        assert_eq!((head(1, 4 | 1), head(1, 2), head(8 | 1, 2 | 1), head(8, 2)), (2, 1, 1, 0));
        assert_eq!(head(0, 4), 2, "the first of the queue comes before it");
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
