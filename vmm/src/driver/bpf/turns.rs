//! The turns that the host's kernel has ended: the account of them, and what a trace shows.

use std::collections::HashMap;

use ::bpf::{Turn, TurnEnd};
use hypercalls::telemetry::Wait;

use super::report::BpfReport;
use crate::{
    driver::{Captured, Histograms, Latency, Meter, SchedReport, capture::METER_EVERY},
    units::{Nanos, SlotId},
};
use sched::{
    accounting::{Preemption, Totals},
    event::{LockActivity, LockId, Mode, Observation, VcpuIndex},
    log::{self, Progress, Sighting},
    recording::Recording,
};

/// Preemptions that are kept one by one.
const PREEMPTIONS: usize = 1 << 16;
/// Turns that a trace keeps.
const TRACED: usize = 1 << 20;

/// What the turns of a schedule sum up to.
pub(super) struct Turns {
    /// By machine: the index of its first vCPU, and how many it has.
    machines: Box<[(u32, u32)]>,
    /// The slot of each CPU, by the kernel's number.
    slots: HashMap<u32, SlotId>,
    pub(super) report: BpfReport,
    pub(super) totals: Totals,
    preemptions: Vec<Preemption>,
    /// By vCPU: what it was preempted at, while it is.
    off: Box<[Option<Off>]>,
    /// By vCPU: when a thread of the host took its CPU in the middle of its turn.
    taken: Box<[Option<Nanos>]>,
    trace: Option<Trace>,
}

/// A preemption that still lasts.
#[derive(Debug, Clone, Copy)]
struct Off {
    at: Nanos,
    activity: LockActivity,
    /// Its index in the list of preemptions, if that had room for it.
    record: Option<usize>,
}

/// What a trace shows.
#[derive(Default)]
struct Trace {
    turns: Vec<(Nanos, log::Turn)>,
    lost: u64,
    sightings: Vec<Sighting>,
    progress: Vec<Progress>,
    meters: Vec<Meter>,
}

impl Turns {
    /// Of machines with these numbers of vCPUs, on slots that are these CPUs by the kernel's number.
    pub(super) fn new(vcpus: &[u32], cpus: impl IntoIterator<Item = usize>, traced: bool) -> Self {
        let mut all = 0;
        let machines = vcpus.iter().map(|count| {
            let first = all;
            all += count;
            (first, *count)
        });
        let machines: Box<[_]> = machines.collect();
        let slots = cpus.into_iter().zip(0..).map(|(cpu, slot)| (cpu as u32, SlotId(slot)));
        Self {
            machines,
            slots: slots.collect(),
            report: BpfReport::default(),
            totals: Totals::default(),
            preemptions: Vec::new(),
            off: vec![None; all as usize].into(),
            taken: vec![None; all as usize].into(),
            trace: traced.then(Trace::default),
        }
    }

    fn index(&self, turn: &Turn) -> Option<VcpuIndex> {
        let (first, count) = *self.machines.get(turn.machine as usize)?;
        (turn.vcpu < count).then(|| VcpuIndex(first + turn.vcpu))
    }

    /// Has a trace read the machines' progress.
    pub(super) fn meter(&mut self, meters: Vec<Meter>) {
        if let Some(trace) = &mut self.trace {
            trace.meters = meters;
        }
    }

    /// Reads the machines' progress, if a trace shows it.
    pub(super) fn read_meters(&mut self, now: Nanos) {
        let Some(trace) = &mut self.trace else { return };
        let is_due = |last: &Progress| now.since(last.at) >= METER_EVERY;
        if trace.progress.last().is_none_or(is_due) && trace.progress.len() < TRACED {
            let read = (0..).zip(&trace.meters);
            let read = read.map(|(vm, meter)| Progress { at: now, vm, done: meter() });
            trace.progress.extend(read);
        }
    }

    /// Adds a turn, or the part of it before a thread of the host took the CPU.
    pub(super) fn add(&mut self, turn: &Turn) {
        self.report.count(turn);
        let Some(vcpu) = self.index(turn) else { return };
        let began = self.taken[vcpu.ix()].take().unwrap_or(turn.began).max(turn.began);
        let activity = activity(turn);
        let slot = self.slots.get(&turn.cpu).copied().unwrap_or(SlotId(0));
        self.is_back(vcpu, turn.began);
        if let Some(trace) = &mut self.trace {
            trace.add(turn, began, (vcpu, slot), activity);
        }
        if turn.end == TurnEnd::Taken {
            self.taken[vcpu.ix()] = Some(turn.ended);
            return;
        }
        self.totals.grants += 1;
        if turn.end != TurnEnd::Blocked {
            self.preempted(turn, (vcpu, slot), activity);
        }
    }

