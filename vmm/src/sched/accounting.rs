//! Ground truth: what each preemption interrupted, and what it cost the others.
//!
//! A vCPU spins in vain while whoever must move first is off its CPU. That time is added up
//! from what is known for certain: when a waiter began to wait (its telemetry), when it ran (the
//! schedule), and from when to when the holder, or the next in line, was preempted.

use serde::{Deserialize, Serialize};

use super::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnEnd,
};
use crate::units::{Nanos, SlotId};

/// Preemptions that are kept one by one.
const ROOM: usize = 1 << 16;

/// One preemption. Times are in nanoseconds, of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Preemption {
    /// When.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Who.
    pub vcpu: VcpuIndex,
    /// From which slot.
    pub slot: SlotId,
    /// Why.
    pub end: TurnEnd,
    /// At what.
    #[serde(flatten)]
    pub look: Observation,
    /// How long it was off; None: until the end.
    #[serde(rename = "off_ns")]
    pub off: Option<Nanos>,
    /// How long others span for its lock meanwhile, added up.
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
    /// Of them, of a vCPU that held a lock.
    pub lhp: u64,
    /// Of them, of a vCPU that was next in line.
    pub lwp: u64,
    /// Of them, of a vCPU further back in a line, or just joining one.
    pub queued: u64,
    /// Of these, of a vCPU that was drawing a ticket, where the others' lines do not tell which it
    /// has, if any: at most so many are of a holder or of the next in line and not in these counts.
    #[serde(default)]
    pub entering: u64,
    /// Of them, of a vCPU whose kernel had disabled preemption: maybe a holder, where there is no
    /// telemetry.
    pub guarded: u64,
    /// Of them, at nobody knows what.
    pub unknown: u64,
    /// Of them, after a grace ran out.
    pub forced: u64,
    /// Of them, for the experiment.
    pub injected: u64,
    /// Turns that the guest ended because it was asked.
    pub yields: u64,
    /// vCPU-nanoseconds of spinning for a lock whose holder, or whom it served next, was preempted.
    pub wasted_spin_ns: u64,
    /// Nanoseconds for which lock holders were preempted.
    pub holders_off_ns: u64,
    /// The same for those next in line.
    pub next_off_ns: u64,
}

impl Totals {
    /// A vCPU was off for so long that had been preempted at this.
    fn add_off(&mut self, activity: &LockActivity, off: Nanos) {
        if activity.is_holder() {
            self.holders_off_ns += off.0;
        } else if activity.is_next() {
            self.next_off_ns += off.0;
        }
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.grants += other.grants;
        self.preemptions += other.preemptions;
        self.lhp += other.lhp;
        self.lwp += other.lwp;
        self.queued += other.queued;
        self.entering += other.entering;
        self.guarded += other.guarded;
        self.unknown += other.unknown;
        self.forced += other.forced;
        self.injected += other.injected;
        self.yields += other.yields;
        self.wasted_spin_ns += other.wasted_spin_ns;
        self.holders_off_ns += other.holders_off_ns;
        self.next_off_ns += other.next_off_ns;
    }
}

impl std::ops::Sub for Totals {
    type Output = Totals;

    fn sub(self, before: Totals) -> Totals {
        Totals {
            grants: self.grants - before.grants,
            preemptions: self.preemptions - before.preemptions,
            lhp: self.lhp - before.lhp,
            lwp: self.lwp - before.lwp,
            queued: self.queued - before.queued,
            entering: self.entering - before.entering,
            guarded: self.guarded - before.guarded,
            unknown: self.unknown - before.unknown,
            forced: self.forced - before.forced,
            injected: self.injected - before.injected,
            yields: self.yields - before.yields,
            wasted_spin_ns: self.wasted_spin_ns - before.wasted_spin_ns,
            holders_off_ns: self.holders_off_ns - before.holders_off_ns,
            next_off_ns: self.next_off_ns - before.next_off_ns,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Open {
    at: Nanos,
    vm: u32,
    activity: LockActivity,
    /// When it had a slot again.
    back: Option<Nanos>,
    record: Option<usize>,
}

/// The account.
#[derive(Debug)]
pub struct Accounting {
    totals: Totals,
    records: Vec<Preemption>,
    /// Preempted and not yet back, by vCPU.
    open: Box<[Option<Open>]>,
    /// Until when a vCPU's spinning is in the account, so that none counts twice.
    counted: Box<[Nanos]>,
}

impl Accounting {
    /// An empty account for so many vCPUs.
    pub fn new(vcpus: usize) -> Self {
        Self {
            totals: Totals::default(),
            records: Vec::with_capacity(ROOM),
            open: vec![None; vcpus].into(),
            counted: vec![Nanos::ZERO; vcpus].into(),
        }
    }

    /// The sums.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The sums at `now`, with the time in them for which vCPUs are off that are not yet back.
    pub fn totals_at(&self, now: Nanos) -> Totals {
        let mut totals = self.totals;
        for open in self.open.iter().flatten().filter(|open| open.back.is_none()) {
            totals.add_off(&open.activity, now.since(open.at));
        }
        totals
    }

    /// The first preemptions, one by one: [`Totals::preemptions`] tells how many there were.
    pub fn records(&self) -> &[Preemption] {
        &self.records
    }

    pub(super) fn preempted(&mut self, p: Preemption, vm: u32) {
        let totals = &mut self.totals;
        totals.preemptions += 1;
        match p.look.activity {
            LockActivity::Unknown => totals.unknown += 1,
            LockActivity::Guarded => totals.guarded += 1,
            LockActivity::Free => {}
            activity if activity.is_holder() => totals.lhp += 1,
            activity if activity.is_next() => totals.lwp += 1,
            _ => totals.queued += 1,
        }
        totals.entering += u64::from(p.look.activity == LockActivity::Entering);
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
        self.open[p.vcpu.ix()] = Some(Open { at: p.at, vm, activity, back: None, record });
    }

    pub(super) fn yielded(&mut self) {
        self.totals.yields += 1;
    }

    pub(super) fn granted(&mut self) {
        self.totals.grants += 1;
    }

    /// May others of its VM spin for a lock because this vCPU is off?
    pub(super) fn blocks(&self, vcpu: VcpuIndex) -> bool {
        let open = self.open[vcpu.ix()].filter(|open| open.back.is_none());
        open.is_some_and(|open| open.activity.is_involved())
    }

    /// It is back on a slot. What others are sampled to have spun until this moment still counts.
    pub(super) fn back(&mut self, vcpu: VcpuIndex, now: Nanos) {
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

    /// `spinner` of `vm` has run and waited as `activity` says from `from` to `now`: in vain, if the
    /// lock's holder is preempted, or whom the lock serves by now. (A holder that runs keeps it for
    /// so short that its part of the wait is not told apart.)
    pub(super) fn spun(
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
        let keeps_waiting = |open: &Open| match open.activity {
            _ if open.vm != vm || !open.activity.concerns(lock) => false,
            _ if open.back.is_some_and(|back| back != now) => false,
            LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                head.map_or(open.activity.is_next(), |h| h == ticket)
            }
            _ => open.activity.is_holder(),
        };
        let Some(open) = self.open.iter().flatten().find(|open| keeps_waiting(open)) else {
            return;
        };
        let spun = now.since(from.max(open.at));
        self.totals.wasted_spin_ns += spun.0;
        if let Some(record) = open.record.and_then(|ix| self.records.get_mut(ix)) {
            record.spun = record.spun.after(spun);
        }
    }
}
