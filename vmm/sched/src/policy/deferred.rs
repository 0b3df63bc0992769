//! `deferred[:ask|look[,GRACE]]`: a vCPU keeps its slot beyond its slice until it neither holds nor awaits a
//! lock, for GRACE at most (default: four slices for a holder, one for a waiter), counted from the time
//! another vCPU is first found waiting for the slot. A holder that stays in its critical section that long is
//! not running: the host has taken its CPU, and the grace must outlast that. A waiter's lock may be held up
//! by vCPUs ahead of it, and it would only spin. `ask` asks the guest to yield; `look` stops it repeatedly
//! and reads its telemetry. While no other vCPU waits, a vCPU keeps its slot. A vCPU that kicks a waiter
//! makes way for it if it holds and awaits no other lock. If it does (it released the inner of two locks, or
//! an interrupt handler's lock), it is asked to yield, or polled. Lock-aware preemption after Uhlig et al.
//! (VM 2004), who delay it to "safe points". Suitable whenever guests publish telemetry: a vCPU that is never
//! preempted in a lock keeps no other vCPU waiting.
//!
//! A host that takes CPUs away can still make a grace run out. The vCPU is then preempted in the lock
//! (`stranded` in the code). One such waiter of a FIFO lock stops those behind it, one after the other, each
//! for a slice and a grace. vCPUs preempted in a lock therefore go ahead of the round, first those that
//! others wait for, and leave the slot as soon as they are out of the lock. If such a vCPU is forced off
//! again it is *spent*: it waits for its place in the round, and leaves the slot as soon as it is out of the
//! lock. A vCPU that spins for one of these vCPUs makes way at the next poll, and does not go ahead of a
//! spent vCPU. A line of waiters that a host has stopped thus resumes after one round
//! (`sim::deferred_tests`). Only slices of vCPUs of the same VM are cut short for this.
//!
//! A waiter in KVM's HLT keeps its slot as long as a spinning waiter does, including its grace, unless a vCPU
//! that was kicked or preempted in a lock wants the slot. The vCPU it waits for has a slot, too, and kicks it
//! soon. If the waiter had lost its slot by then, the kicker would have to make way for it. Another vCPU on
//! this slot would only queue for the lock behind the sleeper. (In Linux guests at 2x, with one of two slots
//! each: 1.3 times the acquisitions of a scheduler that takes the slot at the end of the slice.)
//!
//! Waiting time: once a vCPU has waited for a slice per vCPU of the schedule, no other vCPU goes ahead of it.
//! A contended slot is kept for a slice and a GRACE at most. Each vCPU thus waits at most two slices and a
//! GRACE per vCPU.
//!
//! Fairness: a VM owes the time beyond its share to the others ([`Rr::with_debts`]), so that over time no
//! guest gains by false claims.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnEnd,
};
use base::units::{Nanos, SlotId};

/// Number of polls per slice of a guest that is not asked to yield.
const LOOKS_A_SLICE: u64 = 20;
/// Minimum polling interval, far above the cost of a guest entry: with less the guest makes no progress
/// (measured).
const LOOK_AGAIN: Nanos = Nanos::micros(100);

/// Time for which a vCPU may keep its slot in a lock after its slice has expired and others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// For a holder.
    pub holder: Nanos,
    /// For a waiter.
    pub waiter: Nanos,
}

impl Grace {
    /// Returns `given`, or by default four slices for a holder and one for a waiter. With one slice, host
    /// stalls forced off holders in Linux guests with native locks at 2x 0.06 times a second; with four,
    /// never (16 s each).
    #[must_use]
    pub fn new(given: Option<Nanos>, slice: Nanos) -> Self {
        let four = Nanos(slice.0.saturating_mul(4));
        Self { holder: given.unwrap_or(four), waiter: given.unwrap_or(slice) }
    }
}

/// Method of detecting the end of a critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndDetection {
    /// The guest is asked to yield.
    Ask,
    /// The guest is stopped repeatedly, and its telemetry is read.
    Observation,
}

