//! A schedule under a random history that real threads could produce. Every rule of the core is
//! checked at each step.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::cell::RefCell;

#[cfg(test)]
use proptest::prelude::*;

use super::{core::State, log::Log, policy::Setup, recording::Recording, *};
use base::units::{Nanos, SlotId};

/// The slice of these schedules.
pub const SLICE: Nanos = Nanos(1_000);

/// A next step, taken only if it is possible. Indices of vCPUs and activities wrap around.
#[derive(Debug, Clone, Copy)]
pub enum WorldStep {
    /// The earliest deadline passes, and its vCPU leaves the guest with this activity.
    Due(usize),
    /// A vCPU leaves the guest spuriously.
    Spurious(usize),
    /// A running vCPU's latch is parked; its `Halted` may come later.
    Park(usize),
    /// The delayed `Halted` event of a parked vCPU.
    Halted(usize),
    /// The second vCPU kicks the first, which is parked.
    Kick(usize, usize),
    /// The first vCPU halts and kicks the second.
    HandOver(usize, usize),
    /// A vCPU gives up its slot.
    Yield(usize),
    /// A vCPU has spun out, with this activity.
    Spin(usize, usize),
    /// The first vCPU offers the rest of its slice to the second.
    YieldTo(usize, usize),
    /// A vCPU is at a point of the lock protocol.
    Point(usize),
    /// A vCPU halts in KVM, with this activity.
    Idle(usize),
    /// The thread of a vCPU blocks, with this activity.
    Wait(usize),
    /// A vCPU in KVM's HLT is stopped.
    StopInHlt(usize),
    /// The second vCPU kicks the first, which may be in KVM's HLT.
    KickInHlt(usize, usize),
    /// A vCPU leaves KVM's HLT, or its thread no longer blocks.
    Woken(usize),
    /// The thread of a vCPU exits.
    Exit(usize),
    /// Time passes, in nanoseconds.
    Pass(u64),
}

#[cfg(test)]
pub(super) fn step() -> impl Strategy<Value = WorldStep> {
    let index = || 0..64_usize;
    prop_oneof![
        20 => index().prop_map(WorldStep::Due),
        4 => index().prop_map(WorldStep::Spurious),
        8 => index().prop_map(WorldStep::Park),
        8 => index().prop_map(WorldStep::Halted),
        8 => (index(), index()).prop_map(|(a, b)| WorldStep::Kick(a, b)),
        4 => (index(), index()).prop_map(|(a, b)| WorldStep::HandOver(a, b)),
        4 => index().prop_map(WorldStep::Yield),
        4 => (index(), index()).prop_map(|(a, b)| WorldStep::Spin(a, b)),
        4 => (index(), index()).prop_map(|(a, b)| WorldStep::YieldTo(a, b)),
        2 => index().prop_map(WorldStep::Point),
        3 => index().prop_map(WorldStep::Idle),
        2 => index().prop_map(WorldStep::Wait),
        3 => index().prop_map(WorldStep::StopInHlt),
        3 => (index(), index()).prop_map(|(a, b)| WorldStep::KickInHlt(a, b)),
        3 => index().prop_map(WorldStep::Woken),
        1 => index().prop_map(WorldStep::Exit),
        4 => (0..3_000_u64).prop_map(WorldStep::Pass),
    ]
}

const ACTIVITIES: [LockActivity; 5] = [
    LockActivity::Unknown,
    LockActivity::Free,
    LockActivity::Entering,
    LockActivity::Holding { lock: Some(LockId(1)), depth: 1 },
    LockActivity::Waiting {
        lock: LockId(1),
        ticket: 4,
        distance: Some(1),
        since: Nanos(0),
        halted: false,
    },
];

fn obs(which: usize) -> Observation {
    Observation { mode: Mode::Unknown, activity: ACTIVITIES[which % ACTIVITIES.len()] }
}

/// A schedule and the state of its vCPUs' threads.
pub struct World {
    /// The schedule.
    pub core: Core,
    /// The current time.
    pub now: Nanos,
    parked: Vec<bool>,
    /// By vCPU: a kick found it parked before its `Halted`, which is still owed.
    owed: Vec<bool>,
    conserving: bool,
    replays: bool,
    points: RefCell<u32>,
    /// All events of the core with their actions.
    pub history: Vec<(VcpuIndex, Event, Nanos, Vec<Action>)>,
}

