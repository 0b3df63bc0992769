//! Decisions of a schedule that are kept, or that come from a recording.

use base::units::Nanos;
use sched::accounting::{Preemption, Totals};
use sched::log::{Handoff, Log, Turn};
use sched::recording::Recording;
use sched::{VcpuIndex, event::Kicker};

use crate::spec::{SimSpecError, Spec};

/// What a simulation does with its schedule's decisions beside carrying them out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Decisions<'a> {
    /// The recording that the policy `replay` follows: made here or with real vCPUs.
    pub replayed: Option<&'a Recording>,
    /// Keep them, for [`Sim::recording`](super::Sim::recording).
    pub are_kept: bool,
}

/// What is kept of a schedule for a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The time up to which it is simulated.
    pub now: Nanos,
    /// The turns, in the order in which they began.
    pub turns: Vec<Turn>,
    /// Turns for which there was no room.
    pub lost_turns: u64,
    /// The first preemptions, each with what the vCPU was doing.
    pub preemptions: Vec<Preemption>,
    /// The first kicks that ended a halt. When the lock was released and when the guest went on is
    /// not kept.
    pub handoffs: Vec<Handoff>,
    /// Such kicks for which there was no room.
    pub lost_handoffs: u64,
    /// The schedule's sums.
    pub totals: Totals,
}

/// Kicks that end halts, as they happen.
#[derive(Debug)]
pub(super) struct Handoffs {
    all: Vec<Handoff>,
    lost: u64,
    /// By vCPU: the kick after which it waits for a CPU.
    open: Box<[Option<usize>]>,
}

impl Handoffs {
    /// The most that are kept.
    const ROOM: usize = 1 << 20;

    pub(super) fn new(vcpus: usize) -> Self {
        Self { all: Vec::new(), lost: 0, open: vec![None; vcpus].into() }
    }

    /// `to` halts, and is kicked.
    pub(super) fn kicked(&mut self, to: VcpuIndex, by: Option<Kicker>, at: Nanos) {
        if self.all.len() == Self::ROOM {
            self.lost += 1;
            return;
        }
        self.open[to.ix()] = Some(self.all.len());
        let by = by.map(|kicker| kicker.vcpu);
        self.all.push(Handoff { at, by, to, released: None, granted: None, resumed: None });
    }

    /// `to` gets a CPU.
    pub(super) fn granted(&mut self, to: VcpuIndex, at: Nanos) {
        let open = self.open[to.ix()].take();
        if let Some(handoff) = open.and_then(|at| self.all.get_mut(at)) {
            handoff.granted = Some(at);
        }
    }

    pub(super) fn kept(&self) -> (Vec<Handoff>, u64) {
        (self.all.clone(), self.lost)
    }
}

impl Decisions<'_> {
    /// Does the policy have what it replays, of as many vCPUs and slots?
    pub(super) fn check(&self, spec: &Spec) -> Result<(), SimSpecError> {
        if spec.policy.replays().is_none() {
            return Ok(());
        }
        let recording = self.replayed.ok_or(SimSpecError::NoRecording)?;
        let (vcpus, slots) = (recording.vcpus, recording.slots);
        if (vcpus as usize, slots as usize) == (spec.all_vcpus(), spec.cpus) {
            Ok(())
        } else {
            Err(SimSpecError::OtherSize { vcpus, slots })
        }
    }

    pub(super) fn log(&self) -> Log {
        if self.are_kept { Log::new() } else { Log::brief() }
    }
}
