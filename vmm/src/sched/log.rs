//! Decisions on record: who got which slot when, for how long, and why that ended.

use hypercalls::telemetry::Point;
use serde::Serialize;

use super::event::VcpuIndex;
use crate::units::{Nanos, SlotId};

/// Turns kept of a run at most: hours of slices, minutes of handoffs. 128 MiB, of which the
/// kernel gives only what is used.
pub(super) const ROOM: usize = 4 << 20;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TurnEnd {
    /// Not yet, when the recording did.
    Open = 0,
    /// Its time was over.
    Slice = 1,
    /// Its time and a grace were over.
    Grace = 2,
    /// It yielded.
    Yield = 3,
    /// It spun in vain.
    Spun = 4,
    /// It was kept off on purpose.
    Injected = 5,
    /// It halted.
    Halted = 6,
    /// It sat in KVM's HLT.
    Idle = 7,
    /// It left for good.
    Exited = 8,
    /// It made way for whom it had just kicked.
    MadeWay = 9,
}

impl TurnEnd {
    pub(super) const ALL: [TurnEnd; 10] = [
        TurnEnd::Open,
        TurnEnd::Slice,
        TurnEnd::Grace,
        TurnEnd::Yield,
        TurnEnd::Spun,
        TurnEnd::Injected,
        TurnEnd::Halted,
        TurnEnd::Idle,
        TurnEnd::Exited,
        TurnEnd::MadeWay,
    ];

    /// The vCPU itself ended it.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, TurnEnd::Halted | TurnEnd::Idle | TurnEnd::Exited)
    }
}

/// One vCPU's time on one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// When it began, from the schedule's start.
    pub at: Nanos,
    /// How long it lasted.
    pub ran: Nanos,
    /// Who.
    pub vcpu: VcpuIndex,
    /// Where.
    pub slot: SlotId,
    /// Why it ended.
    pub end: TurnEnd,
    /// The named place at which the guest was then, if it reported one.
    pub point: Option<Point>,
}

/// The turns of a schedule, in the order in which they began.
#[derive(Debug)]
pub struct Log {
    turns: Vec<Turn>,
    lost: u64,
    start: Nanos,
}

/// A turn in a [`Log`]; none where there was no room left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry(Option<usize>);

impl Log {
    /// An empty log.
    pub fn new() -> Self {
        Self { turns: Vec::with_capacity(ROOM), lost: 0, start: Nanos::ZERO }
    }

    /// The same with little room, where nobody wants a recording.
    pub fn brief() -> Self {
        Self { turns: Vec::new(), lost: 0, start: Nanos::ZERO }
    }

    pub(super) fn begin(&mut self, vcpu: VcpuIndex, slot: SlotId, now: Nanos) -> Entry {
        if self.start == Nanos::ZERO {
            self.start = now;
        }
        if self.turns.len() == self.turns.capacity() {
            self.lost += 1;
            return Entry(None);
        }
        let (at, ran, end) = (now.since(self.start), Nanos::ZERO, TurnEnd::Open);
        self.turns.push(Turn { at, ran, vcpu, slot, end, point: None });
        Entry(Some(self.turns.len() - 1))
    }

    /// The turn is about to end, at this place.
    pub(super) fn at_point(&mut self, entry: Entry, point: Point) {
        if let Some(turn) = entry.0.and_then(|ix| self.turns.get_mut(ix)) {
            turn.point = Some(point);
        }
    }

    pub(super) fn end(&mut self, entry: Entry, end: TurnEnd, ran: Nanos) {
        if let Some(turn) = entry.0.and_then(|ix| self.turns.get_mut(ix)) {
            (turn.end, turn.ran) = (end, ran);
        }
    }

    /// What the turns' times count from: when the first began, by the clock of the schedule.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// The turns.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Turns for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_counts_what_it_loses() {
        let mut log = Log::brief();
        let entry = log.begin(VcpuIndex(0), SlotId(0), Nanos(5));
        log.end(entry, TurnEnd::Slice, Nanos(1));
        assert_eq!((log.turns().len(), log.lost()), (0, 1));
    }
}
