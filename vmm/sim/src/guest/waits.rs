//! Wait times of vCPUs for a lock, and acquisitions by others during a wait.
//!
//! Counts the acquisitions of the same lock for which the lock library promises a bound
//! ([`simulated_locks::Bypass`]). For a ticketlock, the bound applies from the draw of the ticket, and
//! counting starts when its owner spins. The critical section checks that tickets are served in order.

use std::cell::Cell;

use hypercalls::histogram::{BUCKETS, bucket};

use super::activity::count;
use crate::time::Picos;

/// The longest waits of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LongestWaits {
    /// Maximum number of acquisitions by others while a vCPU was in line.
    pub in_line: u64,
    /// Maximum number of acquisitions by others while a vCPU was throttled by `queue:N` or `restrict:N`. It
    /// excludes acquisitions that are due to the schedule: from the release whose kick lets the vCPU in,
    /// and while it is preempted.
    pub throttled: u64,
    /// Like `in_line`, of vCPUs that ran from then on and did not yield.
    pub running: u64,
    /// Maximum number of acquisitions by others while a vCPU spun as the head of its queue.
    pub as_head: u64,
    /// Longest time from the call to the acquisition.
    pub longest: Picos,
}

/// Wait times of vCPUs for a lock, from each call to its acquisition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// Number of completed waits since the start, by bucket of [`hypercalls::histogram`], in nanoseconds.
    pub ended: Vec<u64>,
    /// Durations of the unfinished waits, in nanoseconds.
    pub open: Vec<u64>,
}

const PICOS_PER_NANO: u64 = 1_000;

/// The reason why acquisitions by others currently do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excuse {
    /// The vCPU has been kicked and will resume.
    Kicked,
    /// The vCPU has no CPU although it is runnable.
    Preempted,
}

#[derive(Debug, Clone, Copy, Default)]
struct VcpuWait {
    is_waiting: bool,
    /// Whether it has lost its CPU or yielded in line.
    has_left: bool,
    since: Picos,
    /// Acquisitions by all vCPUs when it got in line.
    in_line: Option<u64>,
    /// Acquisitions by all vCPUs when it started to wait outside the queue.
    throttled: Option<u64>,
    /// The current excuse, and the acquisitions at its start.
    excuse: Option<(Excuse, u64)>,
    /// Number of excused acquisitions.
    excused: u64,
    /// Acquisitions at the end of the last excuse.
    excused_until: u64,
}

impl VcpuWait {
    /// Whether the vCPU waits outside, and not in line.
    fn is_throttled(&self) -> bool {
        self.throttled.is_some() && self.in_line.is_none()
    }

    fn end_excuse(&mut self, taken: u64) {
        if let Some((_, since)) = self.excuse.take() {
            self.excused += taken - since;
            self.excused_until = taken;
        }
    }
}

#[derive(Debug)]
pub(crate) struct WaitCounter {
    vcpus: Box<[Cell<VcpuWait>]>,
    /// The lock used by each vCPU.
    locks: Box<[Cell<usize>]>,
    /// Per vCPU: acquisitions at its last release, while it sends the kicks of that release.
    released: Box<[Cell<Option<u64>>]>,
    /// Acquisitions at the second spin of each vCPU as the head of its queue, since it got its CPU or was last about to
    /// halt; [`u64::MAX`] after one spin.
    heads: Box<[Cell<Option<u64>>]>,
    /// Acquisitions by lock.
    taken: Box<[Cell<u64>]>,
    longest: Cell<LongestWaits>,
    /// Number of completed waits by duration, in buckets of [`hypercalls::histogram`] in nanoseconds.
    times: Box<[Cell<u64>]>,
}

impl WaitCounter {
    pub(crate) fn new(vcpus: usize, locks: usize) -> Self {
        Self {
            vcpus: (0..vcpus).map(|_| Cell::default()).collect(),
            locks: (0..vcpus).map(|_| Cell::default()).collect(),
            released: (0..vcpus).map(|_| Cell::default()).collect(),
            heads: (0..vcpus).map(|_| Cell::default()).collect(),
            taken: (0..locks).map(|_| Cell::default()).collect(),
            longest: Cell::default(),
            times: (0..BUCKETS).map(|_| Cell::default()).collect(),
        }
    }