/// Creates a core whose vCPUs belong to three VMs with different weights. Also returns whether its
/// policy is work-conserving.
pub fn make_core(
    policy: &str,
    vcpus: usize,
    slots: usize,
    recording: Option<&Recording>,
) -> (Core, bool) {
    let vms: Vec<u32> = (0..vcpus).map(|ix| (ix % 3) as u32).collect();
    let setup = Setup { vms: &vms, slots, slice: SLICE, seed: 7, recording };
    let policy = policy.parse::<PolicySpec>().unwrap().make(&setup).unwrap();
    let members: Vec<Member> =
        vms.iter().map(|vm| Member { vm: *vm, weight: 512 * (vm + 1) }).collect();
    let conserving = policy.is_work_conserving();
    (Core::new(&members, slots, policy, Log::new()), conserving)
}

impl World {
    /// Creates a schedule whose vCPUs have started.
    pub fn new(policy: &str, vcpus: usize, slots: usize, recording: Option<&Recording>) -> Self {
        let (core, conserving) = make_core(policy, vcpus, slots, recording);
        let (parked, owed) = (vec![false; vcpus], vec![false; vcpus]);
        let (now, points) = (Nanos(1), RefCell::default());
        let replays = recording.is_some();
        let history = Vec::new();
        let mut world = Self { core, now, parked, owed, conserving, replays, points, history };
        (0..vcpus).for_each(|ix| world.tell(ix, Event::Started));
        world
    }

    fn handle(&mut self, vcpu: VcpuIndex, event: Event) -> Vec<Action> {
        let actions = self.core.handle(vcpu, event, self.now).to_vec();
        self.history.push((vcpu, event, self.now, actions.clone()));
        actions
    }

    /// Reports an event of vCPU `ix` and checks the resulting actions.
    pub fn tell(&mut self, ix: usize, event: Event) {
        let free: Vec<bool> = self.core.slots().iter().map(Option::is_none).collect();
        let before: Vec<State> = self.states();
        let actions = self.handle(VcpuIndex(ix as u32), event);
        for action in actions {
            match action {
                Action::Grant(vcpu, slot) => {
                    let was = before[vcpu.ix()];
                    // The slot was free before, or freed by the event's vCPU or by the kicker.
                    let kicker = match event {
                        Event::Kicked(Some(by)) | Event::KickedInHlt(Some(by)) => {
                            before[by.vcpu.ix()]
                        }
                        _ => State::New,
                    };
                    let freed = [before[ix], kicker].contains(&State::Running(slot));
                    assert!(free[slot.0 as usize] || freed);
                    assert_eq!(self.core.state(vcpu), State::Running(slot));
                    assert!(!matches!(was, State::Exited), "{vcpu:?} has left");
                    if was == State::Halted {
                        let kicked = match event {
                            Event::Kicked(_) => vcpu.ix() == ix,
                            Event::HandedOver(to, _) => vcpu == to,
                            _ => false,
                        };
                        assert!(kicked || self.replays, "{vcpu:?} was not kicked");
                        // After a spurious wakeup, its thread is no longer parked.
                        self.parked[vcpu.ix()] = false;
                    }
                }
                Action::Points(mask) => *self.points.borrow_mut() = mask,
                Action::Ask(vcpu) => {
                    assert!(matches!(self.core.state(vcpu), State::Running(_)));
                }
                Action::Recall(vcpu) => {
                    assert!(matches!(self.core.state(vcpu), State::Running(_)));
                    assert_eq!(self.core.deadline(vcpu), Some(self.now));
                }
                Action::Sample(vcpu) => {
                    assert!(matches!(self.core.state(vcpu), State::Running(_)));
                    let sampled = Event::Sampled(obs(vcpu.ix() + ix).activity);
                    assert_eq!(self.handle(vcpu, sampled), [], "an account decides nothing");
                }
            }
        }
        self.check();
    }

    /// Returns the state of each vCPU.
    pub fn states(&self) -> Vec<State> {
        (0..self.parked.len()).map(|ix| self.core.state(VcpuIndex(ix as u32))).collect()
    }

    /// Checks the rules that hold at any moment.
    pub fn check(&self) {
        let states = self.states();
        for (ix, occupant) in self.core.slots().iter().enumerate() {
            let slot = SlotId(ix as u32);
            let running: Vec<usize> =
                (0..states.len()).filter(|vcpu| states[*vcpu] == State::Running(slot)).collect();
            assert!(running.len() <= 1, "{running:?} share {slot}");
            assert_eq!(running.first().copied(), occupant.map(VcpuIndex::ix));
        }
        let waits = states.contains(&State::Ready);
        assert_eq!(self.core.has_waiters(), waits);
        let idle = self.core.slots().iter().any(Option::is_none);
        assert!(!(self.conserving && waits && idle), "a slot idles while a vCPU waits");
    }

    /// Whether vCPU `ix` has a slot.
    pub fn runs(&self, ix: usize) -> bool {
        matches!(self.core.state(VcpuIndex(ix as u32)), State::Running(_))
    }

