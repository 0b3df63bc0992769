//! What the scheduler tells: an order of records, each with what the vCPU did with locks.

use base::units::Nanos;

use crate::shared::{KNOWN_CLAIMS, KNOWN_GATE, KNOWN_WAIT, NAMED, RawRecord};

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordedEnd {
    /// The thread sleeps: its vCPU halts, or it has ended.
    Blocked,
    /// The slice was over.
    Slice,
    /// The grace was over.
    Forced,
    /// The vCPU yielded.
    Yielded,
    /// The vCPU made way for the one that it had kicked.
    MadeWay,
    /// The vCPU is held off on purpose.
    Injected,
    /// A thread of a higher class took the CPU; the turn goes on afterwards.
    Taken,
    /// The kernel asked for no decision: others were on the CPU's own list, as just after they enrolled.
    Unasked,
}

impl RecordedEnd {
    /// By the scheduler's numbers.
    const ALL: [Self; 8] = [
        Self::Blocked,
        Self::Slice,
        Self::Forced,
        Self::Yielded,
        Self::MadeWay,
        Self::Injected,
        Self::Taken,
        Self::Unasked,
    ];
}

/// Something that happened to a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// The machine's number.
    pub machine: u32,
    /// The vCPU's number in it.
    pub vcpu: u32,
    /// The host CPU, by the kernel's number.
    pub cpu: u32,
    /// When its turn began.
    pub began: Nanos,
    /// What it was.
    pub what: RecordKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A turn begins.
    Began,
    /// A turn ends.
    Ended {
        /// Why.
        end: RecordedEnd,
        /// How long the vCPU was left in a lock after its slice.
        grace: Nanos,
        /// How long it was extended, under the policy that does so once a turn; `None`: it was not.
        extended: Option<Nanos>,
        /// What it did with locks then.
        locks: Locks,
    },
    /// The vCPU runs, and another one of its machine that was preempted in a lock is back now.
    Seen(Locks),
}

/// What a vCPU's line and its locks said. The words of locks (head and tail) are `None` where they could not
/// be read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Locks {
    /// How many it held.
    pub held: u32,
    /// The first of them.
    pub held_lock: [u64; NAMED],
    /// Their tickets.
    pub held_ticket: [u16; NAMED],
    /// Their words.
    pub held_word: [Option<u32>; NAMED],
    /// What it waited for, as [`hypercalls::telemetry::Wait::parse`] reads it.
    pub wait: u32,
    /// The lock that it awaited.
    pub wait_lock: u64,
    /// The word of that.
    pub wait_word: Option<u32>,
    /// What the gate said at which it waited, for a lock without a head; `None`: there was none, or it could not be read.
    pub gate: Option<u16>,
    /// When its wait began, on its own clock.
    pub wait_since: u64,
    /// If it was drawing a ticket: those that other vCPUs have, as bits, of 64 from the lock's head. `None`:
    /// not known.
    pub claimed: Option<u64>,
}

impl Record {
    /// A record of the scheduler; `None` for one that this version does not know.
    pub(crate) fn parse(raw: RawRecord) -> Option<Self> {
        let what = match raw.kind {
            0 => RecordKind::Began,
            1 => RecordKind::Ended {
                end: *RecordedEnd::ALL.get(raw.end as usize)?,
                grace: match raw.due_ns {
                    0 => Nanos::ZERO,
                    due => Nanos(raw.at_ns.saturating_sub(due)),
                },
                extended: (raw.extended_ns > 0).then_some(Nanos(raw.extended_ns)),
                locks: Locks::of(&raw),
            },
            2 => RecordKind::Seen(Locks::of(&raw)),
            _ => return None,
        };
        let RawRecord { machine, vcpu, cpu, .. } = raw;
        Some(Self { at: Nanos(raw.at_ns), machine, vcpu, cpu, began: Nanos(raw.began_ns), what })
    }
}

impl Locks {
    fn of(raw: &RawRecord) -> Self {
        let known = |bit: u32| raw.known & bit != 0;
        Self {
            held: raw.held,
            held_lock: raw.held_lock,
            held_ticket: raw.held_ticket,
            held_word: std::array::from_fn(|ix| known(1 << ix).then_some(raw.held_word[ix])),
            wait: raw.wait,
            wait_lock: raw.wait_lock,
            wait_word: known(KNOWN_WAIT).then_some(raw.wait_word),
            gate: known(KNOWN_GATE).then_some(raw.gate),
            wait_since: raw.wait_since,
            claimed: known(KNOWN_CLAIMS).then_some(raw.claimed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_says_how_long_it_was_left_in_a_lock() {
        let raw = RawRecord { at_ns: 50, due_ns: 30, kind: 1, end: 2, ..RawRecord::default() };
        let grace = |raw| match Record::parse(raw).map(|record| record.what) {
            Some(RecordKind::Ended { end: RecordedEnd::Forced, grace, .. }) => Some(grace),
            _ => None,
        };
        assert_eq!(grace(raw), Some(Nanos(20)));
        assert_eq!(grace(RawRecord { due_ns: 0, ..raw }), Some(Nanos(0)));
        assert_eq!(Record::parse(RawRecord { end: 8, ..raw }), None);
        assert_eq!(Record::parse(RawRecord { kind: 3, ..raw }), None);
    }

    #[test]
    fn words_that_could_not_be_read_are_not_known() {
        let raw = RawRecord {
            kind: 2,
            known: 1 << 1 | KNOWN_WAIT,
            held_word: [1, 2, 3],
            wait_word: 4,
            claimed: 5,
            ..RawRecord::default()
        };
        let Some(RecordKind::Seen(locks)) = Record::parse(raw).map(|record| record.what) else {
            panic!("another kind")
        };
        assert_eq!(locks.held_word, [None, Some(2), None]);
        assert_eq!((locks.wait_word, locks.claimed), (Some(4), None));
    }
}
