//! The core decides which vCPU runs on which slot. A policy makes the choices; the core enforces the rules
//! that no policy may break.
//!
//! All state transitions are in this file, which is why it exceeds 400 lines: each transition maintains the
//! invariants of the same private fields (the vCPU on each slot, each vCPU's state, the number of waiting
//! vCPUs), and can be checked against its contract here.

use super::{
    accounting::{Accounting, Preemption},
    event::{Action, Event, Kicker, LockActivity, Observation, VcpuIndex},
    log::{Log, SliceEnd, SliceIndex},
    policy::{Pick, Policy, Ready, Reason, Verdict},
    table::{Vcpu, View},
};
use base::units::{Nanos, SlotId};

pub use super::table::{Member, State};

/// The scheduler as a state machine: it takes events and the time, and returns actions.
///
/// It does no I/O, keeps no clock and starts no thread. The caller (the driver in `vmm/machine/src/driver`, a
/// simulation or a test) supplies all three and must keep this contract:
///
/// * **Calls.** All calls on a core are serialized; the driver makes them under one mutex. Any thread may
///   call [`Core::handle`], for its own vCPU or for another. A vCPU's own thread reports [`Event::Started`],
///   [`Event::Stopped`], [`Event::StoppedInHlt`], [`Event::Halted`], [`Event::HandedOver`],
///   [`Event::Yielded`], [`Event::SpunOut`], [`Event::YieldsTo`], [`Event::Point`], [`Event::Blocks`],
///   [`Event::HoldEnded`] and [`Event::Exited`], and is outside the guest when it does. [`Event::Kicked`],
///   [`Event::KickedInHlt`], [`Event::Idle`], [`Event::Woken`] and [`Event::Sampled`] may come from any
///   thread, such as the kicker's. Indices must be below the number of members; other indices panic.
/// * **Time.** `now` is monotonic over all calls and must therefore be read under the same mutex. Nothing
///   happens between calls: a caller that sleeps must call again at [`Core::deadline`], with
///   [`Event::Stopped`] for a running vCPU and [`Event::HoldEnded`] for a held one.
/// * **Order.** The first event reported by a vCPU's own thread is [`Event::Started`], the last is
///   [`Event::Exited`]. After it the vCPU stays [`State::Exited`] and all its events are ignored. Events of
///   different vCPUs may arrive in any order: a kick may precede the halt it is meant for, and an observation
///   may be out of date.
/// * **Input.** A core reads only events and the time. A recorded history of calls, repeated on a new core,
///   yields the same actions, log and accounting.
/// * **Ignored events.** An event that does not match the state is stale, not an error. [`Event::Started`] is
///   accepted only in [`State::New`]; [`Event::Idle`], [`Event::Blocks`], [`Event::Sampled`] and the thread's
///   own events from [`Event::Stopped`] to [`Event::Point`] only in [`State::Running`]; [`Event::Woken`] and
///   [`Event::KickedInHlt`] only in [`State::Idle`]; [`Event::HoldEnded`] only in [`State::Held`] and not
///   before its time. [`Event::Kicked`] makes a halted or idle vCPU ready. In any other state except
///   [`State::Exited`] it stays pending and cancels the next halt; several kicks count as one.
///   [`Event::HandedOver`] delivers its kick even if the vCPU has lost its slot and its halt is ignored.
/// * **Actions.** Actions are valid until the next call and must be carried out in order. The core treats
///   them as done: a granted vCPU counts as running from `now`. Anything that lets a thread into its guest or
///   keeps it out (the grant, the deadline, a request to yield) must be in force before the mutex is
///   released, or a later decision could overtake it. Threads must be woken or signalled after that, because
///   a woken thread may preempt its waker on the same CPU and contend for the mutex. [`Action::Sample`] must
///   be answered by [`Event::Sampled`] at the same `now`, before any other event; only the accounting uses
///   the answer. A thread whose own event made its vCPU lose the slot must not enter the guest before the
///   next grant.
/// * **KVM's HLT.** A vCPU that halts inside KVM keeps its slot until the caller reports [`Event::Idle`],
///   which it may do only if [`Core::has_waiters`] and not [`Core::keeps_slot_in_hlt`]. [`Event::Idle`] and
///   [`Event::StoppedInHlt`] may take the slot while the thread stays in `KVM_RUN`. When the thread wakes,
///   the caller must notice, report [`Event::Woken`] and get it out of the guest unless it is granted a slot.
///
/// In return, under any policy, a slot never has two vCPUs, a vCPU never has two slots, and no call
/// allocates.
#[derive(Debug)]
pub struct Core {
    vcpus: Box<[Vcpu]>,
    slots: Box<[Option<VcpuIndex>]>,
    /// Number of vCPUs in [`State::Ready`].
    waiting: u32,
    policy: Box<dyn Policy>,
    points: u32,
    accounting: Accounting,
    log: Log,
    actions: Vec<Action>,
    /// The slot freed last. Its CPU is the least likely to be in a deep idle state.
    last_freed: usize,
}

