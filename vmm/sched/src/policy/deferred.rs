//! `deferred[:ask|look[,GRACE]]`: a vCPU keeps its slot beyond its slice until it neither holds nor awaits a
//! lock (is in no lock), for GRACE at most (default: four slices for a holder, one for a waiter), counted
//! from the time another vCPU is first found waiting for the slot. A holder that stays in its critical
//! section that long is not running: the host has taken its CPU, and the grace must outlast that. A waiter
//! may be held up by vCPUs ahead of it and would only spin. `ask` asks the guest to yield; `look` stops it
//! repeatedly and reads its telemetry. While no other vCPU waits, a vCPU keeps its slot. A vCPU that kicks a
//! waiter makes way for it if it holds and awaits no other lock. Otherwise (it released the inner of two
//! locks, or an interrupt handler's lock), it is asked to yield, or polled. Lock-aware preemption after Uhlig
//! et al. (VM 2004), who delay preemptions to "safe points". Suitable whenever guests publish telemetry: a
//! vCPU that is never preempted in a lock keeps no other vCPU waiting.
//!
//! A host that takes CPUs away can still make a grace run out. The vCPU is then preempted in the lock. One
//! such waiter for a FIFO lock stops those behind it, one after the other, each for a slice and a grace.
//! vCPUs preempted in a lock (`preempted_in_lock`) therefore go ahead of the round, first those that others
//! wait for, and leave the slot as soon as they are out of the lock. If such a vCPU is forced off again it is
//! *spent*: it waits for its place in the round, and leaves the slot as soon as it is out of the lock. A vCPU
//! that spins for one of these vCPUs makes way at the next poll, and does not go ahead of a spent vCPU. A
//! queue of waiters that a host has stopped thus resumes after one round (`sim::tests`). Only slices of vCPUs
//! of the same VM are cut short for this.
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

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, queue::Queue, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::SliceEnd,
};
use base::units::{Nanos, SlotId};

/// Number of polls per slice of a guest that is not asked to yield.
const POLLS_PER_SLICE: u64 = 20;
/// Minimum polling interval, far above the cost of a guest entry: with less the guest makes no progress
/// (measured).
const MIN_POLL_INTERVAL: Nanos = Nanos::micros(100);

/// Time for which a holder or waiter may keep its slot after its slice has expired, while others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// For a holder.
    pub holder: Nanos,
    /// For a waiter.
    pub waiter: Nanos,
}

