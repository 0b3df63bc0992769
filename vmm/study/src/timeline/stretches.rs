//! Divides each vCPU's time into stretches: its time slices, and its states in the gaps between them.

use std::collections::HashMap;

use super::{ScheduleTrace, TimeSpan, Timeline};
use base::units::{Nanos, SlotId};
use sched::{
    LockActivity, VcpuIndex,
    accounting::Preemption,
    log::{Handoff, Slice, SliceEnd},
};

/// An interval in which a vCPU was in one state.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch<'a> {
    /// Beginning and end.
    pub span: TimeSpan,
    /// State of the vCPU.
    pub state: StretchState<'a>,
}

/// State of a vCPU during a stretch.
#[derive(Debug, Clone, PartialEq)]
pub enum StretchState<'a> {
    /// Has a slot.
    Running {
        /// Slot of the vCPU.
        slot: SlotId,
        /// Cause of the end of the slice.
        end: SliceEnd,
        /// Index of the handoff that led to the slice.
        kick: Option<usize>,
        /// Intervals in which it is known to have spun for a lock.
        spinning: Vec<TimeSpan>,
    },
    /// Was preempted; the preemption is None if there was no room to record it.
    Preempted(SliceEnd, Option<&'a Preemption>),
    /// Yielded its slot on request.
    Yielded,
    /// Halts in the VMM.
    Halted,
    /// Halts in KVM.
    Idle,
    /// Was kicked and waits for a slot.
    Woken(&'a Handoff),
}

/// Time slices of each vCPU, and the gaps between them.
#[derive(Debug)]
pub struct Stretches<'a> {
    trace: &'a ScheduleTrace,
    end: Nanos,
    /// Slices of each vCPU, in order.
    slices: Vec<Vec<&'a Slice>>,
    /// Handoffs to each vCPU, with their indices, in order.
    handoffs: Vec<Vec<(usize, &'a Handoff)>>,
    /// Intervals in which each vCPU is known to have spun for a lock on a slot, ordered and disjoint.
    spinning: Vec<Vec<TimeSpan>>,
    preemptions: HashMap<(VcpuIndex, Nanos), &'a Preemption>,
    /// Whether no slices were dropped. Otherwise, dropped slices may follow a vCPU's last slice.
    is_complete: bool,
}

impl<'a> Stretches<'a> {
    /// Analyses a run under a pvticket schedule; None under the host's scheduler.
    pub fn new(timeline: &'a Timeline) -> Option<Self> {
        let trace = timeline.schedule.as_ref()?;
        let vcpus = timeline.vcpus.len();
        let mut slices = vec![Vec::new(); vcpus];
        for slice in &trace.slices {
            if let Some(slices) = slices.get_mut(slice.vcpu.0 as usize) {
                slices.push(slice);
            }
        }
        let mut handoffs = vec![Vec::new(); vcpus];
        for (number, handoff) in trace.handoffs.iter().enumerate() {
            if let Some(kicks) = handoffs.get_mut(handoff.to.0 as usize) {
                kicks.push((number, handoff));
            }
        }
        let preemptions = trace.preemptions.iter();
        Some(Self {
            trace,
            end: timeline.span.to,
            slices,
            handoffs,
            spinning: spinning(trace, vcpus),
            preemptions: preemptions
                .map(|preemption| ((preemption.vcpu, preemption.at), preemption))
                .collect(),
            is_complete: timeline.lost.slices == 0,
        })
    }

    fn span_of(&self, slice: &Slice) -> TimeSpan {
        let to = match slice.end {
            SliceEnd::Open => self.end,
            _ => slice.at.after(slice.ran),
        };
        TimeSpan { from: slice.at, to: to.max(slice.at) }
    }

    /// Returns the slices on a slot, in order.
    pub fn on_slot(&self, slot: SlotId) -> impl Iterator<Item = (TimeSpan, &'a Slice)> {
        let slices = self.trace.slices.iter().filter(move |slice| slice.slot == slot);
        slices.map(|slice| (self.span_of(slice), slice))
    }

    /// Returns the stretches of a vCPU, in order and without overlap.
    pub fn of_vcpu(&self, vcpu: VcpuIndex) -> Vec<Stretch<'a>> {
        let ix = vcpu.0 as usize;
        let (slices, mut kicks) = (&self.slices[ix], self.handoffs[ix].iter().copied().peekable());
        let mut spinning = self.spinning[ix].as_slice();
        let mut stretches = Vec::new();
        let mut kick = None;
        for (number, slice) in slices.iter().enumerate() {
            let span = self.span_of(slice);
            while spinning.first().is_some_and(|spin| spin.to <= span.from) {
                spinning = &spinning[1..];
            }
            let spins = spinning.iter().take_while(|spin| spin.from < span.to);
            let spins = spins.filter_map(|spin| spin.within(span)).collect();
            let (slot, end) = (slice.slot, slice.end);
            let state = StretchState::Running { slot, end, kick: kick.take(), spinning: spins };
            stretches.push(Stretch { span, state });
            let next = slices.get(number + 1).map(|next| next.at);
            let Some(next) = next.or(self.is_complete.then_some(self.end)) else { break };
            let gap = TimeSpan { from: span.to, to: next.max(span.to) };
            while kicks.next_if(|(_, kick)| kick.at < gap.from).is_some() {}
            let waker = kicks.next_if(|(_, kick)| kick.at <= gap.to);
            kick = waker.filter(|(_, kick)| kick.granted == Some(gap.to)).map(|(number, _)| number);
            self.add_gap(vcpu, slice.end, gap, waker.map(|(_, kick)| kick), &mut stretches);
        }
        stretches
    }

    /// Adds the stretches from the end of one slice to the beginning of the next.
    fn add_gap(
        &self,
        vcpu: VcpuIndex,
        end: SliceEnd,
        gap: TimeSpan,
        waker: Option<&'a Handoff>,
        stretches: &mut Vec<Stretch<'a>>,
    ) {
        let state = match end {
            SliceEnd::Open | SliceEnd::Exited => return,
            SliceEnd::Halted => StretchState::Halted,
            SliceEnd::Idle => StretchState::Idle,
            SliceEnd::Yield => StretchState::Yielded,
            _ => StretchState::Preempted(end, self.preemptions.get(&(vcpu, gap.from)).copied()),
        };
        match waker.filter(|_| end.is_voluntary()) {
            None => stretches.push(Stretch { span: gap, state }),
            Some(kick) => {
                stretches.push(Stretch { span: TimeSpan { to: kick.at, ..gap }, state });
                let span = TimeSpan { from: kick.at, ..gap };
                stretches.push(Stretch { span, state: StretchState::Woken(kick) });
            }
        }
    }

    /// Returns how many vCPUs of `vm` are known to wait for a lock, with or without a slot, at each
    /// change. A wait in progress at the end of a slice lasts at least until the next slice.
    pub fn waiters(&self, timeline: &Timeline, vm: u32) -> Vec<(Nanos, u32)> {
        let mut steps = Vec::new();
        for (ix, slices) in self.slices.iter().enumerate() {
            if timeline.vcpus.get(ix).is_none_or(|(machine, _)| *machine != vm) {
                continue;
            }
            let spans = self.spinning[ix].iter().map(|spin| {
                // A vCPU that loses or yields its slot while it waits continues to wait.
                let after = slices.partition_point(|slice| slice.at < spin.to);
                let last = after.checked_sub(1).map(|last| self.span_of(slices[last]));
                match (last, slices.get(after)) {
                    (Some(last), Some(next)) if last.to == spin.to => {
                        TimeSpan { to: next.at, ..*spin }
                    }
                    _ => *spin,
                }
            });
            steps.extend(
                merge_overlapping(spans.collect())
                    .into_iter()
                    .flat_map(|spin| [(spin.from, 1), (spin.to, -1)]),
            );
        }
        steps.sort_unstable();
        let mut waiting = 0i64;
        let mut changes: Vec<(Nanos, u32)> = Vec::new();
        for (at, step) in steps {
            waiting += step;
            let count = u32::try_from(waiting).unwrap_or(0);
            match changes.last_mut() {
                Some(last) if last.0 == at => last.1 = count,
                _ => changes.push((at, count)),
            }
        }
        changes
    }
}

/// Returns the intervals in which each vCPU is known to have spun for a lock while it had a slot.
fn spinning(trace: &ScheduleTrace, vcpus: usize) -> Vec<Vec<TimeSpan>> {
    let mut spans_by_vcpu = vec![Vec::new(); vcpus];
    for sample in &trace.activity_samples {
        if let LockActivity::Waiting { since, halted: false, .. } = sample.activity
            && since > Nanos::ZERO
            && since < sample.at
            && let Some(spans) = spans_by_vcpu.get_mut(sample.vcpu.0 as usize)
        {
            spans.push(TimeSpan { from: since, to: sample.at });
        }
    }
    spans_by_vcpu.into_iter().map(merge_overlapping).collect()
}

/// Sorts intervals and merges overlapping ones.
fn merge_overlapping(mut spans: Vec<TimeSpan>) -> Vec<TimeSpan> {
    spans.sort_unstable_by_key(|span| span.from);
    let mut merged: Vec<TimeSpan> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.from <= last.to => last.to = last.to.max(span.to),
            _ => merged.push(span),
        }
    }
    merged
}
