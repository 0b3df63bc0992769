//! `replay:FILE`: repeats the time slices of a recording in the recorded order, each on its recorded slot and
//! for the recorded time.
//!
//! If the guest ended a slice (it yielded, spun out, made way for a vCPU it kicked, or was at a named point),
//! the guest ends it again: once the recorded time has passed, the policy asks the vCPU to yield or waits for
//! the event, for one slice at most. If a lock-aware policy ended a slice while its vCPU was in no lock, the
//! slice continues, for one slice at most, while the vCPU is in a lock: in the replay, the recorded time may
//! end in the middle of a critical section. A slice that ends in another way than recorded is a divergence.
//!
//! If the vCPU that is to run next is halted, the replay waits for it as long as any vCPU runs. Then the
//! policy wakes the vCPU spuriously, which is a divergence, too. Only slices of vCPUs that have exited are
//! skipped. This is deterministic replay (ReVirt, Dunlap et al., OSDI 2002) applied to the schedule alone.

use hypercalls::telemetry::Point;
use serde::{Deserialize, Serialize};

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::{Slice, SliceEnd},
};
use base::{
    sums,
    units::{Nanos, SlotId},
};

/// Upper bound on the time a vCPU is held off, regardless of the recording.
const MAX_HOLD: Nanos = Nanos::millis(60_000);

/// How closely a replay followed its recording.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// Slices of the recording before the first that is [open](SliceEnd::Open) or does not fit this schedule.
    pub recorded: u64,
    /// Recorded slices that were repeated.
    pub replayed: u64,
    /// Recorded slices that were skipped because the vCPU had exited.
    pub skipped: u64,
    /// vCPUs that were halted when they should have run, with no vCPU running to kick them, and were woken.
    pub woken: u64,
    /// Slices that the vCPU itself ended (halt, idle, exit), but recorded with another end.
    pub early: u64,
    /// Slices that the vCPU did not end itself, although recorded so.
    pub late: u64,
    /// Slices that ended in another way than recorded, not counted above.
    pub otherwise: u64,
    /// Slices recorded to end outside of locks, but cut off inside a lock, one slice later.
    pub cut: u64,
    /// Complete slices of the recording beyond `recorded`. If not even the first slice can be repeated, open
    /// slices count, too.
    pub left_out: u64,
}

sums!(Divergence: recorded, replayed, skipped, woken, early, late, otherwise, cut, left_out);

impl Divergence {
    /// Returns the number of slices that were never begun.
    pub const fn unreplayed(&self) -> u64 {
        self.recorded.saturating_sub(self.replayed).saturating_sub(self.skipped)
    }

    /// Returns the number of slices that were not repeated as recorded. Saturates, as counts from a store may
    /// be anything.
    pub fn differ(&self) -> u64 {
        let Self { woken, early, late, otherwise, cut, skipped, left_out, .. } = *self;
        let counts = [woken, early, late, otherwise, cut, skipped, left_out, self.unreplayed()];
        counts.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether the replay repeated its recording. One slice in ten may differ.
    pub fn is_repeated(&self) -> bool {
        self.differ() <= self.recorded.saturating_add(self.left_out) / 10
    }
}

/// Whether the guest ended this slice by an event other than a halt, idling or an exit.
fn by_event(s: &Slice) -> bool {
    matches!(s.end, SliceEnd::Yield | SliceEnd::Spun | SliceEnd::MadeWay) || s.point.is_some()
}

/// Returns the number of recorded slices that are lost if only `slices`, the first of them, are repeated. A
/// vCPU that keeps its slot until the end of the recording cuts the replay short where its slice begins. Each
/// slot has an open slice at the end of the recording; open slices are not counted as long as any slice is
/// repeated.
fn left_out(slices: &[Slice], recorded: &[Slice]) -> u64 {
    let rest = &recorded[slices.len()..];
    let is_lost = |slice: &&Slice| slices.is_empty() || slice.end != SliceEnd::Open;
    rest.iter().filter(is_lost).count() as u64
}

/// The recorded slice that a vCPU is repeating.
#[derive(Debug, Clone, Copy)]
struct Current {
    ix: usize,
    /// The vCPU was asked to report the point at which the slice ended.
    reports: bool,
}

#[derive(Debug)]
pub(super) struct Replay {
    slices: Box<[Slice]>,
    next: usize,
    current: Box<[Option<Current>]>,
    /// By [`Point`]: number of vCPUs asked to report it.
    reporters: [u32; Point::ALL.len()],
    spin_limit: u32,
    ready: Box<[bool]>,
    /// Schedules after the end of the recording.
    fallback: Rr,
    slice: Nanos,
    divergence: Divergence,
}

impl Replay {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let recorded = setup.recording.map_or(&[][..], |recording| recording.slices.as_slice());
        // The length of an unfinished slice is unknown, and so is the rest of its slot's schedule. (Slices of
        // vCPUs or slots that this schedule does not have cannot be repeated either.)
        let fits = |slice: &&Slice| {
            slice.end != SliceEnd::Open
                && slice.vcpu.ix() < setup.vms.len()
                && (slice.slot.0 as usize) < setup.slots
        };
        let slices: Box<[Slice]> = recorded.iter().take_while(fits).copied().collect();
        let vcpus = setup.vms.len();
        let (left_out, recorded) = (left_out(&slices, recorded), slices.len() as u64);
        let spin_limit = setup.recording.map_or(0, |recording| recording.spin_limit);
        Self {
            slices,
            next: 0,
            current: vec![None; vcpus].into(),
            reporters: Default::default(),
            spin_limit,
            ready: vec![false; vcpus].into(),
            fallback: Rr::new(setup),
            slice: setup.slice,
            divergence: Divergence { recorded, left_out, ..Divergence::default() },
        }
    }

