//! What happened in one run, moment by moment: the plain data that a trace is drawn from.
//!
//! Exact, by one clock (`CLOCK_MONOTONIC`): the turns of every vCPU on every slot and why they ended,
//! each preemption and how long it lasted, each kick that ended a halt and the grant that
//! followed, and what the vCPU was at when its turn ended, because its thread was outside the guest
//! then and its telemetry said so. Known only at the moments when somebody looked: that it spins
//! (from the start of that wait, which its telemetry names, up to the look; a wait that began and
//! ended between two looks is not there), that it holds a lock (while it is preempted), and so how
//! many wait: at least so many. The times of release and of the guest's first instruction are the
//! guest's own word, in its time stamp counter.
//!
//! Where the host schedules there are no turns: what is known then is what the vCPUs asked for, their
//! halts, kicks and wakes.
//!
//! Of the kicks that end a HLT in KVM, those have an arrow that the VMM hears of: `vmm`'s, and under a
//! schedule of ours a doorbell's. Under the host's schedule KVM takes a doorbell's write itself, and of
//! `kvm`'s calls the VMM never hears: that the vCPU came out is seen, by whose kick is not.

pub mod stretches;

use super::cell::RunSpec;
use crate::{
    sched::{
        SchedReport, VcpuIndex,
        accounting::{Preemption, Totals},
        driver::{Handoff, Progress, Sighting},
        log::Turn,
    },
    units::{Nanos, VcpuId},
    vcpu::events::{Event, History},
};

/// A run, moment by moment. Times are of the monotonic clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Of each vCPU, by its index in the schedule: its VM, and its number there.
    pub vcpus: Vec<(u32, VcpuId)>,
    /// From when to when this tells.
    pub span: Span,
    /// From when to when was measured, if that is known.
    pub measured: Option<Span>,
    /// What the schedule did; None: the host's own.
    pub schedule: Option<Traced>,
    /// What each vCPU did, by its index, oldest first.
    pub events: Vec<Vec<(Nanos, Event)>>,
    /// What was done by nobody's thread: kicks that were late on purpose.
    pub late: Vec<(Nanos, Event)>,
    /// How far each VM had come, in order, if the guest keeps count.
    pub progress: Vec<Progress>,
    /// Of what.
    pub counted: Counted,
    /// What is not here for want of room.
    pub lost: Lost,
}

/// What a guest keeps count of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Its operations: the payload.
    #[default]
    Operations,
    /// The locks that it takes: our kernel under a schedule of ours. It alone knows its workload's
    /// operations.
    Locks,
}

/// From a moment to another.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: Nanos,
    /// The second.
    pub to: Nanos,
}

impl Span {
    /// How long.
    pub const fn length(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// What of it is in `other`, if anything is.
    pub fn within(&self, other: Span) -> Option<Span> {
        let both = Span { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from < both.to).then_some(both)
    }
}

/// What a schedule of ours did.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// The host CPU of each slot.
    pub cpus: Vec<usize>,
    /// Every turn. Its time is of the monotonic clock here.
    pub turns: Vec<Turn>,
    /// Every preemption.
    pub preemptions: Vec<Preemption>,
    /// What vCPUs were seen at.
    pub sightings: Vec<Sighting>,
    /// Every kick that ended a halt.
    pub handoffs: Vec<Handoff>,
    /// The sums.
    pub totals: Totals,
}

/// What was not kept for want of room.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Turns, the last.
    pub turns: u64,
    /// Preemptions, the last.
    pub preemptions: u64,
    /// Sightings, the last.
    pub sightings: u64,
    /// Handoffs, the last.
    pub handoffs: u64,
    /// vCPUs' own events, the first.
    pub events: u64,
}

impl Lost {
    /// Of all kinds.
    pub const fn all(&self) -> u64 {
        self.turns + self.preemptions + self.sightings + self.handoffs + self.events
    }
}

impl Timeline {
    /// Draws it up from what the machines of `run` and their schedule, if it was ours, have kept.
    /// None: it was not to be traced.
    pub(super) fn new(
        run: &RunSpec<'_>,
        histories: Vec<Option<History>>,
        schedule: Option<&SchedReport>,
        mut span: Span,
    ) -> Option<Self> {
        let histories: Vec<History> = histories.into_iter().collect::<Option<_>>()?;
        let mut lost = Lost::default();
        let (mut events, mut late, mut progress) = (Vec::new(), Vec::new(), Vec::new());
        for history in histories {
            lost.events += history.lost;
            events.extend(history.vcpus);
            late.extend(history.late);
        }
        let schedule = schedule.and_then(|report| {
            let captured = report.captured.as_ref()?;
            // The threads go on until their machines stop, after the account was drawn up.
            span.to = captured.until;
            lost.turns = report.recording.lost;
            lost.preemptions = report.totals.preemptions - report.preemptions.len() as u64;
            lost.sightings = captured.lost_sightings;
            lost.handoffs = captured.lost_handoffs;
            progress.clone_from(&captured.progress);
            let turns = report.recording.turns.iter();
            Some(Traced {
                cpus: run.schedule.cpus.clone(),
                turns: turns
                    .map(|turn| Turn { at: captured.began.after(turn.at), ..*turn })
                    .collect(),
                preemptions: report.preemptions.clone(),
                sightings: captured.sightings.clone(),
                handoffs: captured.handoffs.clone(),
                totals: report.totals,
            })
        });
        let is_in = |(at, _): &(Nanos, Event)| *at <= span.to;
        events.iter_mut().chain([&mut late]).for_each(|its| its.retain(is_in));
        let vcpus = (0..run.vms).flat_map(|vm| run.vcpus.ids().map(move |id| (vm, id))).collect();
        let counted = Counted::default();
        Some(Self { vcpus, span, measured: None, schedule, events, late, progress, counted, lost })
    }

    /// The same of a run that was measured in `span`, and whose VMs were read besides.
    pub(super) fn measured(mut self, span: Span, besides: Vec<Progress>) -> Self {
        self.measured = Some(span);
        self.progress.extend(besides.into_iter().filter(|its| its.at <= self.span.to));
        self.progress.sort_by_key(|its| its.at);
        self
    }

    /// The same of a run whose guests' kernels were seen to take locks.
    pub(crate) fn of_locks(self) -> Self {
        Self { counted: Counted::Locks, ..self }
    }

    /// How many machines.
    pub fn vms(&self) -> u32 {
        self.vcpus.iter().map(|(vm, _)| vm + 1).max().unwrap_or(0)
    }

    /// What a vCPU is called: with its VM where there are several.
    pub fn name(&self, vcpu: VcpuIndex) -> String {
        match self.vcpus.get(vcpu.0 as usize) {
            Some((vm, id)) if self.vms() > 1 => format!("VM {vm} {id}"),
            Some((_, id)) => id.to_string(),
            None => format!("vCPU #{}", vcpu.0),
        }
    }

    /// Which vCPU that is of the machine of `vcpu`.
    pub fn neighbour(&self, vcpu: VcpuIndex, id: VcpuId) -> Option<VcpuIndex> {
        let (vm, _) = self.vcpus.get(vcpu.0 as usize)?;
        let found = self.vcpus.iter().position(|other| *other == (*vm, id))?;
        Some(VcpuIndex(found as u32))
    }
}