    fn preempted(
        &mut self,
        turn: &Turn,
        (vcpu, slot): (VcpuIndex, SlotId),
        activity: LockActivity,
    ) {
        let totals = &mut self.totals;
        totals.preemptions += 1;
        totals.forced += u64::from(turn.end == TurnEnd::Forced);
        match activity {
            LockActivity::Unknown => totals.unknown += 1,
            LockActivity::Free => {}
            activity if activity.is_holder() => totals.lhp += 1,
            activity if activity.is_next() => totals.lwp += 1,
            _ => {
                totals.queued += 1;
                // Whether it is next in line is not known: an upper bound on what `lwp` misses.
                totals.entering += 1;
            }
        }
        let at = turn.ended;
        let record = (self.preemptions.len() < PREEMPTIONS).then_some(self.preemptions.len());
        if record.is_some() {
            let look = Observation { mode: Mode::Unknown, activity };
            let (end, off, spun) = (end(turn.end), None, Nanos::ZERO);
            self.preemptions.push(Preemption { at, vcpu, slot, end, look, off, spun });
        }
        self.off[vcpu.ix()] = Some(Off { at, activity, record });
    }

    /// It had a slot again at this time.
    fn is_back(&mut self, vcpu: VcpuIndex, now: Nanos) {
        let Some(off) = self.off[vcpu.ix()].take() else { return };
        let lasted = now.since(off.at);
        if let Some(record) = off.record {
            self.preemptions[record].off = Some(lasted);
        }
        if off.activity.is_holder() {
            self.totals.holders_off_ns += lasted.0;
        } else if off.activity.is_next() {
            self.totals.next_off_ns += lasted.0;
        }
    }

    /// All of it, in the form of a schedule of this program. `until`: now.
    pub(super) fn sched_report(&self, until: Nanos) -> SchedReport {
        let captured = self.trace.as_ref().map(|trace| trace.captured(until));
        let began = captured.as_ref().map_or(Nanos::ZERO, |captured| captured.began);
        let recording = Recording {
            vcpus: self.off.len() as u32,
            slots: self.slots.len() as u32,
            spin_looks: 0,
            lost: self.trace.as_ref().map_or(0, |trace| trace.lost) + self.report.lost,
            turns: self.trace.as_ref().map_or_else(Vec::new, |trace| trace.turns(began)),
        };
        SchedReport {
            totals: self.totals,
            hits: None,
            counts_waste: false,
            divergence: None,
            lateness: Latency::default(),
            handover: Latency::default(),
            release_to_kick: Latency::default(),
            kick_to_grant: Latency::default(),
            grant_to_guest: Latency::default(),
            histograms: Histograms::default(),
            preemptions: self.preemptions.clone(),
            recording,
            captured,
        }
    }
}

impl Trace {
    fn add(
        &mut self,
        turn: &Turn,
        began: Nanos,
        (vcpu, slot): (VcpuIndex, SlotId),
        activity: LockActivity,
    ) {
        if self.turns.len() == TRACED {
            self.lost += 1;
            return;
        }
        let (at, ran) = (Nanos::ZERO, turn.ended.since(began));
        let its = log::Turn { at, ran, vcpu, slot, end: end(turn.end), point: None };
        self.turns.push((began, its));
        self.sightings.push(Sighting { at: turn.ended, vcpu, activity });
    }

    fn captured(&self, until: Nanos) -> Captured {
        let began = self.turns.iter().map(|(began, _)| *began).min().unwrap_or(until);
        let mut sightings = self.sightings.clone();
        sightings.sort_by_key(|its| its.at);
        Captured {
            sightings,
            handoffs: Vec::new(),
            progress: self.progress.clone(),
            lost_sightings: self.lost,
            lost_handoffs: 0,
            began,
            until,
        }
    }

    /// The turns in the order in which they began, counted from `began`.
    fn turns(&self, began: Nanos) -> Vec<log::Turn> {
        let since = |(at, turn): &(Nanos, log::Turn)| log::Turn { at: at.since(began), ..*turn };
        let mut turns: Vec<log::Turn> = self.turns.iter().map(since).collect();
        turns.sort_by_key(|turn| turn.at);
        turns
    }
}

