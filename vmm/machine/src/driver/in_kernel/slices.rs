//! The account of a schedule carried out by the host's kernel: feeds its records to the accounting of the
//! user-space driver's core.

use std::collections::HashMap;

use bpf::{Locks, Record, RecordKind, RecordedEnd, SchedulerCounts};

use super::{
    activity::activity, extensions::RecordedExtensions, kernel_report::BpfReport,
    trace::KernelTrace,
};
use crate::driver::{
    ExtensionReport, Histograms, Latency, LineUpkeep, Meter, SchedReport, TelemetryView, stats,
};
use base::units::{Nanos, SlotId, VcpuId};
use sched::{
    accounting::{Accounting, Preemption, Totals},
    event::{LockActivity, Mode, Observation, VcpuIndex},
    extensions::Extensions,
    log,
    policy::Hits,
    recording::Recording,
};

/// Sums over the records of a schedule.
pub(super) struct SliceAccount {
    /// By machine, the index of its first vCPU, and its number of vCPUs.
    machines: Box<[(u32, u32)]>,
    /// The slot of each CPU, by the kernel's CPU number.
    slots: HashMap<u32, SlotId>,
    pub(super) report: BpfReport,
    accounting: Accounting,
    /// By vCPU, the start of its current slice.
    running: Box<[Option<Nanos>]>,
    /// By vCPU, the start of its wait for a slot, if its last slice left it runnable.
    waiting: Box<[Option<Nanos>]>,
    /// By slot, the end of its last slice, until a new one begins.
    vacated: Box<[Option<Nanos>]>,
    times: Histograms,
    extensions: Option<RecordedExtensions>,
    trace: Option<KernelTrace>,
}

impl SliceAccount {
    /// Creates the account of machines with these numbers of vCPUs. `cpus` are the slots' CPUs, in the
    /// kernel's numbering. `bound` is the limit of extensions, if the policy grants any.
    pub(super) fn new(
        vcpus: &[u32],
        cpus: impl IntoIterator<Item = usize>,
        bound: Option<Nanos>,
        traced: bool,
    ) -> Self {
        let mut total = 0;
        let machines = vcpus.iter().map(|count| {
            let first = total;
            total += count;
            (first, *count)
        });
        let machines: Box<[_]> = machines.collect();
        let slots = cpus.into_iter().zip(0..).map(|(cpu, slot)| (cpu as u32, SlotId(slot)));
        let slots: HashMap<_, _> = slots.collect();
        Self {
            machines,
            vacated: vec![None; slots.len()].into(),
            slots,
            report: BpfReport::default(),
            accounting: Accounting::new(total as usize),
            running: vec![None; total as usize].into(),
            waiting: vec![None; total as usize].into(),
            times: stats::histograms(),
            extensions: bound.map(RecordedExtensions::new),
            trace: traced.then(KernelTrace::default),
        }
    }

    fn index(&self, machine: u32, vcpu: u32) -> Option<VcpuIndex> {
        let (first, count) = *self.machines.get(machine as usize)?;
        (vcpu < count).then(|| VcpuIndex(first + vcpu))
    }

    pub(super) fn set_meters(&mut self, meters: Vec<Meter>) {
        if let Some(trace) = &mut self.trace {
            trace.meters = meters;
        }
    }

    pub(super) fn read_meters(&mut self, now: Nanos) {
        if let Some(trace) = &mut self.trace {
            trace.read_meters(now);
        }
    }