    pub(crate) fn times(&self, now: Picos) -> WaitTimes {
        let waits = self.vcpus.iter().map(Cell::get).filter(|wait| wait.is_waiting);
        WaitTimes {
            ended: self.times.iter().map(Cell::get).collect(),
            open: waits.map(|wait| now.since(wait.since).0 / PICOS_PER_NANO).collect(),
        }
    }

    /// Sets the lock used by the vCPU from now on.
    #[inline(always)]
    pub(crate) fn set_lock(&self, vcpu: usize, lock: usize) {
        self.locks[vcpu].set(lock);
    }

    /// Index of the lock used by the vCPU.
    pub(crate) fn lock(&self, vcpu: usize) -> usize {
        self.locks[vcpu].get()
    }

    /// Acquisitions of the lock used by the vCPU.
    fn taken(&self, vcpu: usize) -> u64 {
        self.taken[self.locks[vcpu].get()].get()
    }

    pub(crate) fn longest(&self) -> LongestWaits {
        self.longest.get()
    }

    fn change(&self, vcpu: usize, change: impl FnOnce(&mut VcpuWait, u64)) {
        let mut wait = self.vcpus[vcpu].get();
        change(&mut wait, self.taken(vcpu));
        self.vcpus[vcpu].set(wait);
    }

    /// Records that the vCPU calls `lock`.
    pub(crate) fn begin(&self, vcpu: usize, now: Picos) {
        self.vcpus[vcpu].set(VcpuWait { is_waiting: true, since: now, ..VcpuWait::default() });
    }

    /// Records that the vCPU is in line, if it waits: mutexes report waits for their list's lock in
    /// a release, too.
    pub(crate) fn in_line(&self, vcpu: usize) {
        self.change(vcpu, |wait, taken| {
            if wait.is_waiting && wait.in_line.is_none() {
                wait.end_excuse(taken);
                wait.in_line = Some(taken);
            }
        });
    }

    /// Records that the vCPU spins as the head of its queue. It may have become the head during the first of these
    /// spins; at the second it has kept other CPUs out.
    pub(crate) fn spin_as_head(&self, vcpu: usize) {
        let (taken, longest) = (self.taken(vcpu), self.longest.get());
        let since = self.heads[vcpu].get();
        let as_head = longest.as_head.max(taken.saturating_sub(since.unwrap_or(taken)));
        self.longest.set(LongestWaits { as_head, ..longest });
        self.heads[vcpu].set(Some(since.map_or(u64::MAX, |since| since.min(taken))));
    }

    /// Records that the vCPU yields its CPU.
    pub(crate) fn yields(&self, vcpu: usize) {
        self.change(vcpu, |wait, _| wait.has_left |= wait.in_line.is_some());
    }

    /// Records that the vCPU has published its wait: it is outside if it is not in line.
    pub(crate) fn published(&self, vcpu: usize) {
        self.heads[vcpu].set(None);
        self.change(vcpu, |wait, taken| {
            if wait.is_waiting && wait.in_line.is_none() {
                wait.throttled.get_or_insert(taken);
            }
        });
    }

    /// Records that the vCPU has released a lock and will kick the vCPUs that can continue.
    pub(crate) fn begin_kicks(&self, vcpu: usize) {
        self.released[vcpu].set(Some(self.taken(vcpu)));
    }

    /// Records that the vCPU has no more kicks to send.
    pub(crate) fn finish_kicks(&self, vcpu: usize) {
        self.released[vcpu].set(None);
    }

    /// Records that a kick of `kicker` is on its way to `vcpu`. If `kicker` was preempted after its
    /// release, which may have let `vcpu` in, that time is part of the wakeup.
    pub(crate) fn kicked(&self, vcpu: usize, kicker: usize) {
        self.change(vcpu, |wait, taken| {
            if let (Some(outside), None) = (wait.throttled, wait.in_line) {
                let is_same_lock = self.locks[kicker].get() == self.locks[vcpu].get();
                let released = self.released[kicker].get().filter(|_| is_same_lock);
                let since = released.unwrap_or(taken).max(outside);
                let since = wait.excuse.map_or(since, |(_, earlier)| earlier.min(since));
                // Acquisitions are excused only once.
                let since = since.max(wait.excused_until);
                wait.excuse = Some((Excuse::Kicked, since));
            }
        });
    }

