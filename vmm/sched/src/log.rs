//! The log of decisions: which vCPU got which slot when and for how long, and why it lost the slot.

use hypercalls::telemetry::Point;
use serde::Serialize;

use super::event::{LockActivity, VcpuIndex};
use base::units::{Nanos, SlotId};

/// Maximum number of time slices kept for a run: hours of full slices, minutes of handoffs. Takes 128 MiB,
/// committed by the kernel only as it is used.
pub(super) const MAX_SLICES: usize = 4 << 20;

/// Reason for the end of a time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SliceEnd {
    /// The time slice had not ended when the recording did.
    Open = 0,
    /// The slice expired or was cut short.
    #[serde(rename = "slice")]
    Expired = 1,
    /// The slice and a grace expired.
    Grace = 2,
    /// The vCPU yielded.
    Yield = 3,
    /// The vCPU spun too long or yielded to another.
    Spun = 4,
    /// The vCPU was held off by an injected preemption.
    Injected = 5,
    /// The vCPU halted in the VMM. With `--driver bpf`: its thread blocked.
    Halted = 6,
    /// The vCPU was in KVM's HLT, or its thread blocked.
    Idle = 7,
    /// The vCPU's thread exited.
    Exited = 8,
    /// The vCPU made way for a vCPU it had just kicked.
    MadeWay = 9,
    /// The host's kernel ran another vCPU without asking the schedule (`--driver bpf`, while threads enrol).
    Unasked = 10,
}

impl SliceEnd {
    pub(super) const ALL: [SliceEnd; 11] = [
        SliceEnd::Open,
        SliceEnd::Expired,
        SliceEnd::Grace,
        SliceEnd::Yield,
        SliceEnd::Spun,
        SliceEnd::Injected,
        SliceEnd::Halted,
        SliceEnd::Idle,
        SliceEnd::Exited,
        SliceEnd::MadeWay,
        SliceEnd::Unasked,
    ];

    /// Whether the vCPU halted, idled or exited.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, SliceEnd::Halted | SliceEnd::Idle | SliceEnd::Exited)
    }
}

/// A vCPU's time slice on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Start, relative to [`Log::start`].
    pub at: Nanos,
    /// Duration.
    pub ran: Nanos,
    /// The vCPU that ran.
    pub vcpu: VcpuIndex,
    /// The slot it ran on.
    pub slot: SlotId,
    /// Reason for its end.
    pub end: SliceEnd,
    /// Named point reported by the guest at the end, if any.
    pub point: Option<Point>,
    /// The vCPU is known to have held and awaited no lock at the end, under a policy that waits for that
    /// ([`Policy::ends_out_of_locks`](super::policy::Policy::ends_out_of_locks)).
    pub free: bool,
}

/// The time slices of a schedule in the order of their starts.
#[derive(Debug)]
pub struct Log {
    slices: Vec<Slice>,
    lost: u64,
    start: Nanos,
}

/// Index of a time slice in a [`Log`]; `None` if there was no room for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SliceIndex(Option<usize>);

impl Log {
    /// Creates an empty log with room for a recording.
    pub fn new() -> Self {
        Self { slices: Vec::with_capacity(MAX_SLICES), lost: 0, start: Nanos::ZERO }
    }

    /// Creates an empty log that keeps no time slices, for runs that are not recorded.
    pub fn without_slices() -> Self {
        Self { slices: Vec::new(), lost: 0, start: Nanos::ZERO }
    }

    pub(super) fn begin(&mut self, vcpu: VcpuIndex, slot: SlotId, now: Nanos) -> SliceIndex {
        if self.start == Nanos::ZERO {
            self.start = now;
        }
        if self.slices.len() == self.slices.capacity() {
            self.lost += 1;
            return SliceIndex(None);
        }
        let (at, ran, end) = (now.since(self.start), Nanos::ZERO, SliceEnd::Open);
        self.slices.push(Slice { at, ran, vcpu, slot, end, point: None, free: false });
        SliceIndex(Some(self.slices.len() - 1))
    }

    /// Records the named point of a time slice that is about to end.
    pub(super) fn at_point(&mut self, entry: SliceIndex, point: Point) {
        if let Some(slice) = entry.0.and_then(|ix| self.slices.get_mut(ix)) {
            slice.point = Some(point);
        }
    }

    pub(super) fn end(&mut self, entry: SliceIndex, end: SliceEnd, ran: Nanos, free: bool) {
        if let Some(slice) = entry.0.and_then(|ix| self.slices.get_mut(ix)) {
            (slice.end, slice.ran, slice.free) = (end, ran, free);
        }
    }

    /// Returns the origin of the recorded times: the start of the first time slice by the schedule's clock.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Returns the recorded time slices.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Returns the number of time slices that did not fit.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

/// Progress of a VM at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmProgress {
    /// Time of the observation, monotonic clock.
    pub at: Nanos,
    /// Index of the VM.
    pub vm: u32,
    /// Operations its vCPUs had completed.
    pub done: u64,
}

/// Lock activity of a vCPU, observed while its thread was outside the guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sighting {
    /// Time of the observation, monotonic clock.
    pub at: Nanos,
    /// The observed vCPU.
    pub vcpu: VcpuIndex,
    /// Its lock activity. A waiter about to halt counts as spinning.
    pub activity: LockActivity,
}

/// A kick that ended a halt, and its consequences. Times use the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handoff {
    /// When the schedule learned of the kick.
    pub at: Nanos,
    /// The kicker. None: delivered by no vCPU's thread, like a delayed kick of a fault.
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
    fn a_full_log_counts_lost_slices() {
        let mut log = Log::without_slices();
        let entry = log.begin(VcpuIndex(0), SlotId(0), Nanos(5));
        log.end(entry, SliceEnd::Expired, Nanos(1), false);
        assert_eq!((log.slices().len(), log.lost()), (0, 1));
    }
}