    /// Adds a record. `lines` belong to the record's machine, and `now` is the time of this call.
    pub(super) fn add(&mut self, record: &Record, lines: Option<&TelemetryView>, now: Nanos) {
        let Some(vcpu) = self.index(record.machine, record.vcpu) else { return };
        let decode = |locks: &Locks| {
            let since =
                lines.and_then(|view| view.time_of(VcpuId(record.vcpu), locks.wait_since, now));
            let blank = lines.is_none_or(|view| view.upkeep() == LineUpkeep::Maybe);
            activity(locks, since.unwrap_or_default(), record.at, blank)
        };
        match &record.kind {
            RecordKind::Began => {
                self.record_start(vcpu, record);
                self.running[vcpu.ix()] = Some(record.at);
                self.accounting.record_resume(vcpu, record.at);
                self.accounting.count_grant();
            }
            RecordKind::Sampled(locks) => {
                self.spin(vcpu, record.machine, &decode(locks), record.at)
            }
            RecordKind::Ended { end, locks, extended, .. } => {
                if let (Some(extensions), Some(lasted)) = (&mut self.extensions, *extended)
                    && *end != RecordedEnd::Taken
                {
                    extensions.count(*end, lasted);
                }
                self.record_end(record, vcpu, *end, decode(locks));
            }
        }
    }

    /// Records a handover if the vCPU was waiting when the slot's last slice ended.
    fn record_start(&mut self, vcpu: VcpuIndex, record: &Record) {
        let waiting = self.waiting[vcpu.ix()].take();
        let slot =
            self.slots.get(&record.cpu).and_then(|slot| self.vacated.get_mut(slot.0 as usize));
        let vacated = slot.and_then(Option::take);
        let handover = vacated.filter(|at| waiting.is_some_and(|since| since < *at));
        stats::record(&mut self.times.handover, handover.map(|at| record.at.since(at)));
    }

    fn record_end(
        &mut self,
        record: &Record,
        vcpu: VcpuIndex,
        end: RecordedEnd,
        activity: LockActivity,
    ) {
        // The vCPU makes way during its kick, so its line still shows the kick.
        let activity = if end == RecordedEnd::MadeWay { activity.after_kick() } else { activity };
        self.report.count(end, &activity);
        // The slice continues once the host's thread is done.
        let Some(end) = as_logged(end) else { return };
        // The record of the start may be lost.
        let began = self.running[vcpu.ix()].unwrap_or(record.began);
        self.spin(vcpu, record.machine, &activity, record.at);
        self.running[vcpu.ix()] = None;
        let slot = self.slots.get(&record.cpu).copied().unwrap_or(SlotId(0));
        if let Some(vacated) = self.vacated.get_mut(slot.0 as usize) {
            *vacated = Some(record.at);
        }
        // A vCPU that is held off is not runnable.
        let waits = !matches!(end, log::SliceEnd::Halted | log::SliceEnd::Injected);
        self.waiting[vcpu.ix()] = waits.then_some(record.at);
        match end {
            log::SliceEnd::Yield => self.accounting.count_yield(),
            end if end.is_voluntary() => {}
            end => {
                let observed = Observation { mode: Mode::Unknown, activity };
                let (at, off, spun) = (record.at, None, Nanos::ZERO);
                let preemption = Preemption { at, vcpu, slot, end, observed, off, spun };
                self.accounting.record_preemption(preemption, record.machine);
            }
        }
        if let Some(trace) = &mut self.trace {
            let ran = record.at.since(began);
            let free = matches!(activity, LockActivity::Free);
            let slice = log::Slice { at: Nanos::ZERO, ran, vcpu, slot, end, point: None, free };
            trace.add(began, slice, activity);
        }
    }

    /// Accounts a running vCPU's spinning until `at`.
    fn spin(&mut self, vcpu: VcpuIndex, machine: u32, activity: &LockActivity, at: Nanos) {
        let LockActivity::Waiting { since, halted: false, .. } = *activity else { return };
        if let Some(began) = self.running[vcpu.ix()] {
            self.accounting.record_spinning(vcpu, machine, activity, since.max(began), at);
        }
    }