    fn is_finished(&self) -> bool {
        self.next == self.slices.len()
    }

    /// Returns the time for which the vCPU of this slice was held off afterwards.
    fn off_after(&self, ix: usize) -> Nanos {
        let slice = &self.slices[ix];
        let next = self.slices[ix + 1..].iter().find(|later| later.vcpu == slice.vcpu);
        let off = next.map_or(Nanos::ZERO, |next| next.at.since(slice.at.after(slice.ran)));
        off.min(MAX_HOLD)
    }

    /// Whether this slice was ended by a policy that waited until the vCPU neither held nor awaited a lock.
    fn is_out_of_locks(slice: &Slice) -> bool {
        slice.end == SliceEnd::Expired && slice.free
    }

    /// Returns the maximum duration of a slice.
    fn limit(&self, slice: &Slice) -> Nanos {
        match slice.end {
            end if end.is_voluntary() => self.slice.after(slice.ran).after(slice.ran),
            _ if by_event(slice) => self.slice.after(slice.ran),
            _ => slice.ran,
        }
    }

    /// Returns the vCPU's recorded slice if the guest should end it by an event now.
    fn expected_event(&self, vcpu: VcpuIndex, view: &View<'_>) -> Option<(usize, Slice)> {
        let ix = self.current[vcpu.ix()]?.ix;
        let slice = self.slices[ix];
        (by_event(&slice) && view.ran(vcpu) >= slice.ran).then_some((ix, slice))
    }

    /// Waits until `until` for the event that ended the slice.
    fn wait(&mut self, vcpu: VcpuIndex, slice: &Slice, until: Nanos) -> Verdict {
        if let (Some(point), Some(current)) = (slice.point, &mut self.current[vcpu.ix()])
            && !std::mem::replace(&mut current.reports, true)
        {
            self.reporters[point as usize] += 1;
        }
        match slice.end {
            SliceEnd::Yield => Verdict::Ask(until),
            _ => Verdict::Stay(until),
        }
    }

    /// Returns the index of the slice to begin now, if its vCPU is ready. Skips slices of vCPUs that have
    /// exited.
    fn next_due(&mut self, view: &View<'_>) -> Option<usize> {
        while self.slices.get(self.next).is_some_and(|slice| view.has_exited(slice.vcpu)) {
            self.divergence.skipped += 1;
            self.next += 1;
        }
        let slice = self.slices.get(self.next)?;
        self.ready[slice.vcpu.ix()].then_some(self.next)
    }
}

