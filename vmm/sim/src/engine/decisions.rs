//! Recorded and replayed decisions of a schedule.

use base::units::Nanos;
use sched::accounting::{Preemption, Totals};
use sched::log::{Handoff, Log, Slice};
use sched::recording::Recording;
use sched::{VcpuIndex, event::Kicker};

use crate::spec::{SimSpecError, Spec};

/// Whether a simulation replays or records the decisions of its schedule.
#[derive(Debug, Default, Clone, Copy)]
pub struct Decisions<'a> {
    /// The recording for the policy `replay`, from a simulation or from real vCPUs.
    pub replayed: Option<&'a Recording>,
    /// Whether to keep the decisions for [`Sim::recording`](super::Sim::recording).
    pub are_recorded: bool,
}

/// The part of a schedule that a timeline shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    /// Current simulated time.
    pub now: Nanos,
    /// Slices in the order of their start.
    pub slices: Vec<Slice>,
    /// Slices dropped because the log was full.
    pub lost_slices: u64,
    /// The first preemptions, each with the vCPU's activity.
    pub preemptions: Vec<Preemption>,
    /// The first kicks that ended a halt. The times of the lock's release and of the guest's
    /// resumption are not recorded.
    pub handoffs: Vec<Handoff>,
    /// Such kicks dropped because the log was full.
    pub lost_handoffs: u64,
    /// The schedule's sums.
    pub totals: Totals,
}

/// A log of the kicks that end halts.
#[derive(Debug)]
pub(super) struct Handoffs {
    log: Vec<Handoff>,
    lost: u64,
    /// Per vCPU: the kick after which it waits for a CPU.
    open: Box<[Option<usize>]>,
}

impl Handoffs {
    /// Maximum number of logged kicks.
    const CAPACITY: usize = 1 << 20;

    pub(super) fn new(vcpus: usize) -> Self {
        Self { log: Vec::new(), lost: 0, open: vec![None; vcpus].into() }
    }

    /// Records a kick to the halted vCPU `to`.
    pub(super) fn kicked(&mut self, to: VcpuIndex, by: Option<Kicker>, at: Nanos) {
        if self.log.len() == Self::CAPACITY {
            self.lost += 1;
            return;
        }
        self.open[to.ix()] = Some(self.log.len());
        let by = by.map(|kicker| kicker.vcpu);
        self.log.push(Handoff { at, by, to, released: None, granted: None, resumed: None });
    }

    /// Records that `to` gets a CPU.
    pub(super) fn granted(&mut self, to: VcpuIndex, at: Nanos) {
        let open = self.open[to.ix()].take();
        if let Some(handoff) = open.and_then(|ix| self.log.get_mut(ix)) {
            handoff.granted = Some(at);
        }
    }

    pub(super) fn records(&self) -> (Vec<Handoff>, u64) {
        (self.log.clone(), self.lost)
    }
}

impl Decisions<'_> {
    /// Checks that the policy `replay` has a recording with the spec's numbers of vCPUs and slots.
    pub(super) fn check(&self, spec: &Spec) -> Result<(), SimSpecError> {
        if spec.policy.replay_file().is_none() {
            return Ok(());
        }
        let recording = self.replayed.ok_or(SimSpecError::NoRecording)?;
        let (vcpus, slots) = (recording.vcpus, recording.slots);
        if (vcpus as usize, slots as usize) == (spec.total_vcpus(), spec.cpus) {
            Ok(())
        } else {
            Err(SimSpecError::OtherSize { vcpus, slots })
        }
    }

    pub(super) fn log(&self) -> Log {
        if self.are_recorded { Log::new() } else { Log::without_slices() }
    }
}
