//! LHP/LWP accounting: the lock state at each preemption and its cost for the other vCPUs.
//!
//! A vCPU's spinning is wasted while the vCPU that must move first is preempted. The wasted time is computed
//! only from known facts: when a waiter began to wait (its telemetry), when it ran (the schedule), and when
//! the holder or the next in line was preempted.

use serde::{Deserialize, Serialize};

use super::{
    directed_yields::DirectedYields,
    event::{LockActivity, Observation, VcpuIndex},
    log::SliceEnd,
};
use base::{
    sums,
    units::{Nanos, SlotId},
};

/// Maximum number of preemptions recorded individually.
const MAX_RECORDS: usize = 1 << 16;

/// One preemption. Times are in nanoseconds, monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Preemption {
    /// When it was preempted.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// The preempted vCPU.
    pub vcpu: VcpuIndex,
    /// The slot it lost.
    pub slot: SlotId,
    /// Reason for the end of its time slice.
    pub end: SliceEnd,
    /// Lock activity when it was preempted.
    #[serde(flatten)]
    pub observed: Observation,
    /// Time without a slot. None: until the end of the run.
    #[serde(rename = "off_ns")]
    pub off: Option<Nanos>,
    /// Total time that other vCPUs spun for its lock while it was preempted.
    #[serde(rename = "others_spun_ns")]
    pub spun: Nanos,
}

/// Sums over a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Slots granted.
    pub grants: u64,
    /// Time slices that ended against the vCPU's will.
    pub preemptions: u64,
    /// Preemptions of a vCPU that held a lock.
    pub lhp: u64,
    /// Preemptions of a vCPU that was next in line.
    pub lwp: u64,
    /// Preemptions of a vCPU further back in a queue, throttled, or `entering`.
    pub queued: u64,
    /// The part of `queued` with [`LockActivity::Entering`]: other vCPUs' telemetry did not show the vCPU's
    /// lock or ticket. Upper bound on the preemptions that `lhp` and `lwp` miss.
    pub entering: u64,
    /// Preemptions of a vCPU in a preempt-disabled region, observed without telemetry: it may hold a lock.
    pub guarded: u64,
    /// Preemptions whose activity is unknown.
    pub unknown: u64,
    /// Preemptions after a grace ran out.
    pub forced: u64,
    /// Preemptions injected by the experiment.
    pub injected: u64,
    /// Slots that the guest yielded on request.
    pub yields: u64,
    /// vCPU-nanoseconds of spinning for a lock whose holder, or next in line, was preempted.
    pub wasted_spin_ns: u64,
    /// Total time during which lock holders were preempted, in nanoseconds.
    pub holders_off_ns: u64,
    /// Total time during which vCPUs next in line were preempted, in nanoseconds.
    pub next_off_ns: u64,
    /// Total time during which vCPUs could have run but had no slot, in nanoseconds: the guests' steal time. Zero in
    /// stores of older versions, and under a schedule that the host's kernel carries out.
    #[serde(default)]
    pub ready_ns: u64,
    /// Directed yields, under the observed scheduler of the host.
    #[serde(default, skip_serializing_if = "DirectedYields::is_empty")]
    pub directed: DirectedYields,
}

sums!(
    Totals: grants, preemptions, lhp, lwp, queued, entering, guarded, unknown, forced, injected, yields,
    wasted_spin_ns, holders_off_ns, next_off_ns, ready_ns, directed
);