    /// Returns vCPU `by` as a kicker with some lock activity, if it can act.
    fn kicker(&self, by: usize) -> Option<Kicker> {
        let ix = by % self.parked.len();
        let kicker = Kicker { vcpu: VcpuIndex(ix as u32), activity: obs(by).activity };
        self.acts(ix).then_some(kicker)
    }

    /// Whether vCPU `ix` can act: it is running and not about to halt.
    pub fn acts(&self, ix: usize) -> bool {
        self.runs(ix) && !self.parked[ix] && !self.owed[ix]
    }

    /// Advances to the earliest deadline and reports its event.
    pub fn due(&mut self, which: usize) {
        let vcpus = (0..self.parked.len()).map(|ix| VcpuIndex(ix as u32));
        let next = vcpus.filter_map(|v| Some((self.core.deadline(v)?, v))).min();
        let Some((at, vcpu)) = next.filter(|(at, _)| *at < Nanos::NEVER) else { return };
        self.now = self.now.max(at);
        if self.parked[vcpu.ix()] || self.owed[vcpu.ix()] {
            // The vCPU's thread is about to halt, and reports that first.
            return self.step(WorldStep::Halted(vcpu.ix()));
        }
        match self.core.state(vcpu) {
            State::Held(_) => self.tell(vcpu.ix(), Event::HoldEnded),
            _ => self.tell(vcpu.ix(), Event::Stopped(obs(which))),
        }
    }

    /// Takes a step if it is possible.
    pub fn step(&mut self, step: WorldStep) {
        let n = self.parked.len();
        match step {
            WorldStep::Due(which) => self.due(which),
            WorldStep::Pass(span) => self.now = self.now.after(Nanos(span)),
            WorldStep::Spurious(v) if self.acts(v % n) => self.tell(v % n, Event::Stopped(obs(v))),
            WorldStep::Park(v) if self.acts(v % n) => self.parked[v % n] = true,
            WorldStep::Halted(v) => {
                let v = v % n;
                if self.runs(v) && (self.parked[v] || self.owed[v]) {
                    let owed = self.owed[v];
                    self.tell(v, Event::Halted(obs(4)));
                    let woken = self.replays && !owed;
                    assert!(woken || self.runs(v) == owed, "an early kick ends a halt at once");
                    if owed {
                        self.owed[v] = false;
                    }
                }
            }
            WorldStep::Kick(v, by) if self.parked[v % n] => {
                self.parked[v % n] = false;
                self.owed[v % n] = self.runs(v % n);
                // A vCPU that is about to halt kicks no other.
                let by = self.kicker(by);
                self.tell(v % n, Event::Kicked(by));
                assert_ne!(self.states()[v % n], State::Halted, "a kicked vCPU stays halted");
            }
            WorldStep::HandOver(v, to) if self.acts(v % n) && self.parked[to % n] => {
                let (v, to) = (v % n, to % n);
                self.parked[to] = false;
                self.owed[to] = self.runs(to);
                self.parked[v] = true;
                self.tell(v, Event::HandedOver(VcpuIndex(to as u32), obs(4)));
                assert!(self.replays || !self.runs(v), "a vCPU that hands over halts");
                assert_ne!(self.states()[to], State::Halted, "a kicked vCPU stays halted");
            }
            WorldStep::Yield(v) if self.acts(v % n) => self.tell(v % n, Event::Yielded),
            WorldStep::Spin(v, l) if self.acts(v % n) => self.tell(v % n, Event::SpunOut(obs(l))),
            WorldStep::YieldTo(v, to) if self.acts(v % n) => {
                let to = VcpuIndex((to % n) as u32);
                self.tell(v % n, Event::YieldsTo(to, obs(v)));
            }
            WorldStep::Point(v) if self.acts(v % n) && *self.points.borrow() != 0 => {
                let point = hypercalls::telemetry::Point::Critical;
                self.tell(v % n, Event::Point(point, obs(3)));
            }
            WorldStep::Idle(v) if self.acts(v % n) => self.tell(v % n, Event::Idle(obs(v))),
            WorldStep::Wait(v) if self.acts(v % n) => self.tell(v % n, Event::Blocks(obs(v))),
            WorldStep::StopInHlt(v) if self.acts(v % n) => {
                self.tell(v % n, Event::StoppedInHlt(obs(v)));
            }
            WorldStep::KickInHlt(v, by) => {
                let by = self.kicker(by);
                self.tell(v % n, Event::KickedInHlt(by));
                assert_ne!(self.states()[v % n], State::Idle, "a kicked vCPU stays in HLT");
            }
            WorldStep::Woken(v) => self.tell(v % n, Event::Woken(obs(v))),
            WorldStep::Exit(v) if self.acts(v % n) => self.tell(v % n, Event::Exited),
            _ => {}
        }
    }
}