impl Core {
    /// Creates a schedule of `members` on `slots` slots. All vCPUs are [`State::New`] and all slots are free.
    pub fn new(members: &[Member], slots: usize, policy: Box<dyn Policy>, log: Log) -> Self {
        let vcpu = |member: &Member| Vcpu {
            member: *member,
            state: State::New,
            observed: Observation::default(),
            granted_at: Nanos::ZERO,
            deadline: Nanos::NEVER,
            pending_kick: false,
            slice: SliceIndex::default(),
        };
        Self {
            vcpus: members.iter().map(vcpu).collect(),
            slots: vec![None; slots].into(),
            waiting: 0,
            policy,
            points: 0,
            accounting: Accounting::new(members.len()),
            log,
            // A step grants each slot, asks its vCPU, samples it and recalls it at most once; there are few
            // other actions.
            actions: Vec::with_capacity(4 * slots + 4),
            last_freed: 0,
        }
    }

    /// Returns the state of `vcpu`.
    pub fn state(&self, vcpu: VcpuIndex) -> State {
        self.vcpus[vcpu.ix()].state
    }

    /// Returns the end of a running vCPU's time on its slot or of a held vCPU's hold. None in other states.
    pub fn deadline(&self, vcpu: VcpuIndex) -> Option<Nanos> {
        let record = &self.vcpus[vcpu.ix()];
        match record.state {
            State::Running(_) => Some(record.deadline),
            State::Held(until) => Some(until),
            _ => None,
        }
    }

    /// Returns when the slice of a running vCPU ends, for publication to its guest. None in other states.
    pub fn slice_end(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos> {
        let view = View { now, vcpus: &self.vcpus, slots: &self.slots };
        self.is_running(vcpu).then(|| self.policy.slice_end(vcpu, &view))
    }

    /// Returns the earliest deadline of all vCPUs, if any. [`Core::handle`] must be called by then.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let vcpus = (0..self.vcpus.len()).map(|ix| VcpuIndex(ix as u32));
        vcpus.filter_map(|vcpu| self.deadline(vcpu)).min()
    }

    /// Returns the vCPU on each slot.
    pub fn slots(&self) -> &[Option<VcpuIndex>] {
        &self.slots
    }

