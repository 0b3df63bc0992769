//! `deferred[:ask|look[,GRACE]]`: a vCPU whose slice is over keeps its slot until it neither holds
//! nor awaits a lock, but for GRACE at most (default: four slices for a holder, one for a waiter),
//! counted from when another vCPU is first found waiting for the slot. A holder that is in its
//! critical section for so long does not run: the host has taken its CPU, and the grace has to
//! outlast that. A waiter's lock may be held up by others, behind which it would spin. `ask` asks
//! the guest to yield, `look` stops it repeatedly and
//! reads its telemetry. A turn continues as long as no other vCPU is waiting. A vCPU that kicks a
//! waiter makes way for it if it holds and awaits no other lock. If it does (it released the inner
//! of two locks, or an interrupt handler's), it is asked to yield, or looked at. Lock-aware
//! preemption after Uhlig et al. (VM 2004), who delay it to "safe points". Right whenever guests
//! publish telemetry: a vCPU that is never preempted in a lock keeps no other waiting.
//!
//! A host that takes CPUs away can still make a grace run out. The vCPU is then *stranded*: off its
//! slot in a lock. One stranded waiter of a FIFO lock strands those behind it, one after the other,
//! each for a slice and a grace. Stranded vCPUs therefore go ahead of their turn, first those that
//! others wait for, and leave as soon as they are out of the lock. A stranded vCPU that is forced off
//! again is *spent*: it takes its turn in the round, and leaves as soon as it is out of the lock. A
//! vCPU that spins for a stranded or spent one makes way at the next look, and does not go ahead of
//! a spent one. So a line that a host has stopped resumes after one round (`sim::deferred_tests`).
//! Stranded vCPUs end only turns of their own VM early.
//!
//! A waiter in KVM's HLT keeps its slot as long as one that spins does, its grace included, unless a
//! kicked or stranded vCPU wants the slot. The vCPU it waits for has a slot, too, and kicks it soon; if
//! it had lost its slot by then, the kicker would have to make way for it. Another vCPU on this slot
//! would only queue for the lock behind the sleeper. (In a Linux guest at 2x, one of two slots each:
//! 1.3 times the acquisitions of a scheduler that takes the slot at the end of the slice.)
//!
//! Waiting: no vCPU goes ahead of one that has waited for one slice per vCPU of the schedule, and a
//! contended turn lasts at most a slice and a GRACE. So each waits at most two slices and a GRACE
//! per vCPU.
//!
//! Fairness: what a VM has beyond its part it owes to the others ([`Rr::with_debts`]), so that over time no guest
//! gains by what it claims.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnEnd,
};
use base::units::{Nanos, SlotId};

/// Time between two looks at a guest that is not asked to yield: this fraction of its slice,
const LOOKS_A_SLICE: u64 = 20;
/// but at least this, far more than an entry into the guest takes: otherwise it would make no
/// progress (measured).
const LOOK_AGAIN: Nanos = Nanos::micros(100);

/// How long a vCPU may keep its slot for a lock when its slice is over and others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// If it holds one.
    pub holder: Nanos,
    /// If it awaits one.
    pub waiter: Nanos,
}

impl Grace {
    /// As given, or four slices for a holder and one for a waiter. With one slice, holders of Linux guests with
    /// native locks at 2x lost theirs 0.06 times a second to a host that stood still; with four, never (16 s each).
    #[must_use]
    pub fn new(given: Option<Nanos>, slice: Nanos) -> Self {
        let four = Nanos(slice.0.saturating_mul(4));
        Self { holder: given.unwrap_or(four), waiter: given.unwrap_or(slice) }
    }
}

/// How the end of a critical section is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndDetection {
    /// The guest is asked to yield.
    Ask,
    /// The guest is stopped repeatedly and its telemetry read.
    Observation,
}

#[derive(Debug)]
pub(super) struct Deferred {
    rr: Rr,
    kicked: Queue,
    /// Off their slots in a lock; those that others wait for come first.
    stranded: Queue,
    /// The first stranded vCPU has only just lost its slot: one turn of the round comes before it.
    round_first: bool,
    way: EndDetection,
    grace: Grace,
    slice: Nanos,
    turns: Box<[CurrentTurn]>,
}