/// The same end, as a schedule of this program has it. A thread of the host that takes the CPU ends a
/// turn as the end of a slice does.
const fn end(end: TurnEnd) -> log::TurnEnd {
    match end {
        TurnEnd::Blocked => log::TurnEnd::Halted,
        TurnEnd::Slice | TurnEnd::Blind | TurnEnd::Taken | TurnEnd::Unasked => log::TurnEnd::Slice,
        TurnEnd::Forced => log::TurnEnd::Grace,
    }
}

/// What the vCPU did with locks when its turn ended. How far it was from the head of a queue is not
/// known, since the kernel does not read the lock's word.
fn activity(turn: &Turn) -> LockActivity {
    let (wait, ticket) = Wait::parse(turn.wait);
    let lock = LockId(turn.wait_lock);
    match wait {
        _ if turn.held > 0 => {
            // The outermost is recorded: the innermost if it is the only one.
            let lock = (turn.held == 1).then_some(LockId(turn.held_lock));
            LockActivity::Holding { lock, depth: turn.held }
        }
        // Its line has never been written.
        Wait::Nothing if turn.held_lock == 0 && turn.wait_lock == 0 => LockActivity::Unknown,
        Wait::Nothing => LockActivity::Free,
        Wait::Entering => LockActivity::Entering,
        Wait::Spinning | Wait::Halted => LockActivity::Waiting {
            lock,
            ticket,
            distance: None,
            since: Nanos::ZERO,
            halted: wait == Wait::Halted,
        },
        Wait::Outside => LockActivity::Outside { lock, queued: None, since: Nanos::ZERO },
        Wait::Kicking => LockActivity::Kicking { lock, ticket },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of vCPU 1 of machine 1 on CPU 3, which ends at this time.
    fn turn(end: TurnEnd, (began, ended): (u64, u64), held: u32) -> Turn {
        let (began, ended, grace) = (Nanos(began), Nanos(ended), Nanos::ZERO);
        let (wait, wait_lock) = (Wait::Nothing.word(0), 8);
        let (machine, vcpu, cpu) = (1, 1, 3);
        let held_lock = 16;
        Turn { machine, vcpu, cpu, end, began, ended, grace, held, wait, wait_lock, held_lock }
    }

    fn turns(traced: bool) -> Turns {
        Turns::new(&[2, 2], [2, 3], traced)
    }

    #[test]
    fn a_preempted_holder_counts_with_its_time_off() {
        let mut turns = turns(false);
        turns.add(&turn(TurnEnd::Blind, (10, 20), 1));
        turns.add(&turn(TurnEnd::Blocked, (50, 60), 1));
        turns.add(&turn(TurnEnd::Forced, (70, 80), 0));
        let expected = Totals {
            grants: 3,
            preemptions: 2,
            lhp: 1,
            forced: 1,
            holders_off_ns: 30,
            ..Totals::default()
        };
        assert_eq!(turns.totals, expected);
        let report = turns.sched_report(Nanos(100));
        let first = report.preemptions[0];
        assert_eq!((first.vcpu, first.slot, first.off), (VcpuIndex(3), SlotId(1), Some(Nanos(30))));
        assert!(first.look.activity.is_holder() && report.preemptions[1].off.is_none());
    }

    #[test]
    fn a_thread_of_the_host_ends_no_turn_and_parts_it_in_a_trace() {
        let mut turns = turns(true);
        turns.add(&turn(TurnEnd::Taken, (10, 20), 1));
        turns.add(&turn(TurnEnd::Slice, (10, 40), 0));
        assert_eq!((turns.totals.grants, turns.totals.preemptions, turns.totals.lhp), (1, 1, 0));
        assert_eq!((turns.report.taken, turns.report.held), (1, 1));
        let report = turns.sched_report(Nanos(100));
        let parts: Vec<_> =
            report.recording.turns.iter().map(|its| (its.at.0, its.ran.0)).collect();
        assert_eq!(parts, [(0, 10), (10, 20)]);
        assert_eq!(
            report.captured.map(|its| (its.began, its.until)),
            Some((Nanos(10), Nanos(100)))
        );
    }

    #[test]
    fn a_turn_of_no_vcpu_of_the_schedule_is_in_no_sum() {
        let mut turns = turns(false);
        turns.add(&Turn { machine: 2, ..turn(TurnEnd::Blind, (1, 2), 1) });
        turns.add(&Turn { vcpu: 2, ..turn(TurnEnd::Blind, (1, 2), 1) });
        assert_eq!(turns.totals, Totals::default());
        assert_eq!(turns.report.blind, 2, "it is counted as the kernel counts it");
    }
}
