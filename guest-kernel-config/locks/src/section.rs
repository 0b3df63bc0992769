//! A critical section that detects violations of mutual exclusion.

use crate::sync::{AtomicU16, AtomicU64, Ordering};
use crate::ticket::INC;
use crate::{Acquisition, RawLock};

/// Two CPUs were in a [`Section`] at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation;

/// The ticket served was not the next in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disorder;

/// The words that a unit of work increments in turn: 24, in one cache line, where a [`Section`] also has
/// room for its owner and ticket.
///
/// The time of an increment must not depend on the predictions of the CPU. With a single word it does:
/// with memory renaming (AMD since Zen 2, Intel since Golden Cove) a CPU predicts from an instruction's
/// address that a load reads the value just stored, and has it at once. Otherwise, for example where the
/// same instruction has also accessed another address, the load takes five cycles or more. So the next
/// increment of a word has to come later than that. Eight words are too few: where one function
/// alternated between two lines, an increment took 0.15 ns, or 0.31 ns for up to half of the time, and a
/// round of eight took the 13 cycles of a forwarded store. With sixteen words or more, and with one
/// function per line, it took 0.15 ns (measured; the remaining variation comes from the core's other
/// hyperthread: with it, additions in a register also take 1.3 times as long).
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Words(Counts);

impl Words {
    /// Creates words that are all zero.
    pub const fn new() -> Self {
        Self(Counts::new())
    }

    /// Adds one `times` times, in memory, beginning with the first word: the unit of work of all
    /// workloads.
    #[inline]
    pub fn increment(&self, times: u32) {
        self.0.increment(times);
    }

    /// Like [`Words::increment`], but adds two, in a separate function: a measurement can use one for
    /// each cache line.
    #[inline]
    pub fn add_two(&self, times: u32) {
        self.0.add_two(times);
    }
}

/// [`Words`] without their alignment.
#[derive(Debug)]
struct Counts([AtomicU16; Counts::COUNT]);

impl Counts {
    const COUNT: usize = 24;

    const fn new() -> Self {
        Self([const { AtomicU16::new(0) }; Self::COUNT])
    }

    /// Increments of the first word so far, modulo 2^16: one in [`Self::COUNT`] of each
    /// [`Self::increment`], starting with its first.
    #[inline]
    fn first(&self) -> u16 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Never inlined, so that every lock runs exactly the same instructions.
    #[inline(never)]
    fn increment(&self, times: u32) {
        self.add(1, times);
    }

    #[inline(never)]
    fn add_two(&self, times: u32) {
        self.add(2, times);
    }

    #[inline(always)]
    fn add(&self, addend: u16, times: u32) {
        let add = |word: &AtomicU16| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(addend), Ordering::Relaxed);
        };
        for _ in 0..times / Self::COUNT as u32 {
            self.0.iter().for_each(add);
        }
        self.0.iter().take(times as usize % Self::COUNT).for_each(add);
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

/// A critical section that does not include a lock. It uses loads and stores only, no atomic
/// read-modify-write, so that a second CPU inside is detected: by the owner's id, and by lost
/// increments of the first word.
#[derive(Debug)]
#[repr(align(128))]
pub struct Section {
    words: Counts,
    /// The id of the CPU inside, plus one; zero: none.
    owner: AtomicU64,
    /// The ticket of the last CPU inside.
    last: AtomicU16,
}

impl Default for Section {
    fn default() -> Self {
        Self::new()
    }
}

impl Section {
    /// Creates an empty section.
    pub const fn new() -> Self {
        Self {
            words: Counts::new(),
            owner: AtomicU64::new(0),
            // A lock's first ticket is zero.
            last: AtomicU16::new(INC.wrapping_neg()),
        }
    }

    /// Checks that the ticket of `taken`, the caller's acquisition, is the next in order. A first in,
    /// first out lock serves tickets without gaps. A lock without tickets is never out of order.
    #[inline]
    pub fn follows<L: RawLock>(&self, taken: &Acquisition) -> Result<(), Disorder> {
        let Some(ticket) = taken.ticket else { return Ok(()) };
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(ticket, Ordering::Relaxed);
        let step = ticket.wrapping_sub(last);
        if step & L::TICKETS == INC & L::TICKETS { Ok(()) } else { Err(Disorder) }
    }