/// What is known of a vCPU's current turn.
#[derive(Debug, Default, Clone, Copy)]
struct CurrentTurn {
    /// When its slice was first found to be over, with the vCPU in a lock and another one waiting.
    /// The grace counts from then: the turn itself may have been extended long before.
    due: Option<Nanos>,
    /// The vCPU makes way once it is out of its lock: it has kicked a vCPU from within it, or a
    /// stranded vCPU waits for a slot.
    makes_way: bool,
    /// The vCPU was stranded when the turn began.
    ahead: bool,
    /// The vCPU's last turn was ahead of its place in the round and was forced to end: it is in the
    /// round, in a lock.
    spent: bool,
}

impl Deferred {
    pub(super) fn new(setup: &Setup<'_>, way: EndDetection, grace: Option<Nanos>) -> Self {
        Self {
            rr: Rr::with_debts(setup),
            kicked: Queue::with_room(setup.vms.len()),
            stranded: Queue::with_room(setup.vms.len()),
            round_first: false,
            way,
            grace: Grace::new(grace, setup.slice),
            slice: setup.slice,
            turns: vec![CurrentTurn::default(); setup.vms.len()].into(),
        }
    }

    /// How long a turn of this vCPU may go on because of what it does with locks.
    fn grace(&self, vcpu: VcpuIndex, activity: &LockActivity) -> Nanos {
        let grace = if activity.is_holder() { self.grace.holder } else { self.grace.waiter };
        self.rr.grace(vcpu, grace)
    }

    fn is_contended(&self) -> bool {
        self.rr.is_contended() || !self.kicked.is_empty() || !self.stranded.is_empty()
    }

    /// `vcpu` has lost its slot in a lock.
    fn strand(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.round_first |= self.stranded.is_empty();
        self.stranded.insert(vcpu, |other| keeps_waiting(vcpu, other, view));
    }

    /// Does a vCPU in HLT wait for a lock that comes to it by the turns under way?
    fn sleeps_in_line(&self, look: &Observation) -> bool {
        matches!(look.activity, LockActivity::Waiting { .. })
            && self.kicked.is_empty()
            && self.stranded.is_empty()
    }

    /// Those that are off their slots in a lock: the stranded and the spent.
    fn lost(&self) -> impl Iterator<Item = VcpuIndex> {
        self.stranded.iter().chain(self.spent())
    }

    fn spent(&self) -> impl Iterator<Item = VcpuIndex> {
        self.rr.waiting().filter(|vcpu| self.turns[vcpu.ix()].spent)
    }

    /// Is another vCPU of its VM off its slot in a lock?
    fn has_lost(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        self.lost().any(|other| other != vcpu && view.vm_of(other) == view.vm_of(vcpu))
    }

    /// Does a vCPU with this activity only spin, because it waits for one that is off its slot? In a
    /// line of unknown order it may be the next, which a short turn shows.
    fn only_spins(&self, vcpu: VcpuIndex, activity: &LockActivity, view: &View<'_>) -> bool {
        self.lost().any(|other| {
            other != vcpu
                && view.vm_of(other) == view.vm_of(vcpu)
                && view.last_seen(other).may_go_before(activity)
        })
    }

    /// The first stranded vCPU, unless it waits for a spent one: it would only spin.
    fn first_stranded(&self, view: &View<'_>) -> Option<VcpuIndex> {
        let first = self.stranded.first()?;
        let waits = self.spent().any(|other| keeps_waiting(other, first, view));
        (!waits).then_some(first)
    }

