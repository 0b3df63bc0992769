//! Policies: who gets a free slot, for how long, and what becomes of who comes out of it.
//!
//! A new policy is one file that implements [`Policy`] and one line in [`POLICIES`].

mod deferred;
mod directed_yield;
mod fair;
mod gang;
mod inject;
mod kick_boost;
mod point;
mod queue;
mod random;
mod replay;
mod rr;
mod spec;

use std::fmt::Debug;

use hypercalls::telemetry::Point;

use super::{
    core::{State, Vcpu},
    event::{LockActivity, Observation, VcpuIndex},
};
use crate::{
    sched::{log::TurnEnd, recording::Recording},
    units::{Nanos, SlotId},
};

pub use inject::Hits;
pub use spec::{POLICIES, PolicySpec};

/// The slice when nobody says otherwise: near that of Linux's own scheduler.
pub const DEFAULT_SLICE: Nanos = Nanos::millis(4);

/// What every policy is made from.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The VM of each vCPU.
    pub vms: &'a [u32],
    /// Slots.
    pub slots: usize,
    /// How long a turn lasts.
    pub slice: Nanos,
    /// For whatever is random.
    pub seed: u64,
    /// What to replay, for the policy that does.
    pub recording: Option<&'a Recording>,
}

/// The schedule as a policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time.
    pub now: Nanos,
    pub(super) vcpus: &'a [Vcpu],
    pub(super) slots: &'a [Option<VcpuIndex>],
}

impl View<'_> {
    /// The slot it runs on.
    pub fn slot_of(&self, vcpu: VcpuIndex) -> Option<SlotId> {
        match self.vcpus[vcpu.ix()].state {
            State::Running(slot) => Some(slot),
            _ => None,
        }
    }

    /// Does it halt, in the VMM or in KVM?
    pub fn is_halted(&self, vcpu: VcpuIndex) -> bool {
        matches!(self.vcpus[vcpu.ix()].state, State::Halted | State::Idle)
    }

    /// Has it left?
    pub fn is_gone(&self, vcpu: VcpuIndex) -> bool {
        self.vcpus[vcpu.ix()].state == State::Gone
    }

    /// What it did when it was last seen outside the guest.
    pub fn last_seen(&self, vcpu: VcpuIndex) -> &LockActivity {
        &self.vcpus[vcpu.ix()].look.activity
    }

    /// When the turn of a running vCPU is to end.
    pub fn until(&self, vcpu: VcpuIndex) -> Nanos {
        self.vcpus[vcpu.ix()].deadline
    }

    /// How long its turn has lasted.
    pub fn ran(&self, vcpu: VcpuIndex) -> Nanos {
        self.now.since(self.vcpus[vcpu.ix()].since)
    }

    /// Its VM.
    pub fn vm_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.vm
    }

    /// Its share, 1024 being the usual one.
    pub fn weight_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.weight
    }

    /// Does anybody run at all?
    pub fn anybody_runs(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// The lowest free slot.
    pub fn free_slot(&self) -> Option<SlotId> {
        self.slots.iter().position(Option::is_none).map(|ix| SlotId(ix as u32))
    }
}

/// Why a vCPU waits for a slot from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It is new.
    Started,
    /// Its turn is over.
    Preempted,
    /// It gave its slot up.
    Yielded,
    /// A kick ended its halt, in the VMM or in KVM; by whom, if that is known.
    Kicked(Option<VcpuIndex>),
    /// It left KVM's HLT without a kick.
    Woken,
    /// It had been kept off on purpose.
    Released,
}

/// Who runs, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Who: it must be ready.
    pub vcpu: VcpuIndex,
    /// When it is to come out.
    pub until: Nanos,
    /// It is asked to yield from the beginning of its turn.
    pub asked: bool,
}

impl Pick {
    /// A turn that lasts until then.
    pub const fn new(vcpu: VcpuIndex, until: Nanos) -> Self {
        Self { vcpu, until, asked: false }
    }
}

/// What becomes of a vCPU that is outside the guest and still has its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, until then.
    Stay(Nanos),
    /// It goes on and is asked to yield; then, it comes out at the latest.
    Ask(Nanos),
    /// Its slot is free; it waits for another turn.
    Preempt(Why),
    /// Its slot is free; it is kept off until then.
    Hold(Nanos),
}

/// Why a preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The turn was over.
    Slice,
    /// The turn was over long ago: a grace ran out.
    Grace,
    /// It gave its slot up, with no lock held or awaited.
    Yield,
    /// It spun in vain.
    Spun,
    /// The experiment asked for it.
    Injected,
    /// It makes way for whom it has just kicked.
    MadeWay,
}

/// Decides. Called with the time and a [`View`]; keeps no clock and, once running, allocates
/// nothing.
pub trait Policy: Debug + Send {
    /// This vCPU waits for a slot from now on.
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>);

    /// It waits no longer: it has left for good.
    fn gone(&mut self, vcpu: VcpuIndex);

    /// The slot is free: who runs there? Nobody, to leave it idle.
    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick>;

    /// It has come out of the guest, at its deadline or for no reason.
    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict;

    /// Its turn is over, whatever ended it.
    fn turn_over(&mut self, _: VcpuIndex, _end: TurnEnd, _ran: Nanos) {}

    /// It sits in KVM's HLT for the lock that the look says, with a slot that another vCPU wants.
    /// True: it keeps the slot until its turn ends, at the longest. The kick then resumes it at once.
    fn keeps_slot_in_hlt(&self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> bool {
        false
    }

    /// It halts, in the VMM or in KVM: its slot is free.
    fn halted(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) {}

    /// It runs, does this with locks, and has just kicked a vCPU, which is ready now. None: it
    /// goes on as before.
    fn makes_way(&mut self, _: VcpuIndex, _: &LockActivity, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// It yields because it was asked to.
    fn yielded(&mut self, _: VcpuIndex, _: &View<'_>) -> Verdict {
        Verdict::Preempt(Why::Yield)
    }

    /// It has spun in vain. None: nothing changes.
    fn spun_out(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// It is at a named place. None: nothing changes.
    fn point(&mut self, _: VcpuIndex, _: Point, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// Whom to wake without a kick, if anybody: a vCPU that halts or sits in KVM's HLT.
    /// `lock_spinning` may return for no reason (its contract says so).
    fn wakes(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        None
    }

    /// The points (a mask) that guests are to report from now on.
    fn points(&self, _: Nanos) -> u32 {
        0
    }

    /// Looks at a lock after which a guest is to say that it spun out; 0: never.
    fn spin_looks(&self) -> u32 {
        0
    }

    /// Never leaves a slot idle while a vCPU waits for one.
    fn is_work_conserving(&self) -> bool {
        true
    }

    /// Hits and misses of a policy that aims.
    fn hits(&self) -> Option<Hits> {
        None
    }

    /// How a replay differs from its recording, if this is one.
    fn divergence(&self) -> Option<replay::Divergence> {
        None
    }
}

pub use replay::Divergence;
