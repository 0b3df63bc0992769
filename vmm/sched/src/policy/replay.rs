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
//! policy wakes the vCPU, which its guest must expect; that is a divergence, too. Only slices of vCPUs that
//! have exited are skipped. This is deterministic replay (ReVirt, Dunlap et al., OSDI 2002) applied to the
//! schedule alone.

use hypercalls::telemetry::Point;
use serde::{Deserialize, Serialize};

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::{Turn, TurnEnd},
};
use base::{
    sums,
    units::{Nanos, SlotId},
};

/// Upper bound on the time a vCPU is held off, regardless of the recording.
const LONGEST_HOLD: Nanos = Nanos::millis(60_000);

/// How closely a replay followed its recording.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// Slices of the recording, up to the first slice that the end of the recording cut off.
    pub recorded: u64,
    /// Recorded slices that were repeated.
    pub replayed: u64,
    /// Recorded slices that were skipped because the vCPU had exited.
    pub skipped: u64,
    /// vCPUs that were halted when they should have run, with no vCPU running to kick them, and were woken.
    pub woken: u64,
    /// Slices that the vCPU itself ended (halt, idle, exit), recorded to end otherwise.
    pub early: u64,
    /// Slices that the vCPU did not end itself, although recorded so.
    pub late: u64,
    /// Slices that ended in another way than recorded, not counted above.
    pub otherwise: u64,
    /// Slices recorded to end outside of locks that were cut off inside a lock, one slice later.
    pub cut: u64,
    /// Complete slices of the recording that are not repeated because they began after a slice that was still
    /// open when the recording ended. If not even the first slice can be repeated, open slices count, too.
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
        let all = [woken, early, late, otherwise, cut, skipped, left_out, self.unreplayed()];
        all.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether the replay repeated its recording. One slice in ten may differ.
    pub fn is_repeated(&self) -> bool {
        self.differ() <= self.recorded.saturating_add(self.left_out) / 10
    }
}

/// Whether the guest ended this slice by an event other than a halt, idling or an exit.
fn is_by_event(turn: &Turn) -> bool {
    matches!(turn.end, TurnEnd::Yield | TurnEnd::Spun | TurnEnd::MadeWay) || turn.point.is_some()
}

/// Returns the number of recorded slices that are lost if only `turns`, the first of them, are repeated. A
/// vCPU that keeps its slot until the end of the recording cuts the replay short where its slice begins. Each
/// slot has an open slice at the end of the recording; open slices are not counted as long as any slice is
/// repeated.
fn left_out(turns: &[Turn], recorded: &[Turn]) -> u64 {
    let behind = &recorded[turns.len()..];
    let is_lost = |turn: &&Turn| turns.is_empty() || turn.end != TurnEnd::Open;
    behind.iter().filter(is_lost).count() as u64
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
    turns: Box<[Turn]>,
    next: usize,
    current: Box<[Option<Current>]>,
    /// By [`Point`]: number of vCPUs asked to report it.
    reporters: [u32; Point::ALL.len()],
    spin_looks: u32,
    ready: Box<[bool]>,
    /// Schedules after the end of the recording.
    after: Rr,
    slice: Nanos,
    divergence: Divergence,
}

impl Replay {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let recorded = setup.recording.map_or(&[][..], |recording| recording.turns.as_slice());
        // The length of an unfinished slice is unknown, and so is the rest of its slot's schedule. (Slices of
        // vCPUs or slots that this schedule does not have cannot be repeated either.)
        let fits = |turn: &&Turn| {
            turn.end != TurnEnd::Open
                && turn.vcpu.ix() < setup.vms.len()
                && (turn.slot.0 as usize) < setup.slots
        };
        let turns: Box<[Turn]> = recorded.iter().take_while(fits).copied().collect();
        let vcpus = setup.vms.len();
        let (left_out, recorded) = (left_out(&turns, recorded), turns.len() as u64);
        let spin_looks = setup.recording.map_or(0, |recording| recording.spin_looks);
        Self {
            turns,
            next: 0,
            current: vec![None; vcpus].into(),
            reporters: Default::default(),
            spin_looks,
            ready: vec![false; vcpus].into(),
            after: Rr::new(setup),
            slice: setup.slice,
            divergence: Divergence { recorded, left_out, ..Divergence::default() },
        }
    }

    fn is_over(&self) -> bool {
        self.next == self.turns.len()
    }

    /// Returns the time for which the vCPU of this slice was held off afterwards.
    fn off_after(&self, ix: usize) -> Nanos {
        let turn = &self.turns[ix];
        let again = self.turns[ix + 1..].iter().find(|later| later.vcpu == turn.vcpu);
        let off = again.map_or(Nanos::ZERO, |again| again.at.since(turn.at.after(turn.ran)));
        off.min(LONGEST_HOLD)
    }

    /// Whether this slice was ended by a policy that waited until the vCPU neither held nor awaited a lock.
    fn is_out_of_locks(turn: &Turn) -> bool {
        turn.end == TurnEnd::Slice && turn.free
    }

    /// Returns the maximum duration of a slice.
    fn limit(&self, turn: &Turn) -> Nanos {
        match turn.end {
            end if end.is_voluntary() => self.slice.after(turn.ran).after(turn.ran),
            _ if is_by_event(turn) => self.slice.after(turn.ran),
            _ => turn.ran,
        }
    }

    /// Returns the vCPU's recorded slice if the guest should end it by an event now.
    fn awaits(&self, vcpu: VcpuIndex, view: &View<'_>) -> Option<(usize, Turn)> {
        let ix = self.current[vcpu.ix()]?.ix;
        let turn = self.turns[ix];
        (is_by_event(&turn) && view.ran(vcpu) >= turn.ran).then_some((ix, turn))
    }

    /// Waits until `until` for the event that ended the slice.
    fn wait(&mut self, vcpu: VcpuIndex, turn: &Turn, until: Nanos) -> Verdict {
        if let (Some(point), Some(current)) = (turn.point, &mut self.current[vcpu.ix()])
            && !std::mem::replace(&mut current.reports, true)
        {
            self.reporters[point as usize] += 1;
        }
        match turn.end {
            TurnEnd::Yield => Verdict::Ask(until),
            _ => Verdict::Stay(until),
        }
    }

    /// Returns the index of the slice to begin now, if its vCPU is ready. Skips slices of vCPUs that have
    /// exited.
    fn due(&mut self, view: &View<'_>) -> Option<usize> {
        while self.turns.get(self.next).is_some_and(|turn| view.is_gone(turn.vcpu)) {
            self.divergence.skipped += 1;
            self.next += 1;
        }
        let turn = self.turns.get(self.next)?;
        self.ready[turn.vcpu.ix()].then_some(self.next)
    }
}