    /// Returns the policy in use.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// Returns the cost of preemptions so far. An [`Event::Sampled`] of each running vCPU brings it up to
    /// date.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Whether any vCPU waits for a slot.
    pub fn has_waiters(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a vCPU in KVM's HLT keeps its slot although another vCPU waits. To be checked before
    /// [`Event::Idle`], which takes the slot away.
    pub fn keeps_slot_in_hlt(&self, vcpu: VcpuIndex, obs: &Observation, now: Nanos) -> bool {
        let view = View { now, vcpus: &self.vcpus, slots: &self.slots };
        self.is_running(vcpu) && self.policy.keeps_slot_in_hlt(vcpu, obs, &view)
    }

    /// Returns the decisions so far.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Handles an event of `vcpu` at `now` and returns the required actions. The contract is described at
    /// [`Core`].
    pub fn handle(&mut self, vcpu: VcpuIndex, event: Event, now: Nanos) -> &[Action] {
        self.actions.clear();
        if let Event::Sampled(activity) = event {
            self.account_spinning(vcpu, &activity, now);
            return &self.actions;
        }
        self.dispatch(vcpu, event, now);
        self.wake_vcpus(now);
        self.fill_slots(now);
        self.recall_vcpus(now);
        let points = self.policy.points(now);
        if points != self.points {
            self.points = points;
            self.actions.push(Action::Points(points));
        }
        &self.actions
    }

    fn dispatch(&mut self, vcpu: VcpuIndex, event: Event, now: Nanos) {
        let running = self.is_running(vcpu);
        match event {
            Event::Exited => self.exit(vcpu, now),
            Event::Started if self.state(vcpu) == State::New => {
                self.make_ready(vcpu, Ready::Started, now);
            }
            Event::Kicked(by) => self.kick(vcpu, by, now),
            Event::KickedInHlt(by) if self.state(vcpu) == State::Idle => {
                self.kick(vcpu, by, now);
            }
            Event::Woken(obs) if self.state(vcpu) == State::Idle => {
                self.vcpus[vcpu.ix()].observed = obs;
                let is_kicked = obs.activity.is_served();
                self.make_ready(
                    vcpu,
                    if is_kicked { Ready::Kicked(None) } else { Ready::Woken },
                    now,
                );
            }
            Event::HoldEnded => {
                if matches!(self.state(vcpu), State::Held(until) if until <= now) {
                    self.make_ready(vcpu, Ready::Released, now);
                }
            }
            Event::Stopped(obs) if running => {
                self.observe(vcpu, obs, now);
                let verdict = self.ask(now, |policy, view| policy.stopped(vcpu, &obs, view));
                self.apply(vcpu, verdict, now);
            }
            Event::StoppedInHlt(obs) if running => self.stop_in_hlt(vcpu, obs, now),
            Event::Halted(obs) if running => self.halt(vcpu, obs, now),
            Event::HandedOver(to, obs) => {
                if running {
                    self.halt(vcpu, obs, now);
                }
                self.kick(to, Some(Kicker { vcpu, activity: obs.activity }), now);
            }
            Event::Yielded if running => {
                let verdict = self.ask(now, |policy, view| policy.yielded(vcpu, view));
                self.vcpus[vcpu.ix()].observed =
                    Observation { activity: LockActivity::Free, ..Observation::default() };
                self.apply(vcpu, verdict, now);
            }
            Event::SpunOut(obs) if running => {
                self.observe(vcpu, obs, now);
                if let Some(verdict) =
                    self.ask(now, |policy, view| policy.spun_out(vcpu, &obs, view))
                {
                    self.apply(vcpu, verdict, now);
                }
            }
            Event::YieldsTo(to, obs) if running => {
                self.observe(vcpu, obs, now);
                if self.state(to) == State::Ready
                    && let Some(verdict) =
                        self.ask(now, |policy, view| policy.yields_to(vcpu, to, &obs, view))
                {
                    self.apply(vcpu, verdict, now);
                }
            }
            Event::Point(point, obs) if running => {
                self.observe(vcpu, obs, now);
                if let Some(verdict) =
                    self.ask(now, |policy, view| policy.point(vcpu, point, &obs, view))
                {
                    if matches!(verdict, Verdict::Preempt(_) | Verdict::Hold(_)) {
                        self.log.at_point(self.vcpus[vcpu.ix()].slice, point);
                    }
                    self.apply(vcpu, verdict, now);
                }
            }
            Event::Idle(obs) | Event::Blocks(obs) if running => self.idle(vcpu, obs, now),
            // Stale event: the vCPU lost its slot or exited in the meantime.
            _ => {}
        }
    }

    fn ask<T>(&mut self, now: Nanos, query: impl FnOnce(&mut dyn Policy, &View<'_>) -> T) -> T {
        let view = View { now, vcpus: &self.vcpus, slots: &self.slots };
        query(self.policy.as_mut(), &view)
    }

    fn make_ready(&mut self, vcpu: VcpuIndex, cause: Ready, now: Nanos) {
        self.vcpus[vcpu.ix()].state = State::Ready;
        self.waiting += 1;
        self.accounting.begin_wait(vcpu, now);
        self.ask(now, |policy, view| policy.ready(vcpu, cause, view));
    }

    fn kick(&mut self, vcpu: VcpuIndex, by: Option<Kicker>, now: Nanos) {
        match self.state(vcpu) {
            State::Halted | State::Idle => {
                self.make_ready(vcpu, Ready::Kicked(by.map(|kicker| kicker.vcpu)), now);
                if let Some(kicker) = by.filter(|kicker| self.is_running(kicker.vcpu)) {
                    self.offer_slot(kicker, now);
                }
            }
            State::Exited => {}
            _ => self.vcpus[vcpu.ix()].pending_kick = true,
        }
    }

    /// Asks the policy whether a running vCPU that has kicked another makes way for it.
    fn offer_slot(&mut self, kicker: Kicker, now: Nanos) {
        let by = kicker.vcpu;
        let activity = kicker.activity.after_kick();
        if let Some(verdict) = self.ask(now, |policy, view| policy.kicked(by, &activity, view)) {
            self.vcpus[by.ix()].observed = Observation { activity, ..Observation::default() };
            self.apply(by, verdict, now);
        }
    }

    fn is_running(&self, vcpu: VcpuIndex) -> bool {
        matches!(self.state(vcpu), State::Running(_))
    }

    fn halt(&mut self, vcpu: VcpuIndex, obs: Observation, now: Nanos) {
        self.observe(vcpu, obs, now);
        if std::mem::take(&mut self.vcpus[vcpu.ix()].pending_kick) {
            return;
        }
        self.ask(now, |policy, view| policy.halted(vcpu, &obs, view));
        self.end_slice(vcpu, SliceEnd::Halted, now);
        self.vcpus[vcpu.ix()].state = State::Halted;
    }

    /// Handles a stop in KVM's HLT. Losing the slot is then no preemption, since the vCPU needs no CPU: it
    /// becomes idle if the policy wants the slot for another vCPU.
    fn stop_in_hlt(&mut self, vcpu: VcpuIndex, obs: Observation, now: Nanos) {
        match self.ask(now, |policy, view| policy.stopped_in_hlt(vcpu, &obs, view)) {
            Verdict::Preempt(_) | Verdict::Hold(_) => self.idle(vcpu, obs, now),
            verdict => self.apply(vcpu, verdict, now),
        }
    }

    fn idle(&mut self, vcpu: VcpuIndex, obs: Observation, now: Nanos) {
        self.vcpus[vcpu.ix()].observed = obs;
        if matches!(obs.activity, LockActivity::Waiting { .. }) {
            self.ask(now, |policy, view| policy.halted(vcpu, &obs, view));
        }
        self.end_slice(vcpu, SliceEnd::Idle, now);
        self.vcpus[vcpu.ix()].state = State::Idle;
    }

    fn exit(&mut self, vcpu: VcpuIndex, now: Nanos) {
        match self.state(vcpu) {
            State::Running(_) => self.end_slice(vcpu, SliceEnd::Exited, now),
            State::Ready => {
                self.waiting -= 1;
                self.policy.exited(vcpu);
            }
            _ => {}
        }
        self.vcpus[vcpu.ix()].state = State::Exited;
        self.accounting.end_wait(vcpu, now);
    }

    /// Records the state of a running vCPU at `now`.
    fn observe(&mut self, vcpu: VcpuIndex, obs: Observation, now: Nanos) {
        self.vcpus[vcpu.ix()].observed = obs;
        self.account_spinning(vcpu, &obs.activity, now);
    }

    fn apply(&mut self, vcpu: VcpuIndex, verdict: Verdict, now: Nanos) {
        match verdict {
            Verdict::Stay(until) => self.vcpus[vcpu.ix()].deadline = until,
            Verdict::Ask(until) => {
                self.vcpus[vcpu.ix()].deadline = until;
                self.actions.push(Action::Ask(vcpu));
            }
            Verdict::Preempt(Reason::Yield) => {
                self.accounting.count_yield();
                self.end_slice(vcpu, SliceEnd::Yield, now);
                self.make_ready(vcpu, Ready::Yielded, now);
            }
            Verdict::Preempt(cause) => {
                let end = match cause {
                    Reason::Slice | Reason::Yield => SliceEnd::Expired,
                    Reason::Grace => SliceEnd::Grace,
                    Reason::Spun => SliceEnd::Spun,
                    Reason::Injected => SliceEnd::Injected,
                    Reason::MadeWay => SliceEnd::MadeWay,
                };
                self.preempt(vcpu, end, now);
                self.make_ready(vcpu, Ready::Preempted, now);
            }
            Verdict::Hold(until) => {
                self.preempt(vcpu, SliceEnd::Injected, now);
                self.vcpus[vcpu.ix()].state = State::Held(until);
                self.accounting.begin_wait(vcpu, now);
            }
        }
    }

    fn preempt(&mut self, vcpu: VcpuIndex, end: SliceEnd, now: Nanos) {
        let &Vcpu { observed, member, state, .. } = &self.vcpus[vcpu.ix()];
        if let State::Running(slot) = state {
            let (off, spun) = (None, Nanos::ZERO);
            let preemption = Preemption { at: now, vcpu, slot, end, observed, off, spun };
            self.accounting.record_preemption(preemption, member.vm);
        }
        self.end_slice(vcpu, end, now);
    }

    /// Ends the time slice and frees the slot. The caller sets the new state.
    fn end_slice(&mut self, vcpu: VcpuIndex, end: SliceEnd, now: Nanos) {
        let record = &mut self.vcpus[vcpu.ix()];
        let ran = now.since(record.granted_at);
        let is_free = matches!(record.observed.activity, LockActivity::Free);
        let free = is_free && self.policy.ends_out_of_locks();
        self.log.end(record.slice, end, ran, free);
        if let State::Running(slot) = record.state {
            self.slots[slot.0 as usize] = None;
            self.last_freed = slot.0 as usize;
        }
        self.ask(now, |policy, view| policy.slice_ended(vcpu, end, ran, view));
    }

    fn wake_vcpus(&mut self, now: Nanos) {
        while let Some(vcpu) = self.ask(now, |policy, view| policy.vcpu_to_wake(view)) {
            if !matches!(self.state(vcpu), State::Halted | State::Idle) {
                return;
            }
            self.make_ready(vcpu, Ready::Woken, now);
        }
    }

    fn recall_vcpus(&mut self, now: Nanos) {
        while let Some(vcpu) = self.ask(now, |policy, view| policy.vcpu_to_recall(view)) {
            if self.is_running(vcpu) {
                self.vcpus[vcpu.ix()].deadline = now;
                self.actions.push(Action::Recall(vcpu));
            }
        }
    }

    fn fill_slots(&mut self, now: Nanos) {
        let mut has_resumed_blocker = false;
        let (first, count) = (self.last_freed, self.slots.len());
        for ix in (first..count).chain(0..first) {
            let slot = SlotId(ix as u32);
            if self.slots[ix].is_some() {
                continue;
            }
            let Some(pick) = self.ask(now, |policy, view| policy.pick(slot, view)) else {
                continue;
            };
            let vcpu = pick.vcpu;
            // A policy that picks a vCPU that is not ready has a bug. The slot stays idle then, as the vCPU
            // could otherwise get two slots.
            debug_assert_eq!(self.state(vcpu), State::Ready, "{:?} picked {vcpu:?}", self.policy);
            if self.state(vcpu) == State::Ready {
                has_resumed_blocker |= self.accounting.may_block_others(vcpu);
                self.grant(slot, pick, now);
            }
        }
        if has_resumed_blocker {
            // vCPUs that spun because of the resumed vCPU have wasted their time until now.
            let occupants = self.slots.iter().flatten();
            let running = occupants.filter(|vcpu| self.vcpus[vcpu.ix()].granted_at < now);
            self.actions.extend(running.map(|vcpu| Action::Sample(*vcpu)));
        }
    }

    fn grant(&mut self, slot: SlotId, pick: Pick, now: Nanos) {
        let Pick { vcpu, deadline, ask } = pick;
        self.accounting.record_resume(vcpu, now);
        self.accounting.end_wait(vcpu, now);
        self.accounting.count_grant();
        self.slots[slot.0 as usize] = Some(vcpu);
        self.waiting -= 1;
        let record = &mut self.vcpus[vcpu.ix()];
        (record.state, record.granted_at, record.deadline) = (State::Running(slot), now, deadline);
        record.slice = self.log.begin(vcpu, slot, now);
        self.actions.push(Action::Grant(vcpu, slot));
        if ask {
            self.actions.push(Action::Ask(vcpu));
        }
    }

    fn account_spinning(&mut self, vcpu: VcpuIndex, activity: &LockActivity, now: Nanos) {
        let &Vcpu { member, granted_at, .. } = &self.vcpus[vcpu.ix()];
        if let LockActivity::Waiting { since, halted: false, .. } = *activity
            && since != Nanos::ZERO
            && self.is_running(vcpu)
        {
            self.accounting.record_spinning(vcpu, member.vm, activity, since.max(granted_at), now);
        }
    }
}
