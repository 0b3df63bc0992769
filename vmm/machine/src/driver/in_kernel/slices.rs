//! The account of a schedule carried out by the host's kernel: feeds its records to the accounting of the
//! user-space driver's core.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use bpf::{Locks, Record, RecordKind, RecordedEnd};

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
    directed_yields::{YieldOutcomes, YieldRequest},
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
    /// Times without a slot of holders and of vCPUs next in line, as last returned.
    off: [u64; 2],
    yields: YieldOutcomes,
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
            off: [0; 2],
            yields: YieldOutcomes::new(traced),
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
        let decode = |of: u32, locks: &Locks| {
            let since = lines.and_then(|view| view.time_of(VcpuId(of), locks.wait_since, now));
            let blank = lines.is_none_or(|view| view.upkeep() == LineUpkeep::Maybe);
            activity(locks, since.unwrap_or_default(), record.at, blank)
        };
        let place = (record.cpu, record.switches);
        match &record.kind {
            RecordKind::Began => {
                self.yields.begin(vcpu, place);
                self.record_start(vcpu, record);
                self.running[vcpu.ix()] = Some(record.at);
                self.accounting.record_resume(vcpu, record.at);
                self.accounting.count_grant();
            }
            RecordKind::Sampled(locks) => {
                self.spin(vcpu, record.machine, &decode(record.vcpu, locks), record.at)
            }
            RecordKind::Asked { vcpu: asked, cause, locks } => {
                let Some(to) = self.index(record.machine, *asked) else { return };
                let (cause, activity) = (*cause, decode(*asked, locks));
                let at = record.at;
                self.yields.ask(YieldRequest { at, by: vcpu, to, cause, activity, place });
            }
            RecordKind::Answered { granted } => self.yields.answer(vcpu, *granted),
            RecordKind::Ended { end, locks, extended, .. } => {
                if let (Some(extensions), Some(lasted)) = (&mut self.extensions, *extended)
                    && *end != RecordedEnd::Taken
                {
                    extensions.count(*end, lasted);
                }
                self.yields.end(vcpu);
                self.record_end(record, vcpu, *end, decode(record.vcpu, locks));
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
            let free = activity == LockActivity::Free;
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

    /// Returns the sums, including ongoing preemptions up to `now`. Sums never decrease, although a preemption may
    /// have ended before `now` in a record that is read later, or lost.
    pub(super) fn totals(&mut self, now: Nanos) -> Totals {
        let totals = self.accounting.totals_at(now);
        let [holders, next] = self.off;
        self.off = [totals.holders_off_ns.max(holders), totals.next_off_ns.max(next)];
        let [holders_off_ns, next_off_ns] = self.off;
        Totals { directed: self.yields.counts(), holders_off_ns, next_off_ns, ..totals }
    }

    /// Returns the extensions of ended slices, under a policy that grants any.
    pub(super) fn extensions(&self) -> Option<&Extensions> {
        self.extensions.as_ref().map(|extensions| &extensions.counts)
    }

    /// Returns the results in the form of the user-space driver. `until` is the current time.
    pub(super) fn sched_report(&self, hits: Option<Hits>, until: Nanos) -> SchedReport {
        let captured = self.trace.as_ref().map(|trace| trace.data(self.yields.traced(), until));
        let began = captured.as_ref().map_or(Nanos::ZERO, |captured| captured.began);
        let recording = Recording {
            vcpus: self.running.len() as u32,
            slots: self.slots.len() as u32,
            spin_limit: 0,
            lost: self.trace.as_ref().map_or(0, |trace| trace.lost) + self.report.lost,
            slices: self.trace.as_ref().map_or_else(Vec::new, |trace| trace.slices(began)),
        };
        SchedReport {
            totals: Totals { directed: self.yields.counts(), ..self.accounting.totals() },
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