    /// Takes the vCPU that has waited longest, if it is overdue: no other may go ahead of it then.
    fn pop_overdue(&mut self, view: &View<'_>) -> Option<(VcpuIndex, Lane)> {
        let stranded = self.stranded.iter().min_by_key(|vcpu| self.rr.since(*vcpu));
        let firsts = [
            (self.rr.first(), Lane::Round),
            (self.kicked.first(), Lane::Kicked),
            (stranded, Lane::Stranded),
        ];
        let firsts = firsts.into_iter().filter_map(|(vcpu, lane)| Some((vcpu?, lane)));
        let (vcpu, lane) = firsts.min_by_key(|(vcpu, _)| self.rr.since(*vcpu))?;
        if !self.rr.is_overdue(vcpu, view) {
            return None;
        }
        match lane {
            Lane::Round => self.rr.queue().remove(vcpu),
            Lane::Kicked => self.kicked.remove(vcpu),
            Lane::Stranded => self.stranded.remove(vcpu),
        }
        Some((vcpu, lane))
    }

    /// Takes the next vCPU, and tells from which queue.
    fn pop(&mut self, view: &View<'_>) -> Option<(VcpuIndex, Lane)> {
        if let Some(overdue) = self.pop_overdue(view) {
            return Some(overdue);
        }
        if let Some(vcpu) = self.kicked.pop() {
            return Some((vcpu, Lane::Kicked));
        }
        let round_first = std::mem::take(&mut self.round_first) && self.rr.is_contended();
        if !round_first && let Some(vcpu) = self.first_stranded(view) {
            self.stranded.remove(vcpu);
            return Some((vcpu, Lane::Stranded));
        }
        if let Some(vcpu) = self.rr.take_next(view) {
            return Some((vcpu, Lane::Round));
        }
        self.stranded.pop().map(|vcpu| (vcpu, Lane::Stranded))
    }

    /// When to look again: soon, but not after `end`.
    fn look_again(&self, end: Nanos, now: Nanos) -> Nanos {
        end.min(now.after(Nanos(self.slice.0 / LOOKS_A_SLICE).max(LOOK_AGAIN)))
    }

    /// The deadline of a vCPU in a lock whose turn lasts until `end` at the longest.
    fn next_look(&self, end: Nanos, now: Nanos) -> Nanos {
        match self.way {
            EndDetection::Ask => end,
            EndDetection::Observation => self.look_again(end, now),
        }
    }

    /// A vCPU in a lock continues until `end` at the longest, and makes way once it is out of the
    /// lock.
    fn leaves_soon(&self, end: Nanos, now: Nanos) -> Verdict {
        match self.way {
            EndDetection::Ask => Verdict::Ask(end),
            EndDetection::Observation => Verdict::Stay(self.look_again(end, now)),
        }
    }
}

/// The queue that a vCPU was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Kicked,
    Stranded,
    Round,
}

/// Does `other`, as last observed, wait for `vcpu`?
fn keeps_waiting(vcpu: VcpuIndex, other: VcpuIndex, view: &View<'_>) -> bool {
    view.vm_of(other) == view.vm_of(vcpu) && view.last_seen(vcpu).goes_before(view.last_seen(other))
}