impl Totals {
    /// Adds the time without a slot of a vCPU that was preempted in this state.
    fn add_off(&mut self, activity: &LockActivity, off: Nanos) {
        if activity.is_holder() {
            self.holders_off_ns += off.0;
        } else if activity.is_next() {
            self.next_off_ns += off.0;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct LastPreemption {
    at: Nanos,
    vm: u32,
    activity: LockActivity,
    /// When it got a slot again.
    until: Option<Nanos>,
    record: Option<usize>,
}

/// The waits of a vCPU for a slot.
#[derive(Debug, Default, Clone, Copy)]
struct Waits {
    /// Start of the wait that has not ended.
    since: Option<Nanos>,
    /// Length of all waits that have ended.
    total: Nanos,
}

impl Waits {
    fn until(&self, now: Nanos) -> Nanos {
        self.total.after(self.since.map_or(Nanos::ZERO, |since| now.since(since)))
    }
}

/// The account of all preemptions of a schedule.
#[derive(Debug)]
pub struct Accounting {
    totals: Totals,
    records: Vec<Preemption>,
    /// By vCPU: its last preemption.
    open: Box<[Option<LastPreemption>]>,
    /// Preempted vCPUs for which others may have spun since. The next search drops entries of vCPUs that run
    /// again, which keeps searches short.
    preempted: Vec<VcpuIndex>,
    /// By vCPU: the time until which its spinning has been counted, so that no time counts twice.
    counted_until: Box<[Nanos]>,
    /// By vCPU.
    waits: Box<[Waits]>,
}

impl Accounting {
    /// Creates an empty account for `vcpus` vCPUs.
    pub fn new(vcpus: usize) -> Self {
        Self {
            totals: Totals::default(),
            records: Vec::with_capacity(MAX_RECORDS),
            open: vec![None; vcpus].into(),
            preempted: Vec::with_capacity(vcpus),
            counted_until: vec![Nanos::ZERO; vcpus].into(),
            waits: vec![Waits::default(); vcpus].into(),
        }
    }

    /// Returns the sums. Times exclude preemptions that have not ended.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the sums, with times until `now` for vCPUs that are still preempted.
    pub fn totals_at(&self, now: Nanos) -> Totals {
        let mut totals = self.totals;
        for open in self.open.iter().flatten().filter(|open| open.until.is_none()) {
            totals.add_off(&open.activity, now.since(open.at));
        }
        totals.ready_ns = self.waits.iter().map(|waits| waits.until(now).0).sum();
        totals
    }

    /// Returns the time until `now` in which the vCPU could have run but had no slot.
    pub fn ready_time(&self, vcpu: VcpuIndex, now: Nanos) -> Nanos {
        self.waits[vcpu.ix()].until(now)
    }

    /// Records that the vCPU could run and has no slot. Its wait may have begun before.
    pub(super) fn begin_wait(&mut self, vcpu: VcpuIndex, now: Nanos) {
        self.waits[vcpu.ix()].since.get_or_insert(now);
    }

    /// Records that the vCPU has a slot, or has exited.
    pub(super) fn end_wait(&mut self, vcpu: VcpuIndex, now: Nanos) {
        let waits = &mut self.waits[vcpu.ix()];
        let total = waits.until(now);
        self.totals.ready_ns += total.since(waits.total).0;
        *waits = Waits { since: None, total };
    }

    /// Returns the first 65 536 preemptions. [`Totals::preemptions`] counts all of them.
    pub fn records(&self) -> &[Preemption] {
        &self.records
    }

    /// Records that a vCPU of VM `vm` loses its slot against its will.
    pub fn record_preemption(&mut self, p: Preemption, vm: u32) {
        let totals = &mut self.totals;
        totals.preemptions += 1;
        match p.observed.activity {
            LockActivity::Unknown => totals.unknown += 1,
            LockActivity::PreemptDisabled => totals.guarded += 1,
            LockActivity::Free => {}
            LockActivity::Entering => {
                totals.queued += 1;
                totals.entering += 1;
            }
            holder if holder.is_holder() => totals.lhp += 1,
            next if next.is_next() => totals.lwp += 1,
            _ => totals.queued += 1,
        }
        match p.end {
            SliceEnd::Grace => totals.forced += 1,
            SliceEnd::Injected => totals.injected += 1,
            _ => {}
        }
        let record = (self.records.len() < self.records.capacity()).then(|| {
            self.records.push(p);
            self.records.len() - 1
        });
        let activity = p.observed.activity;
        if activity.is_involved() && !self.preempted.contains(&p.vcpu) {
            self.preempted.push(p.vcpu);
        }
        self.open[p.vcpu.ix()] =
            Some(LastPreemption { at: p.at, vm, activity, until: None, record });
    }

    /// Records that a vCPU yields its slot on request.
    pub fn count_yield(&mut self) {
        self.totals.yields += 1;
    }

    /// Records that a vCPU gets a slot.
    pub fn count_grant(&mut self) {
        self.totals.grants += 1;
    }

    /// Whether other vCPUs of its VM may spin for a lock because this vCPU is preempted.
    pub(super) fn may_block_others(&self, vcpu: VcpuIndex) -> bool {
        let open = self.open[vcpu.ix()].filter(|open| open.until.is_none());
        open.is_some_and(|open| open.activity.is_involved())
    }

    /// Records that the vCPU has a slot again. Spinning sampled at `now` still counts.
    pub fn record_resume(&mut self, vcpu: VcpuIndex, now: Nanos) {
        let Some(open) = self.open[vcpu.ix()].as_mut().filter(|open| open.until.is_none()) else {
            return;
        };
        open.until = Some(now);
        let off = now.since(open.at);
        if let Some(record) = open.record.and_then(|ix| self.records.get_mut(ix)) {
            record.off = Some(off);
        }
        self.totals.add_off(&open.activity, off);
    }

    /// Records that `spinner` of `vm` ran and waited, as described by `activity`, from `from` to `now`. The
    /// time is wasted if the holder, the vCPU that the lock now serves, or its kicker is preempted. (A running
    /// holder keeps the lock too briefly for its part of the wait to matter.)
    pub fn record_spinning(
        &mut self,
        spinner: VcpuIndex,
        vm: u32,
        activity: &LockActivity,
        from: Nanos,
        now: Nanos,
    ) {
        let from = from.max(self.counted_until[spinner.ix()]);
        self.counted_until[spinner.ix()] = now;
        let (Some(lock), head) = (activity.lock(), activity.head()) else { return };
        let open = &self.open;
        let may_count = |open: &LastPreemption| {
            open.activity.is_involved() && open.until.is_none_or(|at| at == now)
        };
        self.preempted.retain(|vcpu| open[vcpu.ix()].as_ref().is_some_and(may_count));
        let is_blocker = |open: &LastPreemption| match open.activity {
            _ if open.vm != vm || !open.activity.concerns(lock) => false,
            LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                head.map_or(open.activity.is_next(), |h| h == ticket)
            }
            _ => open.activity.is_holder(),
        };
        let vcpus = self.preempted.iter().filter_map(|vcpu| Some((vcpu.ix(), open[vcpu.ix()]?)));
        let blocker = vcpus.filter(|(_, open)| is_blocker(open)).min_by_key(|(ix, _)| *ix);
        let off =
            || self.open.iter().flatten().filter(|open| open.until.is_none_or(|at| at == now));
        debug_assert_eq!(
            blocker.map(|(_, open)| open.at),
            off().find(|open| is_blocker(open)).map(|open| open.at),
            "a preempted vCPU is missing"
        );
        let Some((_, open)) = blocker else { return };
        let spun = now.since(from.max(open.at));
        self.totals.wasted_spin_ns += spun.0;
        if let Some(record) = open.record.and_then(|ix| self.records.get_mut(ix)) {
            record.spun = record.spun.after(spun);
        }
    }
}
