//! The timeline of one run: the plain data from which a trace is drawn.
//!
//! Exact, by one clock (`CLOCK_MONOTONIC`): the time slices of every vCPU on every slot and why they
//! ended, each preemption and its length, each kick that ended a halt and the grant that followed, and
//! the vCPU's lock activity at the end of its slice, read from its telemetry while its thread was
//! outside the guest. Known only from samples: spinning (from the start of the wait, which is in the
//! telemetry, to the sample; a wait that began and ended between two samples is missing), holding a
//! lock (while preempted), and hence the number of waiters, which is a lower bound. The times of a
//! release and of the guest's first instruction come from the guest, in its time stamp counter.
//!
//! Under the host's scheduler, slices are known if it is observed. Otherwise only the vCPUs' calls are known: their
//! halts, kicks and wakeups.
//!
//! A kick that ends a HLT in KVM is drawn as an arrow if the VMM sees it: with the `vmm` backend, and
//! with `doorbell` under a pvticket schedule. Under the host's scheduler, KVM handles a doorbell's
//! write itself, and the VMM never sees the calls of the `kvm` backend: the wakeup of the vCPU is
//! known, but not the kick that caused it.

pub mod stretches;

use super::store::record::TimelineCounts;
use base::{
    events::VcpuEvent,
    units::{Nanos, VcpuId},
};
use sched::{
    VcpuIndex,
    accounting::{Preemption, Totals},
    directed_yields::{YieldOutcome, YieldRequest},
    log::{Handoff, Sighting, Slice, VmProgress},
};

/// The timeline of a run. Times are on the monotonic clock, or simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// VM and id of each vCPU, by its index in the schedule.
    pub vcpus: Vec<(u32, VcpuId)>,
    /// The interval that the timeline covers.
    pub span: TimeSpan,
    /// The measurement window, if known.
    pub measured: Option<TimeSpan>,
    /// Decisions of the schedule; None under the host's scheduler if it is not observed.
    pub schedule: Option<ScheduleTrace>,
    /// Events of each vCPU, by its index, oldest first.
    pub events: Vec<Vec<(Nanos, VcpuEvent)>>,
    /// Events outside vCPU threads: kicks delayed by fault injection.
    pub delayed_kicks: Vec<(Nanos, VcpuEvent)>,
    /// Samples of each VM's progress in order, if the guest counts it.
    pub progress: Vec<VmProgress>,
    /// Unit of `progress`.
    pub progress_unit: ProgressUnit,
    /// Entries dropped for lack of room.
    pub lost: DroppedEntries,
}

/// Unit of a guest's progress.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Operations of the payload.
    #[default]
    Operations,
    /// Locks taken by our kernel under a pvticket schedule: the VMM cannot see the operations of its
    /// workload.
    Locks,
}

/// An interval of time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    /// Beginning, on the timeline's clock.
    pub from: Nanos,
    /// End, on the timeline's clock.
    pub to: Nanos,
}

impl TimeSpan {
    /// Returns the time from beginning to end.
    pub const fn length(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// Returns the intersection with `other`; None if it is empty.
    pub fn within(&self, other: TimeSpan) -> Option<TimeSpan> {
        let common = TimeSpan { from: self.from.max(other.from), to: self.to.min(other.to) };
        (common.from < common.to).then_some(common)
    }
}

/// The decisions of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleTrace {
    /// Host CPU of each slot.
    pub cpus: Vec<usize>,
    /// Every time slice, with its time on the monotonic clock.
    pub slices: Vec<Slice>,
    /// Every preemption, in order.
    pub preemptions: Vec<Preemption>,
    /// Samples of the vCPUs' lock activity.
    pub activity_samples: Vec<Sighting>,
    /// Every kick that ended a halt.
    pub handoffs: Vec<Handoff>,
    /// Directed yields of KVM under the host's scheduler, if observed.
    pub yields: Vec<(YieldRequest, YieldOutcome)>,
    /// Sums over the schedule.
    pub totals: Totals,
}

/// Numbers of entries dropped for lack of room.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DroppedEntries {
    /// Time slices; the last ones are dropped.
    pub slices: u64,
    /// Preemptions; the last ones are dropped.
    pub preemptions: u64,
    /// Samples of lock activity; the last ones are dropped.
    pub activity_samples: u64,
    /// Handoffs; the last ones are dropped.
    pub handoffs: u64,
    /// Events of vCPUs, of which the first ones are dropped, and directed yields, of which the last ones are.
    pub events: u64,
}

impl DroppedEntries {
    /// Returns the sum over all kinds.
    pub const fn total(&self) -> u64 {
        self.slices + self.preemptions + self.activity_samples + self.handoffs + self.events
    }
}

impl Timeline {
    /// Returns the number of entries per second, and the number of dropped entries.
    pub fn counts(&self) -> TimelineCounts {
        let schedule = self.schedule.as_ref().map_or(0, |schedule| {
            schedule.slices.len()
                + schedule.preemptions.len()
                + schedule.activity_samples.len()
                + schedule.handoffs.len()
        });
        let events = self.events.iter().map(Vec::len).sum::<usize>() + self.delayed_kicks.len();
        let total = (schedule + events + self.progress.len()) as f64;
        let seconds = self.span.length().0 as f64 / 1e9;
        let entries = if seconds > 0.0 { total / seconds } else { 0.0 };
        TimelineCounts { entries, lost: self.lost.total() }
    }
}

impl Timeline {
    /// Adds the window `span` and further samples of the VMs' progress.
    #[must_use]
    pub fn with_window(mut self, span: TimeSpan, samples: Vec<VmProgress>) -> Self {
        self.measured = Some(span);
        self.progress.extend(samples.into_iter().filter(|sample| sample.at <= self.span.to));
        self.progress.sort_by_key(|sample| sample.at);
        self
    }

    /// Marks the progress as locks taken by the guests' kernels.
    #[must_use]
    pub fn with_lock_progress(self) -> Self {
        Self { progress_unit: ProgressUnit::Locks, ..self }
    }

    /// Returns the number of VMs.
    pub fn vms(&self) -> u32 {
        self.vcpus.iter().map(|(vm, _)| vm + 1).max().unwrap_or(0)
    }

    /// Returns the name of a vCPU, with its VM if there are several.
    pub fn name(&self, vcpu: VcpuIndex) -> String {
        match self.vcpus.get(vcpu.0 as usize) {
            Some((vm, id)) if self.vms() > 1 => format!("VM {vm} {id}"),
            Some((_, id)) => id.to_string(),
            None => format!("vCPU #{}", vcpu.0),
        }
    }

    /// Returns the index of vCPU `id` in the VM of `vcpu`.
    pub fn sibling(&self, vcpu: VcpuIndex, id: VcpuId) -> Option<VcpuIndex> {
        let (vm, _) = self.vcpus.get(vcpu.0 as usize)?;
        let index = self.vcpus.iter().position(|other| *other == (*vm, id))?;
        Some(VcpuIndex(index as u32))
    }
}