impl Policy for Deferred {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.waits(vcpu, view);
        match cause {
            _ if self.rr.is_in_arrears(vcpu) => self.rr.join(vcpu),
            // It is needed where a lock goes next.
            Ready::Kicked(_) => self.kicked.push(vcpu),
            // The vCPU took a lock before it could be called out of the guest.
            Ready::Woken if view.last_seen(vcpu).is_holder() => self.kicked.push(vcpu),
            Ready::Preempted
                if view.last_seen(vcpu).is_involved() && !self.turns[vcpu.ix()].spent =>
            {
                self.strand(vcpu, view);
            }
            _ => self.rr.join(vcpu),
        }
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.kicked.remove(vcpu);
        self.stranded.remove(vcpu);
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let (vcpu, lane) = self.pop(view)?;
        let ahead = lane == Lane::Stranded;
        let is_lost = ahead || self.turns[vcpu.ix()].spent;
        self.turns[vcpu.ix()] = CurrentTurn { ahead, ..CurrentTurn::default() };
        let pick = self.rr.begin(vcpu, self.slice, view);
        if !is_lost && !self.has_lost(vcpu, view) {
            return Some(pick);
        }
        let end = pick.until;
        // The vCPU soon runs into the lock that a lost vCPU holds up, or is out of its own.
        let asked = is_lost && self.way == EndDetection::Ask && self.is_contended();
        let leaves = asked && !self.only_spins(vcpu, view.last_seen(vcpu), view);
        let until = if leaves { end } else { self.look_again(end, view.now) };
        self.turns[vcpu.ix()].makes_way = is_lost && self.is_contended();
        Some(Pick { vcpu, until, asked })
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        let left = self.rr.left(vcpu, view);
        if !self.is_contended() {
            let ahead = self.turns[vcpu.ix()].ahead;
            self.turns[vcpu.ix()] = CurrentTurn { ahead, ..CurrentTurn::default() };
            return self.rr.stopped(vcpu, look, view);
        }
        if self.only_spins(vcpu, &look.activity, view) {
            return Verdict::Preempt(Why::Slice);
        }
        let (has_lost, grace) = (self.has_lost(vcpu, view), self.grace(vcpu, &look.activity));
        let (end, turn) = (view.now.after(left), &mut self.turns[vcpu.ix()]);
        match (left > Nanos::ZERO, look.activity.is_involved()) {
            (true, false) if has_lost => Verdict::Preempt(Why::Slice),
            (true, true) if has_lost => {
                turn.makes_way = true;
                self.leaves_soon(end, view.now)
            }
            (true, _) if !turn.makes_way => Verdict::Stay(end),
            // (At a time that the schedule chose, so that a replay can do the same.)
            (true, false) => Verdict::Preempt(Why::Slice),
            (true, true) => Verdict::Stay(self.next_look(end, view.now)),
            (false, false) => Verdict::Preempt(Why::Slice),
            (false, true) => {
                let forced = turn.due.get_or_insert(view.now).after(grace);
                match self.way {
                    _ if forced <= view.now => Verdict::Preempt(Why::Grace),
                    EndDetection::Ask => Verdict::Ask(forced),
                    EndDetection::Observation => Verdict::Stay(self.next_look(forced, view.now)),
                }
            }
        }
    }

    /// A waiter's turn goes on in HLT as it does while it spins, unless a vCPU that a lock goes to next wants the slot.
    fn stopped_in_hlt(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        if self.sleeps_in_line(look) {
            return self.stopped(vcpu, look, view);
        }
        self.stopped(vcpu, &Observation { activity: LockActivity::Free, ..*look }, view)
    }

    fn keeps_slot_in_hlt(&self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> bool {
        let grace = self.grace(vcpu, &look.activity);
        let in_grace = |due: Nanos| view.now < due.after(grace);
        self.sleeps_in_line(look)
            && (self.rr.left(vcpu, view) > Nanos::ZERO
                || self.turns[vcpu.ix()].due.is_some_and(in_grace))
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, end: TurnEnd, ran: Nanos, view: &View<'_>) {
        self.rr.turn_over(vcpu, end, ran, view);
        let is_forced = matches!(end, TurnEnd::Grace | TurnEnd::Slice);
        // In arrears, it does not go ahead of the round.
        let stays = self.rr.is_in_arrears(vcpu) && view.last_seen(vcpu).is_involved();
        let spent = self.turns[vcpu.ix()].ahead && end == TurnEnd::Grace || is_forced && stays;
        self.turns[vcpu.ix()] = CurrentTurn { spent, ..CurrentTurn::default() };
    }

    fn ends_out_of_locks(&self) -> bool {
        true
    }

    fn yielded(&mut self, _: VcpuIndex, view: &View<'_>) -> Verdict {
        if self.is_contended() {
            Verdict::Preempt(Why::Yield)
        } else {
            Verdict::Stay(self.rr.turn(view))
        }
    }

    fn makes_way(
        &mut self,
        by: VcpuIndex,
        activity: &LockActivity,
        view: &View<'_>,
    ) -> Option<Verdict> {
        if view.free_slot().is_some() {
            return None;
        }
        if !activity.is_involved() {
            return Some(Verdict::Preempt(Why::MadeWay));
        }
        self.turns[by.ix()].makes_way = true;
        Some(self.leaves_soon(view.until(by), view.now))
    }
}