    /// Brings the account up to `now`, because running vCPUs may have spun until then.
    pub(super) fn catch_up<'a>(
        &mut self,
        lines: impl Fn(usize) -> Option<&'a TelemetryView>,
        now: Nanos,
    ) {
        for (machine, (first, count)) in self.machines.clone().into_iter().enumerate() {
            let Some(lines) = lines(machine) else { continue };
            for id in 0..count {
                let activity = lines.activity(VcpuId(id), now);
                self.spin(VcpuIndex(first + id), machine as u32, &activity, now);
            }
        }
    }

    /// Returns the sums, including ongoing preemptions up to `now`.
    pub(super) fn totals(&self, now: Nanos) -> Totals {
        self.accounting.totals_at(now)
    }

    /// Returns the extensions of ended slices, under a policy that grants any.
    pub(super) fn extensions(&self) -> Option<&Extensions> {
        self.extensions.as_ref().map(|extensions| &extensions.counts)
    }

    /// Returns the results in the form of the user-space driver. `until` is the current time.
    pub(super) fn sched_report(&self, hits: Option<Hits>, until: Nanos) -> SchedReport {
        let captured = self.trace.as_ref().map(|trace| trace.data(until));
        let began = captured.as_ref().map_or(Nanos::ZERO, |captured| captured.began);
        let recording = Recording {
            vcpus: self.running.len() as u32,
            slots: self.slots.len() as u32,
            spin_limit: 0,
            lost: self.trace.as_ref().map_or(0, |trace| trace.lost) + self.report.lost,
            slices: self.trace.as_ref().map_or_else(Vec::new, |trace| trace.slices(began)),
        };
        SchedReport {
            totals: self.accounting.totals(),
            hits,
            extensions: self.extensions().map(ExtensionReport::new),
            counts_waste: true,
            divergence: None,
            times: self.times.map(Latency::from_histogram),
            histograms: self.times.clone(),
            preemptions: self.accounting.records().to_vec(),
            recording,
            captured,
            lost: self.report.lost + self.report.lost_others,
        }
    }
}

/// Returns hits and misses of a policy that injects preemptions.
pub(super) const fn hits(counts: &SchedulerCounts) -> Hits {
    Hits { hits: counts.hits, guesses: 0, misses: counts.misses }
}

/// Converts the end of a slice to the user-space driver's form. `None` if the slice continues.
const fn as_logged(end: RecordedEnd) -> Option<log::SliceEnd> {
    Some(match end {
        RecordedEnd::Blocked => log::SliceEnd::Halted,
        RecordedEnd::Slice => log::SliceEnd::Expired,
        RecordedEnd::Unasked => log::SliceEnd::Unasked,
        RecordedEnd::Forced => log::SliceEnd::Grace,
        RecordedEnd::Yielded => log::SliceEnd::Yield,
        RecordedEnd::MadeWay => log::SliceEnd::MadeWay,
        RecordedEnd::Injected => log::SliceEnd::Injected,
        RecordedEnd::Taken => return None,
    })
}

#[cfg(test)]
mod tests {
    use hypercalls::telemetry::Wait;

    use super::*;

    const LOCK: u64 = 0x1000;

    fn record(vcpu: u32, at: u64, kind: RecordKind) -> Record {
        let (machine, cpu, began) = (0, vcpu % 2, Nanos(at));
        Record { at: Nanos(at), machine, vcpu, cpu, began, kind }
    }

    fn ended(vcpu: u32, at: u64, end: RecordedEnd, locks: Locks) -> Record {
        record(vcpu, at, RecordKind::Ended { end, grace: Nanos::ZERO, extended: None, locks })
    }

    fn free() -> Locks {
        Locks { held_lock: [LOCK, 0, 0], ..Locks::default() }
    }

    /// The vCPU holds the lock with ticket 2.
    fn holder() -> Locks {
        Locks {
            held: 1,
            held_ticket: [2, 0, 0],
            held_word: [Some(2 | 8 << 16), None, None],
            ..free()
        }
    }

    /// The vCPU spins with this ticket.
    fn waiter(ticket: u16) -> Locks {
        let (wait, wait_word) = (Wait::Spinning.word(ticket), Some(2 | 8 << 16));
        Locks { wait, wait_lock: LOCK, wait_word, ..free() }
    }

    fn account(records: &[Record]) -> SliceAccount {
        let mut account = SliceAccount::new(&[4], [0, 1], None, false);
        for record in records {
            account.add(record, None, Nanos(10_000));
        }
        account
    }