    /// Records that the vCPU loses its CPU, by a halt or by preemption.
    pub(crate) fn record_off_cpu(&self, vcpu: usize, halts: bool) {
        self.heads[vcpu].set(None);
        self.yields(vcpu);
        self.change(vcpu, |wait, taken| match wait.excuse {
            _ if !wait.is_throttled() => {}
            None if !halts => wait.excuse = Some((Excuse::Preempted, taken)),
            // No release has let it in yet.
            Some((Excuse::Preempted, _)) if halts => wait.end_excuse(taken),
            _ => {}
        });
    }

    /// Records that the vCPU has the lock.
    pub(crate) fn finish(&self, vcpu: usize, now: Picos) {
        let taken = self.taken(vcpu);
        let mut wait = self.vcpus[vcpu].take();
        self.heads[vcpu].set(None);
        wait.end_excuse(taken);
        let mut longest = self.longest.get();
        let since = |from: Option<u64>| from.map_or(0, |from| taken - from);
        longest.in_line = longest.in_line.max(since(wait.in_line));
        longest.running = longest.running.max(since(wait.in_line.filter(|_| !wait.has_left)));
        longest.throttled =
            longest.throttled.max(since(wait.throttled).saturating_sub(wait.excused));
        let waited = now.since(wait.since);
        longest.longest = longest.longest.max(waited);
        count(&self.times[bucket(waited.0 / PICOS_PER_NANO)], 1);
        self.longest.set(longest);
        self.taken[self.locks[vcpu].get()].set(taken + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire_by_other(waits: &WaitCounter, times: u64) {
        for _ in 0..times {
            waits.begin(1, Picos(5));
            waits.finish(1, Picos(7));
        }
    }

    #[test]
    fn counts_start_in_line_and_times_at_the_call() {
        let waits = WaitCounter::new(2, 1);
        waits.begin(0, Picos(10));
        acquire_by_other(&waits, 3);
        waits.in_line(0);
        acquire_by_other(&waits, 2);
        waits.in_line(0);
        waits.finish(0, Picos(100));
        let longest = Picos(90);
        let expected = LongestWaits { in_line: 2, running: 2, longest, ..LongestWaits::default() };
        assert_eq!(waits.longest(), expected);
        acquire_by_other(&waits, 9);
        waits.in_line(0);
        waits.begin(0, Picos(200));
        waits.finish(0, Picos(201));
        assert_eq!(waits.longest().in_line, 2, "it did not wait");
    }

    #[test]
    fn scheduling_delays_are_excused_while_throttled() {
        let waits = WaitCounter::new(2, 1);
        waits.begin(0, Picos(10));
        waits.published(0);
        acquire_by_other(&waits, 3);
        waits.record_off_cpu(0, false);
        acquire_by_other(&waits, 50);
        waits.record_off_cpu(0, true);
        acquire_by_other(&waits, 4);
        waits.begin_kicks(1);
        acquire_by_other(&waits, 30);
        waits.kicked(0, 1);
        waits.finish_kicks(1);
        waits.record_off_cpu(0, true);
        acquire_by_other(&waits, 50);
        waits.in_line(0);
        acquire_by_other(&waits, 1);
        waits.kicked(0, 1);
        waits.record_off_cpu(0, false);
        acquire_by_other(&waits, 1);
        waits.finish(0, Picos(100));
        let LongestWaits { in_line, throttled: outside, .. } = waits.longest();
        assert_eq!((in_line, outside), (2, 3 + 4 + 2));
    }

    #[test]
    fn a_head_counts_from_its_second_spin_until_it_leaves() {
        let waits = WaitCounter::new(2, 1);
        waits.begin(0, Picos(10));
        waits.in_line(0);
        let spin = |others| {
            waits.spin_as_head(0);
            acquire_by_other(&waits, others);
        };
        [5, 2].into_iter().for_each(spin);
        waits.published(0);
        [7, 1].into_iter().for_each(spin);
        spin(3);
        waits.record_off_cpu(0, false);
        waits.finish(0, Picos(100));
        assert_eq!((waits.longest().as_head, waits.longest().running), (1, 0));
    }

    #[test]
    fn acquisitions_of_another_lock_do_not_count() {
        let waits = WaitCounter::new(2, 2);
        waits.begin(0, Picos(10));
        waits.in_line(0);
        waits.set_lock(1, 1);
        acquire_by_other(&waits, 5);
        waits.set_lock(1, 0);
        acquire_by_other(&waits, 2);
        waits.finish(0, Picos(100));
        assert_eq!(waits.longest().in_line, 2);
    }
}
