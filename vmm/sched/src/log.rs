//! The log of decisions: which vCPU got which slot when, for how long, and why the turn ended.

use hypercalls::telemetry::Point;
use serde::Serialize;

use super::event::{LockActivity, VcpuIndex};
use base::units::{Nanos, SlotId};

/// Maximum number of turns kept of a run: hours of slices, minutes of handoffs. 128 MiB, of which
/// the kernel commits only what is used.
pub(super) const ROOM: usize = 4 << 20;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TurnEnd {
    /// The turn had not ended when the recording did.
    Open = 0,
    /// The slice was over.
    Slice = 1,
    /// The slice and a grace were over.
    Grace = 2,
    /// The vCPU yielded.
    Yield = 3,
    /// The vCPU spun too long.
    Spun = 4,
    /// The vCPU was held off on purpose.
    Injected = 5,
    /// The vCPU halted in the VMM.
    Halted = 6,
    /// The vCPU was in KVM's HLT.
    Idle = 7,
    /// The vCPU's thread left for good.
    Exited = 8,
    /// The vCPU made way for the one it had just kicked.
    MadeWay = 9,
    /// The host's kernel ran another vCPU in its place and asked no schedule (`--driver bpf`, while threads enrol).
    Unasked = 10,
}

impl TurnEnd {
    pub(super) const ALL: [TurnEnd; 11] = [
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
        TurnEnd::Unasked,
    ];

    /// Did the vCPU itself end it?
    pub const fn is_voluntary(self) -> bool {
        matches!(self, TurnEnd::Halted | TurnEnd::Idle | TurnEnd::Exited)
    }
}

/// One vCPU's turn on one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// When it began, since [`Log::start`].
    pub at: Nanos,
    /// How long it lasted.
    pub ran: Nanos,
    /// The vCPU whose turn it was.
    pub vcpu: VcpuIndex,
    /// The slot that the vCPU had.
    pub slot: SlotId,
    /// Why it ended.
    pub end: TurnEnd,
    /// The named point at which the guest was when it ended, if it reported one.
    pub point: Option<Point>,
    /// The vCPU is known to have held and awaited no lock when it ended, by a policy that waits for that
    /// ([`Policy::ends_out_of_locks`](super::policy::Policy::ends_out_of_locks)).
    pub free: bool,
}

/// The turns of a schedule, in the order in which they began.
#[derive(Debug)]
pub struct Log {
    turns: Vec<Turn>,
    lost: u64,
    start: Nanos,
}

/// A turn in a [`Log`]; `None` if there was no room for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TurnIndex(Option<usize>);

impl Log {
    /// An empty log with room for a recording.
    pub fn new() -> Self {
        Self { turns: Vec::with_capacity(ROOM), lost: 0, start: Nanos::ZERO }
    }

    /// An empty log that keeps no turns, for runs that are not recorded.
    pub fn brief() -> Self {
        Self { turns: Vec::new(), lost: 0, start: Nanos::ZERO }
    }

    pub(super) fn begin(&mut self, vcpu: VcpuIndex, slot: SlotId, now: Nanos) -> TurnIndex {
        if self.start == Nanos::ZERO {
            self.start = now;
        }
        if self.turns.len() == self.turns.capacity() {
            self.lost += 1;
            return TurnIndex(None);
        }
        let (at, ran, end) = (now.since(self.start), Nanos::ZERO, TurnEnd::Open);
        self.turns.push(Turn { at, ran, vcpu, slot, end, point: None, free: false });
        TurnIndex(Some(self.turns.len() - 1))
    }

    /// The turn is about to end, at this point.
    pub(super) fn at_point(&mut self, entry: TurnIndex, point: Point) {
        if let Some(turn) = entry.0.and_then(|ix| self.turns.get_mut(ix)) {
            turn.point = Some(point);
        }
    }

    pub(super) fn end(&mut self, entry: TurnIndex, end: TurnEnd, ran: Nanos, free: bool) {
        if let Some(turn) = entry.0.and_then(|ix| self.turns.get_mut(ix)) {
            (turn.end, turn.ran, turn.free) = (end, ran, free);
        }
    }

    /// What the turns' times count from: the start of the first turn, by the schedule's clock.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// The turns kept.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Number of turns for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

/// A VM's progress at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmProgress {
    /// When, monotonic clock.
    pub at: Nanos,
    /// Index of the VM.
    pub vm: u32,
    /// Operations that its vCPUs had done by then.
    pub done: u64,
}

/// What a vCPU was doing when its thread was outside the guest and was observed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sighting {
    /// When, monotonic clock.
    pub at: Nanos,
    /// The vCPU that had the turn.
    pub vcpu: VcpuIndex,
    /// What it had been doing. A waiter about to halt counts as spinning.
    pub activity: LockActivity,
}

/// A kick that ended a halt, and its consequences. Times are of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handoff {
    /// When the schedule learned of the kick.
    pub at: Nanos,
    /// The kicker; None: delivered late on purpose, by no vCPU's thread.
    pub by: Option<VcpuIndex>,
    /// The halted vCPU.
    pub to: VcpuIndex,
    /// When the kicker released the lock, by its telemetry.
    pub released: Option<Nanos>,
    /// When the halted vCPU was granted a slot.
    pub granted: Option<Nanos>,
    /// When its guest resumed, by its telemetry.
    pub resumed: Option<Nanos>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_counts_what_it_loses() {
        let mut log = Log::brief();
        let entry = log.begin(VcpuIndex(0), SlotId(0), Nanos(5));
        log.end(entry, TurnEnd::Slice, Nanos(1), false);
        assert_eq!((log.turns().len(), log.lost()), (0, 1));
    }
}
