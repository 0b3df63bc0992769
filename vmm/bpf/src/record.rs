//! Records of the scheduler: events of vCPUs, with their lock state except at the start of a slice.

use base::{host_counts::YieldCause, units::Nanos};

use crate::shared::{KNOWN_CLAIMS, KNOWN_GATE, KNOWN_WAIT, NAMED, RawRecord};

/// Reason for the end of a time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordedEnd {
    /// The thread sleeps because its vCPU halts, or it has exited.
    Blocked,
    /// The slice expired.
    Slice,
    /// The grace period expired.
    Forced,
    /// The vCPU yielded.
    Yielded,
    /// The vCPU yielded to a vCPU that it had kicked.
    MadeWay,
    /// An injected preemption keeps the vCPU off its slot.
    Injected,
    /// A thread of a higher class took the CPU. The time slice continues afterwards.
    Taken,
    /// The kernel requested no decision: the CPU's local queue had other vCPUs, e.g. just after they enrolled.
    Unasked,
}

impl RecordedEnd {
    /// All reasons, indexed by the scheduler's numbers.
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

/// An event of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Time on the monotonic clock.
    pub at: Nanos,
    /// The machine's number.
    pub machine: u32,
    /// The vCPU's number in the machine.
    pub vcpu: u32,
    /// The kernel's number for the host CPU.
    pub cpu: u32,
    /// Start of the vCPU's time slice.
    pub began: Nanos,
    /// Observer: at the start of a slice or a request to yield, the number of switches of the host CPU so far.
    pub switches: u32,
    /// The kind of event.
    pub kind: RecordKind,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A time slice begins.
    Began,
    /// A time slice ends.
    Ended {
        /// The reason.
        end: RecordedEnd,
        /// Time for which the vCPU, as holder or waiter, kept its slot after its slice.
        grace: Nanos,
        /// Length of the slice's extension under [`crate::KernelPolicy::Extended`]; `None`: not extended.
        extended: Option<Nanos>,
        /// The vCPU's lock state at the end.
        locks: Locks,
    },
    /// A running vCPU's state when a preempted holder or waiter of its machine gets a slot again.
    Sampled(Locks),
    /// KVM asks to run another vCPU of the machine in place of this vCPU. `cpu` and `switches` are the other
    /// vCPU's.
    Asked {
        /// The asked vCPU's number in the machine.
        vcpu: u32,
        /// The reason.
        cause: YieldCause,
        /// The asked vCPU's lock state.
        locks: Locks,
    },
    /// The vCPU runs on after such a request. If it was granted, without having left its CPU.
    Answered {
        /// Whether the request was granted.
        granted: bool,
    },
}

/// Contents of a vCPU's telemetry line and of its locks' words (head and tail), which are `None` if they could
/// not be read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Locks {
    /// Number of held locks.
    pub held: u32,
    /// The first held locks.
    pub held_lock: [u64; NAMED],
    /// Their tickets.
    pub held_ticket: [u16; NAMED],
    /// Their words.
    pub held_word: [Option<u32>; NAMED],
    /// The vCPU's wait, to be decoded by [`hypercalls::telemetry::Wait::parse`].
    pub wait: u32,
    /// The awaited lock.
    pub wait_lock: u64,
    /// The awaited lock's word.
    pub wait_word: Option<u32>,
    /// For a lock without a head, the gate of [`hypercalls::telemetry::releases_before`]. `None`: absent or unreadable.
    pub gate: Option<u16>,
    /// The vCPU's TSC at the start of its wait.
    pub wait_since: u64,
    /// If the vCPU was drawing a ticket: the tickets of other vCPUs, a bitmap of the first 64 from the lock's
    /// head. `None`: unknown.
    pub claimed: Option<u64>,
}

impl Record {
    /// Parses a record of the scheduler. Returns `None` for an unknown kind or end.
    pub(crate) fn parse(raw: RawRecord) -> Option<Self> {
        let kind = match raw.kind {
            0 => RecordKind::Began,
            1 => RecordKind::Ended {
                end: *RecordedEnd::ALL.get(raw.end as usize)?,
                grace: match raw.due_ns {
                    0 => Nanos::ZERO,
                    due => Nanos(raw.at_ns.saturating_sub(due)),
                },
                extended: (raw.extended_ns > 0).then_some(Nanos(raw.extended_ns)),
                locks: Locks::from_raw(&raw),
            },
            2 => RecordKind::Sampled(Locks::from_raw(&raw)),
            3 => RecordKind::Asked {
                vcpu: raw.asked,
                cause: match raw.end {
                    1 => YieldCause::Spin,
                    2 => YieldCause::Kick,
                    3 => YieldCause::Call,
                    _ => return None,
                },
                locks: Locks::from_raw(&raw),
            },
            4 => RecordKind::Answered { granted: raw.asked != 0 },
            _ => return None,
        };
        let RawRecord { machine, vcpu, cpu, switches, .. } = raw;
        let (at, began) = (Nanos(raw.at_ns), Nanos(raw.began_ns));
        Some(Self { at, machine, vcpu, cpu, began, switches, kind })
    }
}

impl Locks {
    fn from_raw(raw: &RawRecord) -> Self {
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
    fn records_contain_the_grace() {
        let raw = RawRecord { at_ns: 50, due_ns: 30, kind: 1, end: 2, ..RawRecord::default() };
        let grace = |raw| match Record::parse(raw).map(|record| record.kind) {
            Some(RecordKind::Ended { end: RecordedEnd::Forced, grace, .. }) => Some(grace),
            _ => None,
        };
        assert_eq!(grace(raw), Some(Nanos(20)));
        assert_eq!(grace(RawRecord { due_ns: 0, ..raw }), Some(Nanos(0)));
        assert_eq!(Record::parse(RawRecord { end: 8, ..raw }), None);
        assert_eq!(Record::parse(RawRecord { kind: 5, ..raw }), None);
    }

    #[test]
    fn requests_to_yield_have_a_known_cause() {
        let cause = |end| {
            let raw = RawRecord { kind: 3, asked: 5, end, ..RawRecord::default() };
            match Record::parse(raw)?.kind {
                RecordKind::Asked { vcpu: 5, cause, .. } => Some(cause),
                kind => panic!("{kind:?}"),
            }
        };
        let causes = [YieldCause::Spin, YieldCause::Kick, YieldCause::Call].map(Some);
        assert_eq!([1, 2, 3].map(cause), causes);
        assert_eq!([0, 4].map(cause), [None; 2]);
    }

    #[test]
    fn unreadable_words_are_none() {
        let raw = RawRecord {
            kind: 2,
            known: 1 << 1 | KNOWN_WAIT,
            held_word: [1, 2, 3],
            wait_word: 4,
            claimed: 5,
            ..RawRecord::default()
        };
        let Some(RecordKind::Sampled(locks)) = Record::parse(raw).map(|record| record.kind) else {
            panic!("another kind")
        };
        assert_eq!(locks.held_word, [None, Some(2), None]);
        assert_eq!((locks.wait_word, locks.claimed), (Some(4), None));
    }
}