impl Grace {
    /// Returns `input`, or by default four slices for a holder and one for a waiter. With one slice, host
    /// stalls forced off holders in Linux guests with native locks at 2x 0.06 times a second; with four,
    /// never (16 s each).
    #[must_use]
    pub fn new(input: Option<Nanos>, slice: Nanos) -> Self {
        let four_slices = Nanos(slice.0.saturating_mul(4));
        Self { holder: input.unwrap_or(four_slices), waiter: input.unwrap_or(slice) }
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
    preempted_in_lock: Queue,
    /// The first vCPU in `preempted_in_lock` has just lost its slot: one slice of the round comes before it.
    round_first: bool,
    detection: EndDetection,
    grace: Grace,
    slice: Nanos,
    slices: Box<[SliceState]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct SliceState {
    /// When its slice was first found expired with the vCPU in a lock and another vCPU waiting. The grace
    /// counts from then, because the vCPU may have had its slot much longer.
    grace_start: Option<Nanos>,
    /// The vCPU makes way once it is out of its lock: it has kicked a vCPU or was preempted in the lock, or
    /// a sibling preempted in a lock waits.
    makes_way: bool,
    /// The vCPU was preempted in a lock, and got this slice ahead of the round.
    ahead: bool,
    /// The vCPU was forced off in a lock and waits in the round: its last slice was ahead of the round, or
    /// its VM is in arrears.
    spent: bool,
}

impl Deferred {
    pub(super) fn new(setup: &Setup<'_>, detection: EndDetection, grace: Option<Nanos>) -> Self {
        Self {
            rr: Rr::with_debts(setup),
            kicked: Queue::with_room(setup.vms.len()),
            preempted_in_lock: Queue::with_room(setup.vms.len()),
            round_first: false,
            detection,
            grace: Grace::new(grace, setup.slice),
            slice: setup.slice,
            slices: vec![SliceState::default(); setup.vms.len()].into(),
        }
    }

    /// Returns how long this vCPU may keep its slot because of its lock activity.
    fn grace(&self, vcpu: VcpuIndex, activity: &LockActivity) -> Nanos {
        let grace = if activity.is_holder() { self.grace.holder } else { self.grace.waiter };
        self.rr.limit_grace(vcpu, grace)
    }

    fn is_contended(&self) -> bool {
        self.rr.is_contended() || !self.kicked.is_empty() || !self.preempted_in_lock.is_empty()
    }

    fn queue_preempted(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.round_first |= self.preempted_in_lock.is_empty();
        self.preempted_in_lock.insert(vcpu, |peer| blocks(vcpu, peer, view));
    }

    /// Whether a vCPU in HLT waits for a lock that the running vCPUs will hand off to it.
    fn is_halted_waiter(&self, obs: &Observation) -> bool {
        matches!(obs.activity, LockActivity::Waiting { .. })
            && self.kicked.is_empty()
            && self.preempted_in_lock.is_empty()
    }

    /// Returns the vCPUs that are off their slots in a lock, in `preempted_in_lock` or spent.
    fn off_slot_in_lock(&self) -> impl Iterator<Item = VcpuIndex> {
        self.preempted_in_lock.iter().chain(self.spent())
    }

    fn spent(&self) -> impl Iterator<Item = VcpuIndex> {
        self.rr.waiting().filter(|vcpu| self.slices[vcpu.ix()].spent)
    }

    /// Whether another vCPU of the same VM is off its slot in a lock.
    fn is_sibling_off(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        self.off_slot_in_lock().any(|peer| peer != vcpu && view.vm_of(peer) == view.vm_of(vcpu))
    }

    /// Whether a vCPU with this activity can only spin because it waits for a vCPU that is off its slot. In a
    /// queue of unknown order it may be next in line, which a short slice shows.
    fn only_spins(&self, vcpu: VcpuIndex, activity: &LockActivity, view: &View<'_>) -> bool {
        self.off_slot_in_lock().any(|peer| {
            peer != vcpu
                && view.vm_of(peer) == view.vm_of(vcpu)
                && view.activity(peer).may_be_ahead_of(activity)
        })
    }

    /// Returns the first vCPU preempted in a lock, unless it waits for a spent vCPU and would only spin.
    fn first_preempted(&self, view: &View<'_>) -> Option<VcpuIndex> {
        let first = self.preempted_in_lock.first()?;
        let is_blocked = self.spent().any(|peer| blocks(peer, first, view));
        (!is_blocked).then_some(first)
    }

    /// Takes the vCPU that has waited longest if it is overdue, as no other may go ahead of it then.
    fn pop_overdue(&mut self, view: &View<'_>) -> Option<(VcpuIndex, Lane)> {
        let preempted = self.preempted_in_lock.iter().min_by_key(|vcpu| self.rr.ready_since(*vcpu));
        let firsts = [
            (self.rr.first(), Lane::Round),
            (self.kicked.first(), Lane::Kicked),
            (preempted, Lane::Preempted),
        ];
        let firsts = firsts.into_iter().filter_map(|(vcpu, lane)| Some((vcpu?, lane)));
        let (vcpu, lane) = firsts.min_by_key(|(vcpu, _)| self.rr.ready_since(*vcpu))?;
        if !self.rr.is_overdue(vcpu, view) {
            return None;
        }
        match lane {
            Lane::Round => self.rr.queue().remove(vcpu),
            Lane::Kicked => self.kicked.remove(vcpu),
            Lane::Preempted => self.preempted_in_lock.remove(vcpu),
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
        if !round_first && let Some(vcpu) = self.first_preempted(view) {
            self.preempted_in_lock.remove(vcpu);
            return Some((vcpu, Lane::Preempted));
        }
        if let Some(vcpu) = self.rr.take_next(view) {
            return Some((vcpu, Lane::Round));
        }
        self.preempted_in_lock.pop().map(|vcpu| (vcpu, Lane::Preempted))
    }

    /// Returns the time of the next poll: soon, but not after `end`.
    fn next_poll(&self, end: Nanos, now: Nanos) -> Nanos {
        end.min(now.after(Nanos(self.slice.0 / POLLS_PER_SLICE).max(MIN_POLL_INTERVAL)))
    }

    /// Returns the deadline of a vCPU in a lock that may keep its slot until `end`.
    fn next_stop(&self, end: Nanos, now: Nanos) -> Nanos {
        match self.detection {
            EndDetection::Ask => end,
            EndDetection::Observation => self.next_poll(end, now),
        }
    }

    /// Lets a vCPU in a lock continue until `end` at the latest. It makes way once it is out of the lock.
    fn leave_after_lock(&self, end: Nanos, now: Nanos) -> Verdict {
        match self.detection {
            EndDetection::Ask => Verdict::Ask(end),
            EndDetection::Observation => Verdict::Stay(self.next_poll(end, now)),
        }
    }
}

/// The queue from which a vCPU was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Kicked,
    Preempted,
    Round,
}

/// Whether `peer`, as last observed, waits for `vcpu`.
fn blocks(vcpu: VcpuIndex, peer: VcpuIndex, view: &View<'_>) -> bool {
    view.vm_of(peer) == view.vm_of(vcpu) && view.activity(vcpu).is_ahead_of(view.activity(peer))
}

impl Policy for Deferred {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.start_waiting(vcpu, view);
        match cause {
            _ if self.rr.is_in_arrears(vcpu) => self.rr.enqueue(vcpu),
            // It is handed a lock next.
            Ready::Kicked(_) => self.kicked.push(vcpu),
            // The vCPU took a lock before it could be stopped.
            Ready::Woken if view.activity(vcpu).is_holder() => self.kicked.push(vcpu),
            Ready::Preempted
                if view.activity(vcpu).is_involved() && !self.slices[vcpu.ix()].spent =>
            {
                self.queue_preempted(vcpu, view);
            }
            _ => self.rr.enqueue(vcpu),
        }
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.kicked.remove(vcpu);
        self.preempted_in_lock.remove(vcpu);
        self.rr.exited(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let (vcpu, lane) = self.pop(view)?;
        let ahead = lane == Lane::Preempted;
        let was_off_slot = ahead || self.slices[vcpu.ix()].spent;
        self.slices[vcpu.ix()] = SliceState { ahead, ..SliceState::default() };
        let pick = self.rr.begin(vcpu, self.slice, view);
        if !was_off_slot && !self.is_sibling_off(vcpu, view) {
            return Some(pick);
        }
        let end = pick.deadline;
        // The vCPU will soon wait for a lock held up by a vCPU without a slot, or leave its own lock.
        let ask = was_off_slot && self.detection == EndDetection::Ask && self.is_contended();
        let yields_itself = ask && !self.only_spins(vcpu, view.activity(vcpu), view);
        let deadline = if yields_itself { end } else { self.next_poll(end, view.now) };
        self.slices[vcpu.ix()].makes_way = was_off_slot && self.is_contended();
        Some(Pick { vcpu, deadline, ask })
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        let remaining = self.rr.remaining(vcpu, view);
        if !self.is_contended() {
            let ahead = self.slices[vcpu.ix()].ahead;
            self.slices[vcpu.ix()] = SliceState { ahead, ..SliceState::default() };
            return self.rr.stopped(vcpu, obs, view);
        }
        if self.only_spins(vcpu, &obs.activity, view) {
            return Verdict::Preempt(Reason::Slice);
        }
        let (is_sibling_off, grace) =
            (self.is_sibling_off(vcpu, view), self.grace(vcpu, &obs.activity));
        let (end, slice) = (view.now.after(remaining), &mut self.slices[vcpu.ix()]);
        match (remaining > Nanos::ZERO, obs.activity.is_involved()) {
            (true, false) if is_sibling_off => Verdict::Preempt(Reason::Slice),
            (true, true) if is_sibling_off => {
                slice.makes_way = true;
                self.leave_after_lock(end, view.now)
            }
            (true, _) if !slice.makes_way => Verdict::Stay(end),
            // Only at a stop: the schedule chose its time, so a replay can repeat it.
            (true, false) => Verdict::Preempt(Reason::Slice),
            (true, true) => Verdict::Stay(self.next_stop(end, view.now)),
            (false, false) => Verdict::Preempt(Reason::Slice),
            (false, true) => {
                let forced = slice.grace_start.get_or_insert(view.now).after(grace);
                match self.detection {
                    _ if forced <= view.now => Verdict::Preempt(Reason::Grace),
                    EndDetection::Ask => Verdict::Ask(forced),
                    EndDetection::Observation => Verdict::Stay(self.next_stop(forced, view.now)),
                }
            }
        }
    }

    /// A waiter keeps its slot in HLT as it does while it spins, unless a vCPU that gets a lock next wants
    /// the slot.
    fn stopped_in_hlt(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        if self.is_halted_waiter(obs) {
            return self.stopped(vcpu, obs, view);
        }
        self.stopped(vcpu, &Observation { activity: LockActivity::Free, ..*obs }, view)
    }

    fn keeps_slot_in_hlt(&self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> bool {
        let grace = self.grace(vcpu, &obs.activity);
        let in_grace = |grace_start: Nanos| view.now < grace_start.after(grace);
        self.is_halted_waiter(obs)
            && (self.rr.remaining(vcpu, view) > Nanos::ZERO
                || self.slices[vcpu.ix()].grace_start.is_some_and(in_grace))
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, end: SliceEnd, ran: Nanos, view: &View<'_>) {
        self.rr.slice_ended(vcpu, end, ran, view);
        let is_forced = matches!(end, SliceEnd::Grace | SliceEnd::Expired);
        // A vCPU in arrears does not go ahead of the round.
        let in_round = self.rr.is_in_arrears(vcpu) && view.activity(vcpu).is_involved();
        let spent = self.slices[vcpu.ix()].ahead && end == SliceEnd::Grace || is_forced && in_round;
        self.slices[vcpu.ix()] = SliceState { spent, ..SliceState::default() };
    }

    fn ends_out_of_locks(&self) -> bool {
        true
    }

    fn yielded(&mut self, _: VcpuIndex, view: &View<'_>) -> Verdict {
        if self.is_contended() {
            Verdict::Preempt(Reason::Yield)
        } else {
            Verdict::Stay(self.rr.new_slice_end(view))
        }
    }

    fn kicked(
        &mut self,
        by: VcpuIndex,
        activity: &LockActivity,
        view: &View<'_>,
    ) -> Option<Verdict> {
        if view.free_slot().is_some() {
            return None;
        }
        if !activity.is_involved() {
            return Some(Verdict::Preempt(Reason::MadeWay));
        }
        self.slices[by.ix()].makes_way = true;
        Some(self.leave_after_lock(view.deadline(by), view.now))
    }
}