#[derive(Debug)]
pub(super) struct Deferred {
    rr: Rr,
    kicked: Queue,
    /// vCPUs preempted in a lock. Those that others wait for come first.
    stranded: Queue,
    /// The first vCPU in `stranded` has only just lost its slot: one slice of the round comes before it.
    round_first: bool,
    way: EndDetection,
    grace: Grace,
    slice: Nanos,
    turns: Box<[CurrentTurn]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct CurrentTurn {
    /// When its slice was first found expired with the vCPU in a lock and another vCPU waiting. The grace
    /// counts from then, because the vCPU may have had its slot much longer.
    due: Option<Nanos>,
    /// The vCPU makes way once it is out of its lock: it has kicked a vCPU from within it, or a vCPU
    /// preempted in a lock waits for a slot.
    makes_way: bool,
    /// The vCPU was preempted in a lock before this slice.
    ahead: bool,
    /// The vCPU was last scheduled ahead of its place in the round and was forced off: it is in the round, in
    /// a lock.
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

    /// Returns how long this vCPU may keep its slot because of its lock activity.
    fn grace(&self, vcpu: VcpuIndex, activity: &LockActivity) -> Nanos {
        let grace = if activity.is_holder() { self.grace.holder } else { self.grace.waiter };
        self.rr.grace(vcpu, grace)
    }

    fn is_contended(&self) -> bool {
        self.rr.is_contended() || !self.kicked.is_empty() || !self.stranded.is_empty()
    }

    /// Queues `vcpu`, which was preempted in a lock.
    fn strand(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.round_first |= self.stranded.is_empty();
        self.stranded.insert(vcpu, |other| keeps_waiting(vcpu, other, view));
    }

    /// Whether a vCPU in HLT waits for a lock that the running vCPUs will pass to it.
    fn sleeps_in_line(&self, look: &Observation) -> bool {
        matches!(look.activity, LockActivity::Waiting { .. })
            && self.kicked.is_empty()
            && self.stranded.is_empty()
    }

    /// Returns the vCPUs that are off their slots in a lock, in `stranded` or spent.
    fn lost(&self) -> impl Iterator<Item = VcpuIndex> {
        self.stranded.iter().chain(self.spent())
    }

    fn spent(&self) -> impl Iterator<Item = VcpuIndex> {
        self.rr.waiting().filter(|vcpu| self.turns[vcpu.ix()].spent)
    }

    /// Whether another vCPU of its VM is off its slot in a lock.
    fn has_lost(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        self.lost().any(|other| other != vcpu && view.vm_of(other) == view.vm_of(vcpu))
    }

    /// Whether a vCPU with this activity can only spin because it waits for a vCPU that is off its slot. In a
    /// line of unknown order it may be the next, which a short slice shows.
    fn only_spins(&self, vcpu: VcpuIndex, activity: &LockActivity, view: &View<'_>) -> bool {
        self.lost().any(|other| {
            other != vcpu
                && view.vm_of(other) == view.vm_of(vcpu)
                && view.last_seen(other).may_go_before(activity)
        })
    }

    /// Returns the first vCPU preempted in a lock, unless it waits for a spent vCPU and would only spin.
    fn first_stranded(&self, view: &View<'_>) -> Option<VcpuIndex> {
        let first = self.stranded.first()?;
        let waits = self.spent().any(|other| keeps_waiting(other, first, view));
        (!waits).then_some(first)
    }

    /// Takes the vCPU that has waited longest if it is overdue, as no other may go ahead of it then.
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

    /// Takes the next vCPU, and returns the queue it was in.
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

    /// Returns the time of the next poll: soon, but not after `end`.
    fn look_again(&self, end: Nanos, now: Nanos) -> Nanos {
        end.min(now.after(Nanos(self.slice.0 / LOOKS_A_SLICE).max(LOOK_AGAIN)))
    }

    /// Returns the deadline of a vCPU in a lock that may keep its slot until `end`.
    fn next_look(&self, end: Nanos, now: Nanos) -> Nanos {
        match self.way {
            EndDetection::Ask => end,
            EndDetection::Observation => self.look_again(end, now),
        }
    }

    /// Lets a vCPU in a lock continue until `end` at the latest. It makes way once it is out of the lock.
    fn leaves_soon(&self, end: Nanos, now: Nanos) -> Verdict {
        match self.way {
            EndDetection::Ask => Verdict::Ask(end),
            EndDetection::Observation => Verdict::Stay(self.look_again(end, now)),
        }
    }
}

/// The queue from which a vCPU was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Kicked,
    Stranded,
    Round,
}

/// Whether `other`, as last observed, waits for `vcpu`.
fn keeps_waiting(vcpu: VcpuIndex, other: VcpuIndex, view: &View<'_>) -> bool {
    view.vm_of(other) == view.vm_of(vcpu) && view.last_seen(vcpu).goes_before(view.last_seen(other))
}

impl Policy for Deferred {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.waits(vcpu, view);
        match cause {
            _ if self.rr.is_in_arrears(vcpu) => self.rr.join(vcpu),
            // A lock is passed to it next.
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
        // The vCPU will soon wait for a lock held up by a vCPU without a slot, or leave its own lock.
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
            // (At a time chosen by the schedule, so that a replay can repeat it.)
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

    /// A waiter keeps its slot in HLT as it does while it spins, unless a vCPU that gets a lock next wants
    /// the slot.
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
