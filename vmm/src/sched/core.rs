//! The core: who runs where, decided by a policy; every rule that no policy may break is here.

use serde::{Deserialize, Serialize};

use super::{
    accounting::{Accounting, Preemption},
    event::{Action, Event, Kicker, LockActivity, Observation, VcpuIndex},
    log::{Entry, Log, TurnEnd},
    policy::{Pick, Policy, Ready, Verdict, View, Why},
};
use crate::units::{Nanos, SlotId};

/// One vCPU of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Number of its VM.
    pub vm: u32,
    /// Its share; 1024 is the usual one.
    pub weight: u32,
}

/// What a vCPU is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its thread has not come yet.
    New,
    /// Waits for a slot.
    Ready,
    /// Has this slot.
    Running(SlotId),
    /// Kept off until then.
    Held(Nanos),
    /// Halts until it is kicked.
    Halted,
    /// Sits in KVM's HLT.
    Idle,
    /// Has left.
    Gone,
}

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) member: Member,
    pub(super) state: State,
    /// Of the last stop.
    pub(super) look: Observation,
    /// When its turn began.
    pub(super) since: Nanos,
    pub(super) deadline: Nanos,
    /// A kick overtook the halt that it is for.
    kick: bool,
    turn: Entry,
}

/// The scheduler: events and the time in, actions out.
#[derive(Debug)]
pub struct Core {
    vcpus: Box<[Vcpu]>,
    slots: Box<[Option<VcpuIndex>]>,
    /// vCPUs that are [`State::Ready`].
    waiting: u32,
    policy: Box<dyn Policy>,
    points: u32,
    accounting: Accounting,
    log: Log,
    actions: Vec<Action>,
    /// The slot that was left last: its CPU is the one that sleeps least.
    warm: usize,
}

impl Core {
    /// A schedule of `members` on `slots` slots, none of which runs yet.
    pub fn new(members: &[Member], slots: usize, policy: Box<dyn Policy>, log: Log) -> Self {
        let vcpu = |member: &Member| Vcpu {
            member: *member,
            state: State::New,
            look: Observation::default(),
            since: Nanos::ZERO,
            deadline: Nanos::NEVER,
            kick: false,
            turn: Entry::default(),
        };
        Self {
            vcpus: members.iter().map(vcpu).collect(),
            slots: vec![None; slots].into(),
            waiting: 0,
            policy,
            points: 0,
            accounting: Accounting::new(members.len()),
            log,
            // A step grants each slot, asks its vCPU and samples it at most once, and tells little else.
            actions: Vec::with_capacity(3 * slots + 4),
            warm: 0,
        }
    }

    /// What it is at.
    pub fn state(&self, vcpu: VcpuIndex) -> State {
        self.vcpus[vcpu.ix()].state
    }

    /// When it is to come out, if it runs; when it is to be let go, if it is held.
    pub fn deadline(&self, vcpu: VcpuIndex) -> Option<Nanos> {
        let this = &self.vcpus[vcpu.ix()];
        match this.state {
            State::Running(_) => Some(this.deadline),
            State::Held(until) => Some(until),
            _ => None,
        }
    }

