//! The report of a scheduler in the host's kernel: the number of slices by the reason for their end.

use bpf::{RecordedEnd, SchedulerCounts};
use sched::event::LockActivity;
use serde::Serialize;

/// Activity of the scheduler in the host's kernel.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct BpfReport {
    /// Number of ended slices, as counted by the kernel.
    pub turns: u64,
    /// Ended slices missing from the counts by reason below because the ring buffer was full.
    pub lost: u64,
    /// Other lost records: starts of slices, and samples of running vCPUs.
    pub lost_others: u64,
    /// Slices ended because the vCPU halted, or its thread slept for another reason.
    pub blocked: u64,
    /// Slices that expired.
    pub slice: u64,
    /// Slices ended because their grace expired.
    pub forced: u64,
    /// Slices ended because the vCPU yielded.
    pub yielded: u64,
    /// Slices ended because the vCPU yielded to a vCPU that it had kicked.
    pub made_way: u64,
    /// Slices ended by an injected preemption, after which the vCPU is held off.
    pub injected: u64,
    /// Slices interrupted because a thread of a higher scheduling class took the CPU.
    pub taken: u64,
    /// Slices that the kernel ended without asking the scheduler, because other vCPUs were on the CPU's local
    /// queue (at the start).
    pub unasked: u64,
    /// Under `deferred`, halted vCPUs that returned to the slot kept for them.
    pub kept: u64,
    /// Ends other than `blocked` at which the vCPU held a lock.
    pub held: u64,
    /// Ends other than `blocked` at which the vCPU held no lock, but awaited one or owed a kick.
    pub waiting: u64,
    /// The reason, if the kernel ended the scheduler.
    pub ended: Option<String>,
}

impl BpfReport {
    pub(super) fn count(&mut self, end: RecordedEnd, activity: &LockActivity) {
        let counter = match end {
            RecordedEnd::Blocked => &mut self.blocked,
            RecordedEnd::Slice => &mut self.slice,
            RecordedEnd::Forced => &mut self.forced,
            RecordedEnd::Yielded => &mut self.yielded,
            RecordedEnd::MadeWay => &mut self.made_way,
            RecordedEnd::Injected => &mut self.injected,
            RecordedEnd::Taken => &mut self.taken,
            RecordedEnd::Unasked => &mut self.unasked,
        };
        *counter += 1;
        match end {
            RecordedEnd::Blocked => {}
            _ if activity.is_holder() => self.held += 1,
            _ if activity.is_involved() => self.waiting += 1,
            _ => {}
        }
    }

    /// Adds the kernel's own counts.
    pub(super) fn complete(&mut self, counts: &SchedulerCounts, ended: Option<String>) {
        (self.turns, self.lost) = (counts.slices, counts.lost);
        (self.lost_others, self.kept) = (counts.lost_others, counts.kept);
        self.ended = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_slices_by_end_and_locks() {
        let mut report = BpfReport::default();
        let holding = LockActivity::Holding { lock: None, depth: 1 };
        for (end, activity) in [
            (RecordedEnd::Blocked, holding),
            (RecordedEnd::Slice, LockActivity::Free),
            (RecordedEnd::Forced, holding),
            (RecordedEnd::Taken, LockActivity::Entering),
            (RecordedEnd::Unasked, LockActivity::Unknown),
        ] {
            report.count(end, &activity);
        }
        let expected = BpfReport {
            blocked: 1,
            slice: 1,
            forced: 1,
            taken: 1,
            unasked: 1,
            held: 1,
            waiting: 1,
            ..BpfReport::default()
        };
        assert_eq!(report, expected);
    }
}