impl Policy for Replay {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.ready[vcpu.ix()] = true;
        self.fallback.ready(vcpu, cause, view);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.ready[vcpu.ix()] = false;
        self.fallback.exited(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let pick = match self.next_due(view) {
            Some(ix) if self.slices[ix].slot == slot => {
                self.next += 1;
                self.divergence.replayed += 1;
                let slice = self.slices[ix];
                let vcpu = slice.vcpu;
                self.current[vcpu.ix()] = Some(Current { ix, reports: false });
                self.fallback.exited(vcpu);
                let until = if by_event(&slice) { slice.ran } else { self.limit(&slice) };
                Some(Pick::new(vcpu, view.now.after(until)))
            }
            None if self.is_finished() => self.fallback.pick(slot, view),
            _ => None,
        }?;
        self.ready[pick.vcpu.ix()] = false;
        Some(pick)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        let Some(Current { ix, .. }) = self.current[vcpu.ix()] else {
            return self.fallback.stopped(vcpu, obs, view);
        };
        let (slice, ran) = (self.slices[ix], view.ran(vcpu));
        let end_at = |span: Nanos| view.now.after(span.since(ran));
        let limit = self.limit(&slice);
        match slice.end {
            _ if by_event(&slice) && ran < slice.ran => Verdict::Stay(end_at(slice.ran)),
            _ if by_event(&slice) && ran < limit => self.wait(vcpu, &slice, end_at(limit)),
            _ if ran < limit => Verdict::Stay(end_at(limit)),
            _ if Self::is_out_of_locks(&slice)
                && obs.activity.is_involved()
                && ran < limit.after(self.slice) =>
            {
                Verdict::Ask(end_at(limit.after(self.slice)))
            }
            SliceEnd::Injected => {
                // The guest should have reached the point by now.
                self.divergence.otherwise += u64::from(slice.point.is_some());
                Verdict::Hold(view.now.after(self.off_after(ix)))
            }
            SliceEnd::Grace => Verdict::Preempt(Reason::Grace),
            _ if Self::is_out_of_locks(&slice) && obs.activity.is_involved() => {
                self.divergence.cut += 1;
                Verdict::Preempt(Reason::Slice)
            }
            // Expired as recorded, or the recorded event has not occurred.
            _ => Verdict::Preempt(Reason::Slice),
        }
    }

    fn yielded(&mut self, vcpu: VcpuIndex, view: &View<'_>) -> Verdict {
        match (self.expected_event(vcpu, view), self.current[vcpu.ix()]) {
            (Some((_, s)), _) if s.end == SliceEnd::Yield => Verdict::Preempt(Reason::Yield),
            (_, Some(Current { ix, .. }))
                if Self::is_out_of_locks(&self.slices[ix])
                    && view.ran(vcpu) >= self.slices[ix].ran =>
            {
                Verdict::Preempt(Reason::Slice)
            }
            (_, Some(_)) => Verdict::Stay(view.deadline(vcpu)),
            (_, None) => self.fallback.yielded(vcpu, view),
        }
    }

    fn spun_out(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Option<Verdict> {
        let (_, slice) = self.expected_event(vcpu, view)?;
        (slice.end == SliceEnd::Spun).then_some(Verdict::Preempt(Reason::Spun))
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        _: VcpuIndex,
        obs: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.spun_out(vcpu, obs, view)
    }

    fn kicked(&mut self, by: VcpuIndex, _: &LockActivity, view: &View<'_>) -> Option<Verdict> {
        let (_, slice) = self.expected_event(by, view)?;
        (slice.end == SliceEnd::MadeWay).then_some(Verdict::Preempt(Reason::MadeWay))
    }

    fn point(
        &mut self,
        vcpu: VcpuIndex,
        at: Point,
        _: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        let (ix, slice) = self.expected_event(vcpu, view)?;
        (slice.point == Some(at)).then(|| Verdict::Hold(view.now.after(self.off_after(ix))))
    }

    fn points(&self, _: Nanos) -> u32 {
        let reported = Point::ALL.iter().filter(|point| self.reporters[**point as usize] > 0);
        reported.fold(0, |mask, point| mask | point.bit())
    }

    fn spin_limit(&self) -> u32 {
        self.spin_limit
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, end: SliceEnd, _: Nanos, _: &View<'_>) {
        let Some(Current { ix, reports }) = self.current[vcpu.ix()].take() else { return };
        let recorded = self.slices[ix];
        if let Some(point) = recorded.point.filter(|_| reports) {
            self.reporters[point as usize] -= 1;
        }
        match (recorded.end.is_voluntary(), end.is_voluntary()) {
            (false, true) => self.divergence.early += 1,
            (true, false) => self.divergence.late += 1,
            _ if recorded.end != end => self.divergence.otherwise += 1,
            _ => {}
        }
    }

    fn vcpu_to_wake(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        if view.is_any_running() || self.next_due(view).is_some() {
            return None;
        }
        let slice = self.slices.get(self.next).filter(|slice| view.is_halted(slice.vcpu))?;
        self.divergence.woken += 1;
        Some(slice.vcpu)
    }

    fn is_work_conserving(&self) -> bool {
        false
    }

    fn divergence(&self) -> Option<Divergence> {
        Some(self.divergence)
    }
}