    /// The next moment at which something is due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let all = (0..self.vcpus.len()).map(|ix| VcpuIndex(ix as u32));
        all.filter_map(|vcpu| self.deadline(vcpu)).min()
    }

    /// Who has each slot.
    pub fn slots(&self) -> &[Option<VcpuIndex>] {
        &self.slots
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// What preemptions have cost.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Does a vCPU wait for a slot?
    pub fn is_wanted(&self) -> bool {
        self.waiting > 0
    }

    /// Does a vCPU that sits in KVM's HLT keep its slot there, though another vCPU wants one? Asked
    /// before [`Event::Idle`], which takes the slot from it.
    pub fn keeps_slot_in_hlt(&self, vcpu: VcpuIndex, look: &Observation, now: Nanos) -> bool {
        let view = View { now, vcpus: &self.vcpus, slots: &self.slots };
        self.runs(vcpu) && self.policy.keeps_slot_in_hlt(vcpu, look, &view)
    }

    /// What was decided.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Takes an event of `vcpu` at `now`, which never goes back; gives what is to be done.
    pub fn handle(&mut self, vcpu: VcpuIndex, event: Event, now: Nanos) -> &[Action] {
        self.actions.clear();
        if let Event::Sampled(activity) = event {
            self.account_spinning(vcpu, &activity, now);
            return &self.actions;
        }
        self.take(vcpu, event, now);
        self.wake_some(now);
        self.fill_slots(now);
        let points = self.policy.points(now);
        if points != self.points {
            self.points = points;
            self.actions.push(Action::Points(points));
        }
        &self.actions
    }

    fn take(&mut self, vcpu: VcpuIndex, event: Event, now: Nanos) {
        let running = self.runs(vcpu);
        match event {
            Event::Exited => self.exit(vcpu, now),
            Event::Started if self.state(vcpu) == State::New => {
                self.make_ready(vcpu, Ready::Started, now);
            }
            Event::Kicked(by) => self.kick(vcpu, by, now),
            Event::KickedInHlt(by) if self.state(vcpu) == State::Idle => {
                self.kick(vcpu, by, now);
            }
            Event::Woken(look) if self.state(vcpu) == State::Idle => {
                self.vcpus[vcpu.ix()].look = look;
                let is_kicked = look.activity.is_served();
                self.make_ready(
                    vcpu,
                    if is_kicked { Ready::Kicked(None) } else { Ready::Woken },
                    now,
                );
            }
            Event::HoldOver => {
                if matches!(self.state(vcpu), State::Held(until) if until <= now) {
                    self.make_ready(vcpu, Ready::Released, now);
                }
            }
            Event::Stopped(look) if running => {
                self.saw(vcpu, look, now);
                let verdict = self.ask(now, |policy, view| policy.stopped(vcpu, &look, view));
                self.carry_out(vcpu, verdict, now);
            }
            Event::StoppedInHlt(look) if running => self.stop_in_hlt(vcpu, look, now),
            Event::Halted(look) if running => self.halt(vcpu, look, now),
            Event::HandedOver(to, look) => {
                if running {
                    self.halt(vcpu, look, now);
                }
                self.kick(to, Some(Kicker { vcpu, activity: look.activity }), now);
            }
            Event::Yielded if running => {
                let verdict = self.ask(now, |policy, view| policy.yielded(vcpu, view));
                self.vcpus[vcpu.ix()].look =
                    Observation { activity: LockActivity::Free, ..Observation::default() };
                self.carry_out(vcpu, verdict, now);
            }
            Event::SpunOut(look) if running => {
                self.saw(vcpu, look, now);
                if let Some(verdict) =
                    self.ask(now, |policy, view| policy.spun_out(vcpu, &look, view))
                {
                    self.carry_out(vcpu, verdict, now);
                }
            }
            Event::Point(point, look) if running => {
                self.saw(vcpu, look, now);
                if let Some(verdict) =
                    self.ask(now, |policy, view| policy.point(vcpu, point, &look, view))
                {
                    if matches!(verdict, Verdict::Preempt(_) | Verdict::Hold(_)) {
                        self.log.at_point(self.vcpus[vcpu.ix()].turn, point);
                    }
                    self.carry_out(vcpu, verdict, now);
                }
            }
            Event::Idle(look) if running => self.idle(vcpu, look, now),
            // What is true no more: it lost its slot, or left, before it could say so.
            _ => {}
        }
    }

    fn ask<T>(&mut self, now: Nanos, question: impl FnOnce(&mut dyn Policy, &View<'_>) -> T) -> T {
        let view = View { now, vcpus: &self.vcpus, slots: &self.slots };
        question(self.policy.as_mut(), &view)
    }

    fn make_ready(&mut self, vcpu: VcpuIndex, why: Ready, now: Nanos) {
        self.vcpus[vcpu.ix()].state = State::Ready;
        self.waiting += 1;
        self.ask(now, |policy, view| policy.ready(vcpu, why, view));
    }

    fn kick(&mut self, vcpu: VcpuIndex, by: Option<Kicker>, now: Nanos) {
        match self.state(vcpu) {
            State::Halted | State::Idle => {
                self.make_ready(vcpu, Ready::Kicked(by.map(|kicker| kicker.vcpu)), now);
                if let Some(kicker) = by.filter(|kicker| self.runs(kicker.vcpu)) {
                    self.make_way(kicker, now);
                }
            }
            State::Gone => {}
            _ => self.vcpus[vcpu.ix()].kick = true,
        }
    }

    /// A running vCPU has kicked another.
    fn make_way(&mut self, kicker: Kicker, now: Nanos) {
        let by = kicker.vcpu;
        let activity = match kicker.activity {
            // This is the kick that it announced. No waiter depends on it any longer.
            LockActivity::Kicking { .. } => LockActivity::Free,
            activity => activity,
        };
        if let Some(verdict) = self.ask(now, |policy, view| policy.makes_way(by, &activity, view)) {
            self.vcpus[by.ix()].look = Observation { activity, ..Observation::default() };
            self.carry_out(by, verdict, now);
        }
    }

    fn runs(&self, vcpu: VcpuIndex) -> bool {
        matches!(self.state(vcpu), State::Running(_))
    }

    fn halt(&mut self, vcpu: VcpuIndex, look: Observation, now: Nanos) {
        self.saw(vcpu, look, now);
        if std::mem::take(&mut self.vcpus[vcpu.ix()].kick) {
            return;
        }
        self.ask(now, |policy, view| policy.halted(vcpu, &look, view));
        self.end_turn(vcpu, TurnEnd::Halted, now);
        self.vcpus[vcpu.ix()].state = State::Halted;
    }

    /// Its turn may be over, and nothing of it is preempted: what it waits for, it waits for without
    /// a CPU. If the policy wants the slot for another vCPU, it has it.
    fn stop_in_hlt(&mut self, vcpu: VcpuIndex, look: Observation, now: Nanos) {
        let at_nothing = Observation { activity: LockActivity::Free, ..look };
        match self.ask(now, |policy, view| policy.stopped(vcpu, &at_nothing, view)) {
            Verdict::Stay(until) | Verdict::Ask(until) => self.vcpus[vcpu.ix()].deadline = until,
            Verdict::Preempt(_) | Verdict::Hold(_) => self.idle(vcpu, look, now),
        }
    }

    fn idle(&mut self, vcpu: VcpuIndex, look: Observation, now: Nanos) {
        self.vcpus[vcpu.ix()].look = look;
        if matches!(look.activity, LockActivity::Waiting { .. }) {
            self.ask(now, |policy, view| policy.halted(vcpu, &look, view));
        }
        self.end_turn(vcpu, TurnEnd::Idle, now);
        self.vcpus[vcpu.ix()].state = State::Idle;
    }

    fn exit(&mut self, vcpu: VcpuIndex, now: Nanos) {
        match self.state(vcpu) {
            State::Running(_) => self.end_turn(vcpu, TurnEnd::Exited, now),
            State::Ready => {
                self.waiting -= 1;
                self.policy.gone(vcpu);
            }
            _ => {}
        }
        self.vcpus[vcpu.ix()].state = State::Gone;
    }

    /// Takes note of what a running vCPU did at this moment.
    fn saw(&mut self, vcpu: VcpuIndex, look: Observation, now: Nanos) {
        self.vcpus[vcpu.ix()].look = look;
        self.account_spinning(vcpu, &look.activity, now);
    }

    fn carry_out(&mut self, vcpu: VcpuIndex, verdict: Verdict, now: Nanos) {
        match verdict {
            Verdict::Stay(until) => self.vcpus[vcpu.ix()].deadline = until,
            Verdict::Ask(until) => {
                self.vcpus[vcpu.ix()].deadline = until;
                self.actions.push(Action::Ask(vcpu));
            }
            Verdict::Preempt(Why::Yield) => {
                self.accounting.yielded();
                self.end_turn(vcpu, TurnEnd::Yield, now);
                self.make_ready(vcpu, Ready::Yielded, now);
            }
            Verdict::Preempt(why) => {
                let end = match why {
                    Why::Slice | Why::Yield => TurnEnd::Slice,
                    Why::Grace => TurnEnd::Grace,
                    Why::Spun => TurnEnd::Spun,
                    Why::Injected => TurnEnd::Injected,
                    Why::MadeWay => TurnEnd::MadeWay,
                };
                self.preempt(vcpu, end, now);
                self.make_ready(vcpu, Ready::Preempted, now);
            }
            Verdict::Hold(until) => {
                self.preempt(vcpu, TurnEnd::Injected, now);
                self.vcpus[vcpu.ix()].state = State::Held(until);
            }
        }
    }

    fn preempt(&mut self, vcpu: VcpuIndex, end: TurnEnd, now: Nanos) {
        let &Vcpu { look, member, state, .. } = &self.vcpus[vcpu.ix()];
        if let State::Running(slot) = state {
            let (off, spun) = (None, Nanos::ZERO);
            let preemption = Preemption { at: now, vcpu, slot, end, look, off, spun };
            self.accounting.preempted(preemption, member.vm);
        }
        self.end_turn(vcpu, end, now);
    }

    /// Frees its slot. The caller gives it a new state.
    fn end_turn(&mut self, vcpu: VcpuIndex, end: TurnEnd, now: Nanos) {
        let this = &mut self.vcpus[vcpu.ix()];
        let ran = now.since(this.since);
        self.log.end(this.turn, end, ran);
        if let State::Running(slot) = this.state {
            self.slots[slot.0 as usize] = None;
            self.warm = slot.0 as usize;
        }
        self.policy.turn_over(vcpu, end, ran);
    }

    fn wake_some(&mut self, now: Nanos) {
        while let Some(vcpu) = self.ask(now, |policy, view| policy.wakes(view)) {
            if !matches!(self.state(vcpu), State::Halted | State::Idle) {
                return;
            }
            self.make_ready(vcpu, Ready::Woken, now);
        }
    }

    fn fill_slots(&mut self, now: Nanos) {
        let mut has_unblocked = false;
        let (warm, all) = (self.warm, self.slots.len());
        for ix in (warm..all).chain(0..warm) {
            let slot = SlotId(ix as u32);
            if self.slots[ix].is_some() {
                continue;
            }
            let Some(pick) = self.ask(now, |policy, view| policy.pick(slot, view)) else {
                continue;
            };
            let vcpu = pick.vcpu;
            // A policy that picks whom it may not is a bug, and must not become a vCPU on two
            // slots: the slot stays idle instead.
            debug_assert_eq!(self.state(vcpu), State::Ready, "{:?} picked {vcpu:?}", self.policy);
            if self.state(vcpu) == State::Ready {
                has_unblocked |= self.accounting.blocks(vcpu);
                self.grant(slot, pick, now);
            }
        }
        if has_unblocked {
            // Those that spun for its lock have done so for nothing until now.
            let all = self.slots.iter().flatten();
            let ran = all.filter(|vcpu| self.vcpus[vcpu.ix()].since < now);
            self.actions.extend(ran.map(|vcpu| Action::Sample(*vcpu)));
        }
    }

    fn grant(&mut self, slot: SlotId, pick: Pick, now: Nanos) {
        let Pick { vcpu, until, asked } = pick;
        self.accounting.back(vcpu, now);
        self.accounting.granted();
        self.slots[slot.0 as usize] = Some(vcpu);
        self.waiting -= 1;
        let this = &mut self.vcpus[vcpu.ix()];
        (this.state, this.since, this.deadline) = (State::Running(slot), now, until);
        this.turn = self.log.begin(vcpu, slot, now);
        self.actions.push(Action::Grant(vcpu, slot));
        if asked {
            self.actions.push(Action::Ask(vcpu));
        }
    }

    /// A running vCPU did this with locks until `now`.
    fn account_spinning(&mut self, vcpu: VcpuIndex, activity: &LockActivity, now: Nanos) {
        let &Vcpu { member, since: began, .. } = &self.vcpus[vcpu.ix()];
        if let LockActivity::Waiting { since, halted: false, .. } = *activity
            && self.runs(vcpu)
        {
            self.accounting.spun(vcpu, member.vm, activity, since.max(began), now);
        }
    }
}
