//! LHP/LWP accounting: what each preemption interrupted, and what it cost the other vCPUs.
//!
//! A vCPU's spinning is wasted while the vCPU that must move first is preempted. That time is
//! summed up from what is known for certain: when a waiter began to wait (its telemetry), when it
//! ran (the schedule), and from when to when the holder, or the next in line, was preempted.

use serde::{Deserialize, Serialize};

use super::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnEnd,
};
use base::{
    sums,
    units::{Nanos, SlotId},
};

/// Number of preemptions that are kept one by one.
const ROOM: usize = 1 << 16;

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
    /// Why its turn ended.
    pub end: TurnEnd,
    /// What it was doing.
    #[serde(flatten)]
    pub look: Observation,
    /// How long it had no slot; None: until the end of the run.
    #[serde(rename = "off_ns")]
    pub off: Option<Nanos>,
    /// Sum of the time that other vCPUs spun for its lock meanwhile.
    #[serde(rename = "others_spun_ns")]
    pub spun: Nanos,
}

/// Sums over a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Turns that began.
    pub grants: u64,
    /// Turns that ended against the vCPU's will.
    pub preemptions: u64,
    /// Preemptions of a vCPU that held a lock.
    pub lhp: u64,
    /// Preemptions of a vCPU that was next in line.
    pub lwp: u64,
    /// Preemptions of a vCPU further back in a queue, or just joining one.
    pub queued: u64,
    /// The part of `queued` that was drawing a ticket, where the other vCPUs' telemetry lines do
    /// not tell which one it has, if any. Upper bound on the preemptions that `lhp` and `lwp` miss.
    pub entering: u64,
    /// Preemptions of a vCPU whose kernel had disabled preemption: maybe a holder, without
    /// telemetry.
    pub guarded: u64,
    /// Preemptions whose activity is unknown.
    pub unknown: u64,
    /// Preemptions after a grace ran out.
    pub forced: u64,
    /// Preemptions that the experiment injected.
    pub injected: u64,
    /// Turns that the guest ended because it was asked to.
    pub yields: u64,
    /// vCPU-nanoseconds of spinning for a lock whose holder, or next in line, was preempted.
    pub wasted_spin_ns: u64,
    /// Nanoseconds for which lock holders were preempted.
    pub holders_off_ns: u64,
    /// Nanoseconds for which vCPUs next in line were preempted.
    pub next_off_ns: u64,
}

sums!(
    Totals: grants, preemptions, lhp, lwp, queued, entering, guarded, unknown, forced, injected, yields,
    wasted_spin_ns, holders_off_ns, next_off_ns
);

