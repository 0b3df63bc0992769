//! What a scheduler in the host's kernel did, by how its turns ended.

use bpf::{RecordedEnd, SchedulerCounts};
use sched::event::LockActivity;
use serde::Serialize;

/// What the scheduler did.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct BpfReport {
    /// Ends of turns, by the kernel's count.
    pub turns: u64,
    /// Those that are in no count below, because they came too fast.
    pub lost: u64,
    /// Other records that were lost: beginnings of turns, and sightings of vCPUs that spun.
    pub lost_others: u64,
    /// The vCPU halted, or its thread slept for another reason.
    pub blocked: u64,
    /// At the end of a slice.
    pub slice: u64,
    /// At the end of a grace.
    pub forced: u64,
    /// The vCPU yielded.
    pub yielded: u64,
    /// For the vCPU that it had kicked.
    pub made_way: u64,
    /// On purpose.
    pub injected: u64,
    /// A thread that goes before all vCPUs took the CPU.
    pub taken: u64,
    /// The kernel did not ask the scheduler, because others were on the CPU's own list (at the start).
    pub unasked: u64,
    /// Under `deferred`, halted vCPUs that came back to the slot that had been kept for them.
    pub kept: u64,
    /// Of all but `blocked`: the vCPU held a lock.
    pub held: u64,
    /// Of all but `blocked`: it held none, but awaited one or had a waiter to kick.
    pub waiting: u64,
    /// Why the kernel ended the scheduler, if it did.
    pub ended: Option<String>,
}

impl BpfReport {
    pub(super) fn count(&mut self, end: RecordedEnd, activity: &LockActivity) {
        let of_its_kind = match end {
            RecordedEnd::Blocked => &mut self.blocked,
            RecordedEnd::Slice => &mut self.slice,
            RecordedEnd::Forced => &mut self.forced,
            RecordedEnd::Yielded => &mut self.yielded,
            RecordedEnd::MadeWay => &mut self.made_way,
            RecordedEnd::Injected => &mut self.injected,
            RecordedEnd::Taken => &mut self.taken,
            RecordedEnd::Unasked => &mut self.unasked,
        };
        *of_its_kind += 1;
        match end {
            RecordedEnd::Blocked => {}
            _ if activity.is_holder() => self.held += 1,
            _ if activity.is_involved() => self.waiting += 1,
            _ => {}
        }
    }

    /// Adds what the kernel has counted itself.
    pub(super) fn complete(&mut self, counts: &SchedulerCounts, ended: Option<String>) {
        (self.turns, self.lost) = (counts.turns, counts.lost);
        (self.lost_others, self.kept) = (counts.lost_others, counts.kept);
        self.ended = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_their_ends_and_locks() {
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