impl Policy for Replay {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.ready[vcpu.ix()] = true;
        self.after.ready(vcpu, cause, view);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.ready[vcpu.ix()] = false;
        self.after.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let pick = match self.due(view) {
            Some(ix) if self.turns[ix].slot == slot => {
                self.next += 1;
                self.divergence.replayed += 1;
                let turn = self.turns[ix];
                let vcpu = turn.vcpu;
                self.current[vcpu.ix()] = Some(Current { ix, reports: false });
                self.after.gone(vcpu);
                let until = if is_by_event(&turn) { turn.ran } else { self.limit(&turn) };
                Some(Pick::new(vcpu, view.now.after(until)))
            }
            None if self.is_over() => self.after.pick(slot, view),
            _ => None,
        }?;
        self.ready[pick.vcpu.ix()] = false;
        Some(pick)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        let Some(Current { ix, .. }) = self.current[vcpu.ix()] else {
            return self.after.stopped(vcpu, look, view);
        };
        let (turn, ran) = (self.turns[ix], view.ran(vcpu));
        let end_at = |span: Nanos| view.now.after(span.since(ran));
        let limit = self.limit(&turn);
        match turn.end {
            _ if is_by_event(&turn) && ran < turn.ran => Verdict::Stay(end_at(turn.ran)),
            _ if is_by_event(&turn) && ran < limit => self.wait(vcpu, &turn, end_at(limit)),
            _ if ran < limit => Verdict::Stay(end_at(limit)),
            _ if Self::is_out_of_locks(&turn)
                && look.activity.is_involved()
                && ran < limit.after(self.slice) =>
            {
                Verdict::Ask(end_at(limit.after(self.slice)))
            }
            TurnEnd::Injected => {
                // The guest should have reached the point by now.
                self.divergence.otherwise += u64::from(turn.point.is_some());
                Verdict::Hold(view.now.after(self.off_after(ix)))
            }
            TurnEnd::Grace => Verdict::Preempt(Why::Grace),
            _ if Self::is_out_of_locks(&turn) && look.activity.is_involved() => {
                self.divergence.cut += 1;
                Verdict::Preempt(Why::Slice)
            }
            // The event that ended the slice has not occurred.
            _ => Verdict::Preempt(Why::Slice),
        }
    }

    fn yielded(&mut self, vcpu: VcpuIndex, view: &View<'_>) -> Verdict {
        match (self.awaits(vcpu, view), self.current[vcpu.ix()]) {
            (Some((_, turn)), _) if turn.end == TurnEnd::Yield => Verdict::Preempt(Why::Yield),
            (_, Some(Current { ix, .. }))
                if Self::is_out_of_locks(&self.turns[ix])
                    && view.ran(vcpu) >= self.turns[ix].ran =>
            {
                Verdict::Preempt(Why::Slice)
            }
            (_, Some(_)) => Verdict::Stay(view.until(vcpu)),
            (_, None) => self.after.yielded(vcpu, view),
        }
    }

    fn spun_out(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Option<Verdict> {
        let (_, turn) = self.awaits(vcpu, view)?;
        (turn.end == TurnEnd::Spun).then_some(Verdict::Preempt(Why::Spun))
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        _: VcpuIndex,
        look: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.spun_out(vcpu, look, view)
    }

    fn makes_way(&mut self, by: VcpuIndex, _: &LockActivity, view: &View<'_>) -> Option<Verdict> {
        let (_, turn) = self.awaits(by, view)?;
        (turn.end == TurnEnd::MadeWay).then_some(Verdict::Preempt(Why::MadeWay))
    }

    fn point(
        &mut self,
        vcpu: VcpuIndex,
        at: Point,
        _: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        let (ix, turn) = self.awaits(vcpu, view)?;
        (turn.point == Some(at)).then(|| Verdict::Hold(view.now.after(self.off_after(ix))))
    }

    fn points(&self, _: Nanos) -> u32 {
        let wanted = Point::ALL.iter().filter(|point| self.reporters[**point as usize] > 0);
        wanted.fold(0, |mask, point| mask | point.bit())
    }

    fn spin_looks(&self) -> u32 {
        self.spin_looks
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, end: TurnEnd, _: Nanos, _: &View<'_>) {
        let Some(Current { ix, reports }) = self.current[vcpu.ix()].take() else { return };
        let recorded = self.turns[ix];
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

    fn wakes(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        if view.anybody_runs() || self.due(view).is_some() {
            return None;
        }
        let turn = self.turns.get(self.next).filter(|turn| view.is_halted(turn.vcpu))?;
        self.divergence.woken += 1;
        Some(turn.vcpu)
    }

    fn is_work_conserving(&self) -> bool {
        false
    }

    fn divergence(&self) -> Option<Divergence> {
        Some(self.divergence)
    }
}
