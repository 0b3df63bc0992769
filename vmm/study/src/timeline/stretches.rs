//! Divides each vCPU's time into stretches: its time slices, and its states in the gaps between them.

use std::collections::HashMap;

use super::{ScheduleTrace, TimeSpan, Timeline};
use base::units::{Nanos, SlotId};
use sched::{
    LockActivity, VcpuIndex,
    accounting::Preemption,
    log::{Handoff, Turn, TurnEnd},
};

/// An interval in which a vCPU was in one state.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch<'a> {
    /// Beginning and end.
    pub span: TimeSpan,
    /// State of the vCPU.
    pub what: StretchState<'a>,
}

/// State of a vCPU during a stretch.
#[derive(Debug, Clone, PartialEq)]
pub enum StretchState<'a> {
    /// Has a slot.
    Running {
        /// Slot of the vCPU.
        slot: SlotId,
        /// Cause of the end of the slice.
        end: TurnEnd,
        /// Index of the handoff that led to the slice.
        kick: Option<usize>,
        /// Intervals in which it is known to have spun for a lock.
        spinning: Vec<TimeSpan>,
    },
    /// Was preempted; the preemption is None if there was no room to record it.
    Preempted(TurnEnd, Option<&'a Preemption>),
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
    traced: &'a ScheduleTrace,
    until: Nanos,
    /// Slices of each vCPU, in order.
    turns: Vec<Vec<&'a Turn>>,
    /// Handoffs to each vCPU, with their indices, in order.
    handoffs: Vec<Vec<(usize, &'a Handoff)>>,
    /// Intervals in which each vCPU is known to have spun for a lock on a slot, ordered and disjoint.
    spinning: Vec<Vec<TimeSpan>>,
    preemptions: HashMap<(VcpuIndex, Nanos), &'a Preemption>,
    /// Whether no slices were dropped. Otherwise, dropped slices may follow a vCPU's last slice.
    is_whole: bool,
}

impl<'a> Stretches<'a> {
    /// Analyses a run under a pvticket schedule; None under the host's scheduler.
    pub fn of(timeline: &'a Timeline) -> Option<Self> {
        let traced = timeline.schedule.as_ref()?;
        let vcpus = timeline.vcpus.len();
        let mut turns = vec![Vec::new(); vcpus];
        for turn in &traced.turns {
            if let Some(turns) = turns.get_mut(turn.vcpu.0 as usize) {
                turns.push(turn);
            }
        }
        let mut handoffs = vec![Vec::new(); vcpus];
        for (number, handoff) in traced.handoffs.iter().enumerate() {
            if let Some(kicks) = handoffs.get_mut(handoff.to.0 as usize) {
                kicks.push((number, handoff));
            }
        }
        let preemptions = traced.preemptions.iter();
        Some(Self {
            traced,
            until: timeline.span.to,
            turns,
            handoffs,
            spinning: spinning(traced, vcpus),
            preemptions: preemptions
                .map(|preemption| ((preemption.vcpu, preemption.at), preemption))
                .collect(),
            is_whole: timeline.lost.turns == 0,
        })
    }

    fn span_of(&self, turn: &Turn) -> TimeSpan {
        let to = match turn.end {
            TurnEnd::Open => self.until,
            _ => turn.at.after(turn.ran),
        };
        TimeSpan { from: turn.at, to: to.max(turn.at) }
    }

    /// Returns the slices on a slot, in order.
    pub fn on_slot(&self, slot: SlotId) -> impl Iterator<Item = (TimeSpan, &'a Turn)> {
        let turns = self.traced.turns.iter().filter(move |turn| turn.slot == slot);
        turns.map(|turn| (self.span_of(turn), turn))
    }

    /// Returns the stretches of a vCPU, in order and without overlap.
    pub fn of_vcpu(&self, vcpu: VcpuIndex) -> Vec<Stretch<'a>> {
        let ix = vcpu.0 as usize;
        let (turns, mut kicks) = (&self.turns[ix], self.handoffs[ix].iter().copied().peekable());
        let mut spinning = self.spinning[ix].as_slice();
        let mut all = Vec::new();
        let mut kick = None;
        for (number, turn) in turns.iter().enumerate() {
            let span = self.span_of(turn);
            while spinning.first().is_some_and(|spin| spin.to <= span.from) {
                spinning = &spinning[1..];
            }
            let meanwhile = spinning.iter().take_while(|spin| spin.from < span.to);
            let meanwhile = meanwhile.filter_map(|spin| spin.within(span)).collect();
            let (slot, end) = (turn.slot, turn.end);
            let what = StretchState::Running { slot, end, kick: kick.take(), spinning: meanwhile };
            all.push(Stretch { span, what });
            let next = turns.get(number + 1).map(|next| next.at);
            let Some(next) = next.or(self.is_whole.then_some(self.until)) else { break };
            let gap = TimeSpan { from: span.to, to: next.max(span.to) };
            while kicks.next_if(|(_, kick)| kick.at < gap.from).is_some() {}
            let waker = kicks.next_if(|(_, kick)| kick.at <= gap.to);
            kick = waker.filter(|(_, kick)| kick.granted == Some(gap.to)).map(|(number, _)| number);
            self.between(vcpu, turn.end, gap, waker.map(|(_, kick)| kick), &mut all);
        }
        all
    }

    /// Adds the stretches from the end of one slice to the beginning of the next.
    fn between(
        &self,
        vcpu: VcpuIndex,
        end: TurnEnd,
        gap: TimeSpan,
        waker: Option<&'a Handoff>,
        all: &mut Vec<Stretch<'a>>,
    ) {
        let what = match end {
            TurnEnd::Open | TurnEnd::Exited => return,
            TurnEnd::Halted => StretchState::Halted,
            TurnEnd::Idle => StretchState::Idle,
            TurnEnd::Yield => StretchState::Yielded,
            _ => StretchState::Preempted(end, self.preemptions.get(&(vcpu, gap.from)).copied()),
        };
        match waker.filter(|_| end.is_voluntary()) {
            None => all.push(Stretch { span: gap, what }),
            Some(kick) => {
                all.push(Stretch { span: TimeSpan { to: kick.at, ..gap }, what });
                let span = TimeSpan { from: kick.at, ..gap };
                all.push(Stretch { span, what: StretchState::Woken(kick) });
            }
        }
    }

    /// Returns how many vCPUs of `vm` are known to wait for a lock, with or without a slot, at each
    /// change. A wait ends at the beginning of the slice in which the vCPU is served.
    pub fn waiters(&self, timeline: &Timeline, vm: u32) -> Vec<(Nanos, u32)> {
        let mut steps = Vec::new();
        for (ix, turns) in self.turns.iter().enumerate() {
            if timeline.vcpus.get(ix).is_none_or(|(machine, _)| *machine != vm) {
                continue;
            }
            let spans = self.spinning[ix].iter().map(|spin| {
                // A vCPU that loses or yields its slot while it waits continues to wait.
                let after = turns.partition_point(|turn| turn.at < spin.to);
                let last = after.checked_sub(1).map(|last| self.span_of(turns[last]));
                match (last, turns.get(after)) {
                    (Some(last), Some(next)) if last.to == spin.to => {
                        TimeSpan { to: next.at, ..*spin }
                    }
                    _ => *spin,
                }
            });
            steps.extend(
                joined(spans.collect())
                    .into_iter()
                    .flat_map(|spin| [(spin.from, 1), (spin.to, -1)]),
            );
        }
        steps.sort_unstable();
        let mut waiting = 0i64;
        let mut all: Vec<(Nanos, u32)> = Vec::new();
        for (at, step) in steps {
            waiting += step;
            let count = u32::try_from(waiting).unwrap_or(0);
            match all.last_mut() {
                Some(last) if last.0 == at => last.1 = count,
                _ => all.push((at, count)),
            }
        }
        all
    }
}

/// Returns the intervals in which each vCPU is known to have spun for a lock while it had a slot.
fn spinning(traced: &ScheduleTrace, vcpus: usize) -> Vec<Vec<TimeSpan>> {
    let mut all = vec![Vec::new(); vcpus];
    for seen in &traced.sightings {
        if let LockActivity::Waiting { since, halted: false, .. } = seen.activity
            && since > Nanos::ZERO
            && since < seen.at
            && let Some(spans) = all.get_mut(seen.vcpu.0 as usize)
        {
            spans.push(TimeSpan { from: since, to: seen.at });
        }
    }
    all.into_iter().map(joined).collect()
}

/// Sorts intervals and merges overlapping ones.
fn joined(mut spans: Vec<TimeSpan>) -> Vec<TimeSpan> {
    spans.sort_unstable_by_key(|span| span.from);
    let mut all: Vec<TimeSpan> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.from <= last.to => last.to = last.to.max(span.to),
            _ => all.push(span),
        }
    }
    all
}