    /// Increments the shared words `increments` times as `cpu`. Fails if another CPU is found inside.
    #[inline]
    pub fn run(&self, cpu: usize, increments: u32) -> Result<(), Violation> {
        let me = cpu as u64 + 1;
        let is_empty = self.owner.load(Ordering::Relaxed) == 0;
        self.owner.store(me, Ordering::Relaxed);
        let before = self.words.first();
        self.words.increment(increments);
        let expected = increments.div_ceil(Counts::COUNT as u32);
        let is_counted = self.words.first() == before.wrapping_add(expected as u16);
        let is_owner = self.owner.load(Ordering::Relaxed) == me;
        self.owner.store(0, Ordering::Relaxed);
        if is_empty && is_counted && is_owner { Ok(()) } else { Err(Violation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NativeTicketLock, SmallNativeTicketLock, TestAndSetLock};

    #[test]
    fn one_cpu_causes_no_violation() {
        let section = Section::new();
        assert_eq!(section.run(0, 50), Ok(()));
        assert_eq!(section.run(7, 0), Ok(()));
        assert_eq!(section.run(1, 5), Ok(()));
        let mut expected = [2; Counts::COUNT];
        expected[..2].fill(4);
        expected[2..5].fill(3);
        assert_eq!(section.words.0.map(AtomicU16::into_inner), expected, "50 and 5");
    }

    fn follows<L: RawLock>(section: &Section, ticket: u16) -> Result<(), Disorder> {
        section.follows::<L>(&Acquisition { ticket: Some(ticket), ..Acquisition::default() })
    }

    #[test]
    fn tickets_follow_each_other_over_the_wrap() {
        let section = Section::new();
        let large = follows::<NativeTicketLock>;
        assert_eq!([0, 2, 4].map(|ticket| large(&section, ticket)), [Ok(()); 3]);
        assert_eq!(large(&section, 8), Err(Disorder), "6 was passed over");
        assert_eq!(large(&section, 6), Err(Disorder));
        assert_eq!(large(&section, 8), Ok(()), "each is told once");
        let wraps = Section { last: AtomicU16::new(0xfffe), ..Section::new() };
        assert_eq!([0, 2].map(|ticket| large(&wraps, ticket)), [Ok(()); 2]);
    }

    #[test]
    fn small_tickets_wrap_earlier() {
        let wraps = Section { last: AtomicU16::new(0xfc), ..Section::new() };
        let small = follows::<SmallNativeTicketLock>;
        assert_eq!([0xfe, 0, 2].map(|ticket| small(&wraps, ticket)), [Ok(()); 3]);
        assert_eq!(follows::<NativeTicketLock>(&wraps, 0x104), Err(Disorder));
        let taken = Acquisition::default();
        assert_eq!(wraps.follows::<TestAndSetLock>(&taken), Ok(()), "no tickets, no order");
    }

    /// Regression: a round of eight words took as long as a forwarded store, or half of that where the
    /// CPU predicted the value of a load (13 cycles, measured): there must be at least twice as many
    /// words.
    #[test]
    fn there_are_enough_words_to_avoid_forwarding() {
        const { assert!(Counts::COUNT >= 16) };
        assert_eq!((size_of::<Words>(), align_of::<Words>()), (64, 64), "in one line");
    }

    /// A section takes one cache line from the CPU that was inside before.
    #[test]
    fn a_section_is_in_one_line() {
        let last = core::mem::offset_of!(Section, last) + size_of::<AtomicU16>();
        assert!(core::mem::offset_of!(Section, words) == 0 && last <= 64, "{last}");
        // A wrap of the count is no lost increment.
        let section = Section::new();
        section.words.0[0].store(u16::MAX, Ordering::Relaxed);
        assert_eq!(section.run(0, 50), Ok(()));
        assert_eq!(section.run(0, 24 * 70_000), Ok(()));
    }

    #[test]
    fn a_second_cpu_inside_is_a_violation() {
        let section = Section::new();
        section.owner.store(3, Ordering::Relaxed);
        assert_eq!(section.run(0, 1), Err(Violation));
        assert_eq!(section.run(0, 1), Ok(()), "and is reported once");
    }
}