impl Totals {
    /// Adds the time that a vCPU preempted at this activity had no slot.
    fn add_off(&mut self, activity: &LockActivity, off: Nanos) {
        if activity.is_holder() {
            self.holders_off_ns += off.0;
        } else if activity.is_next() {
            self.next_off_ns += off.0;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OpenPreemption {
    at: Nanos,
    vm: u32,
    activity: LockActivity,
    /// When it had a slot again.
    back: Option<Nanos>,
    record: Option<usize>,
}

/// The account of all preemptions of a schedule.
#[derive(Debug)]
pub struct Accounting {
    totals: Totals,
    records: Vec<Preemption>,
    /// By vCPU: its preemption, if it is not back on a slot yet.
    open: Box<[Option<OpenPreemption>]>,
    /// The vCPUs that were preempted within a lock and for which others may have spun since. Those
    /// that are back are dropped at the next search, so that a search looks at few.
    stranded: Vec<VcpuIndex>,
    /// By vCPU: until when its spinning has been accounted for, so that no time counts twice.
    counted: Box<[Nanos]>,
}

impl Accounting {
    /// An empty account for `vcpus` vCPUs.
    pub fn new(vcpus: usize) -> Self {
        Self {
            totals: Totals::default(),
            records: Vec::with_capacity(ROOM),
            open: vec![None; vcpus].into(),
            stranded: Vec::with_capacity(vcpus),
            counted: vec![Nanos::ZERO; vcpus].into(),
        }
    }

    /// The sums, without the preemptions that still last.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The sums at `now`, including the time so far of vCPUs that are still preempted.
    pub fn totals_at(&self, now: Nanos) -> Totals {
        let mut totals = self.totals;
        for open in self.open.iter().flatten().filter(|open| open.back.is_none()) {
            totals.add_off(&open.activity, now.since(open.at));
        }
        totals
    }

    /// The first preemptions, one by one; [`Totals::preemptions`] is the number of all.
    pub fn records(&self) -> &[Preemption] {
        &self.records
    }

    /// A vCPU of machine `vm` loses its slot against its will.
    pub fn preempted(&mut self, p: Preemption, vm: u32) {
        let totals = &mut self.totals;
        totals.preemptions += 1;
        match p.look.activity {
            LockActivity::Unknown => totals.unknown += 1,
            LockActivity::Guarded => totals.guarded += 1,
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
            TurnEnd::Grace => totals.forced += 1,
            TurnEnd::Injected => totals.injected += 1,
            _ => {}
        }
        let record = (self.records.len() < self.records.capacity()).then(|| {
            self.records.push(p);
            self.records.len() - 1
        });
        let activity = p.look.activity;
        if activity.is_involved() && !self.stranded.contains(&p.vcpu) {
            self.stranded.push(p.vcpu);
        }
        self.open[p.vcpu.ix()] =
            Some(OpenPreemption { at: p.at, vm, activity, back: None, record });
    }

    /// A vCPU gives up its slot because it was asked to.
    pub fn yielded(&mut self) {
        self.totals.yields += 1;
    }

    /// A turn begins.
    pub fn granted(&mut self) {
        self.totals.grants += 1;
    }

    /// May other vCPUs of its VM spin for a lock because this vCPU is preempted?
    pub(super) fn blocks(&self, vcpu: VcpuIndex) -> bool {
        let open = self.open[vcpu.ix()].filter(|open| open.back.is_none());
        open.is_some_and(|open| open.activity.is_involved())
    }

    /// The vCPU has a slot again. Spinning that other vCPUs are sampled to have done until now still counts.
    pub fn back(&mut self, vcpu: VcpuIndex, now: Nanos) {
        let Some(open) = self.open[vcpu.ix()].as_mut().filter(|open| open.back.is_none()) else {
            return;
        };
        open.back = Some(now);
        let off = now.since(open.at);
        if let Some(record) = open.record.and_then(|ix| self.records.get_mut(ix)) {
            record.off = Some(off);
        }
        self.totals.add_off(&open.activity, off);
    }

    /// `spinner` of `vm` has run and waited as `activity` says from `from` to `now`. This is wasted
    /// if the lock's holder is preempted, or the vCPU that the lock serves by now. (A holder that
    /// runs keeps the lock so briefly that its part of the wait is not told apart.)
    pub fn spun(
        &mut self,
        spinner: VcpuIndex,
        vm: u32,
        activity: &LockActivity,
        from: Nanos,
        now: Nanos,
    ) {
        let from = from.max(self.counted[spinner.ix()]);
        self.counted[spinner.ix()] = now;
        let (Some(lock), head) = (activity.lock(), activity.head()) else { return };
        let open = &self.open;
        let counts = |open: &OpenPreemption| {
            open.activity.is_involved() && open.back.is_none_or(|back| back == now)
        };
        self.stranded.retain(|vcpu| open[vcpu.ix()].as_ref().is_some_and(counts));
        let keeps_waiting = |open: &OpenPreemption| match open.activity {
            _ if open.vm != vm || !open.activity.concerns(lock) => false,
            LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                head.map_or(open.activity.is_next(), |h| h == ticket)
            }
            _ => open.activity.is_holder(),
        };
        let all = self.stranded.iter().filter_map(|vcpu| Some((vcpu.ix(), open[vcpu.ix()]?)));
        let keeping = all.filter(|(_, open)| keeps_waiting(open)).min_by_key(|(ix, _)| *ix);
        let all = || self.open.iter().flatten().filter(|open| open.back.is_none_or(|at| at == now));
        debug_assert_eq!(
            keeping.map(|(_, open)| open.at),
            all().find(|open| keeps_waiting(open)).map(|open| open.at),
            "a stranded vCPU is missing"
        );
        let Some((_, open)) = keeping else { return };
        let spun = now.since(from.max(open.at));
        self.totals.wasted_spin_ns += spun.0;
        if let Some(record) = open.record.and_then(|ix| self.records.get_mut(ix)) {
            record.spun = record.spun.after(spun);
        }
    }
}