    #[test]
    fn records_handovers_to_waiting_vcpus() {
        let slice = |vcpu, at, until, end| {
            [record(vcpu, at, RecordKind::Began), ended(vcpu, until, end, free())]
        };
        let slices = [
            slice(0, 0, 100, RecordedEnd::Slice),
            // The first slice of this vCPU, which may have been woken after the slot was free.
            slice(2, 107, 200, RecordedEnd::Blocked),
            slice(0, 205, 300, RecordedEnd::Slice),
            // The vCPU halted, so it is unknown whether it waited.
            slice(2, 350, 400, RecordedEnd::Injected),
            slice(0, 409, 500, RecordedEnd::Slice),
            slice(2, 5_000, 5_100, RecordedEnd::Slice),
            // On a CPU where no slice has ended.
            slice(1, 5_000, 5_100, RecordedEnd::Slice),
        ];
        let times = account(&slices.concat()).times.handover;
        assert_eq!((times.len(), times.min(), times.max()), (2, 5, 9));
    }

    #[test]
    fn classifies_preemptions_like_the_user_driver() {
        let mut records = Vec::new();
        let ends = [
            (RecordedEnd::Slice, holder()),
            (RecordedEnd::Forced, holder()),
            (RecordedEnd::Injected, waiter(4)),
            (RecordedEnd::Unasked, waiter(6)),
            (RecordedEnd::MadeWay, free()),
            // The kick has been delivered: no waiter depends on this vCPU.
            (RecordedEnd::MadeWay, Locks { wait: Wait::Kicking.word(4), ..waiter(4) }),
            // This vCPU has not delivered its kick yet.
            (RecordedEnd::Slice, Locks { wait: Wait::Kicking.word(4), ..waiter(4) }),
            (RecordedEnd::Yielded, free()),
            (RecordedEnd::Blocked, Locks { wait: Wait::Halted.word(4), ..waiter(4) }),
        ];
        for (at, (end, locks)) in (0..).step_by(10).zip(ends) {
            records.extend([record(0, at, RecordKind::Began), ended(0, at + 5, end, locks)]);
        }
        let totals = account(&records).totals(Nanos(100));
        let Totals { grants, preemptions, lhp, lwp, queued, .. } = totals;
        assert_eq!((grants, preemptions, lhp, lwp, queued), (9, 7, 2, 2, 1));
        assert_eq!((totals.forced, totals.injected, totals.yields), (1, 1, 1));
        // Two holders and two LWP vCPUs were off for 5 ns each.
        assert_eq!((totals.holders_off_ns, totals.next_off_ns), (10, 10));
    }

    #[test]
    fn spinning_for_a_preempted_holder_is_wasted_until_it_is_back() {
        let account = account(&[
            record(0, 0, RecordKind::Began),
            record(1, 10, RecordKind::Began),
            ended(0, 100, RecordedEnd::Slice, holder()),
            record(2, 100, RecordKind::Began),
            ended(2, 150, RecordedEnd::Slice, waiter(6)),
            record(0, 150, RecordKind::Began),
            record(1, 150, RecordKind::Sampled(waiter(4))),
            ended(1, 300, RecordedEnd::Slice, waiter(4)),
        ]);
        // Without a clock, their waits are as old as their slices: vCPU 2 spun for 50 ns, vCPU 1 since 100 ns.
        assert_eq!(account.totals(Nanos(300)).wasted_spin_ns, 50 + 50);
    }

    #[test]
    fn host_threads_do_not_end_slices() {
        let account = account(&[
            record(0, 0, RecordKind::Began),
            ended(0, 40, RecordedEnd::Taken, holder()),
            ended(0, 90, RecordedEnd::Slice, free()),
        ]);
        let totals = account.totals(Nanos(100));
        assert_eq!((totals.grants, totals.preemptions, totals.lhp), (1, 1, 0));
        assert_eq!((account.report.taken, account.report.slice, account.report.held), (1, 1, 1));
    }

    #[test]
    fn records_of_unknown_vcpus_are_left_out() {
        let account =
            account(&[record(4, 0, RecordKind::Began), ended(9, 5, RecordedEnd::Slice, holder())]);
        assert_eq!(account.totals(Nanos(10)), Totals::default());
    }
}
