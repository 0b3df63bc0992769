//! The cost of each hypercall: exits, kicks, halts, and the time from a kick to the kicked vCPU's
//! first instruction, by backend, compared with the cost of waking a thread.

mod guest;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use hypercalls::payload::Workload;
use thiserror::Error;

use super::thread_wakeup::{self, Placement, RawKind, Ticks};
use crate::Interrupt;
use base::{
    backend::PvBackend,
    counters::Counts,
    rng::SplitMix64,
    units::{CpuList, UnitError},
};
use kvm::{
    signal::{SchedulingClass, set_current_class},
    sys::tsc,
};
use machine::{guest::payload::SharedError, vm::VmError};

/// Parameters of the benchmark.
#[derive(Debug)]
pub struct HyperPlan {
    /// The CPUs; the vCPUs run on the first two.
    pub cpus: CpuList,
    /// The backends to measure.
    pub backends: Vec<PvBackend>,
    /// Number of rounds; each measures every case once.
    pub rounds: u32,
    /// Measured time of each case in a round.
    pub duration: Duration,
    /// Seed of the order of the cases.
    pub seed: u64,
}

/// Time for which a vCPU halts before it is kicked from another CPU. Longer than a thread takes to
/// go to sleep, shorter than KVM polls before the vCPU blocks (`halt_poll_ns`, 200 us).
pub const HALT_TIME: Duration = Duration::from_micros(100);

/// A case to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HyperCase {
    /// One thread wakes another: half of a round trip.
    Raw(RawKind, Placement),
    /// An exit to the VMM and back.
    Exit(PvBackend),
    /// A kick of a vCPU that is running on another CPU.
    KickRunning(PvBackend),
    /// Time from a kick to the first instruction of the halted vCPU; two vCPUs kick each other in
    /// turn. On one CPU the kicker must halt, or be preempted, before the other runs. On two CPUs
    /// the target has been halted for [`HALT_TIME`] when it is kicked.
    KickToRun(PvBackend, Placement),
    /// A halt that finds a kick pending.
    PendingHalt(PvBackend),
}

impl HyperCase {
    /// Returns all cases that `plan` can measure.
    pub fn all(plan: &HyperPlan) -> Vec<Self> {
        let both = [Placement::SameCpu, Placement::OtherCpu];
        let placements = if plan.cpus.cpus().len() > 1 { &both[..] } else { &both[..1] };
        let mut cases = Vec::new();
        for kind in [RawKind::Futex, RawKind::Eventfd] {
            cases.extend(placements.iter().map(|placement| Self::Raw(kind, *placement)));
        }
        for backend in plan.backends.iter().copied() {
            cases.push(Self::Exit(backend));
            if placements.len() > 1 {
                cases.push(Self::KickRunning(backend));
            }
            cases.extend(placements.iter().map(|placement| Self::KickToRun(backend, *placement)));
            cases.push(Self::PendingHalt(backend));
        }
        cases
    }

    /// The backend of the case, if it has one.
    pub fn backend(self) -> Option<PvBackend> {
        match self {
            Self::Raw(..) => None,
            Self::Exit(backend)
            | Self::KickRunning(backend)
            | Self::KickToRun(backend, _)
            | Self::PendingHalt(backend) => Some(backend),
        }
    }

    /// The case's name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Raw(kind, placement) => format!("{} handoff, {}", kind.name(), placement.name()),
            Self::Exit(_) => "exit and entry".into(),
            Self::KickRunning(_) => "kick of a running vCPU".into(),
            Self::KickToRun(_, placement) => format!("kick -> run, {}", placement.name()),
            Self::PendingHalt(_) => "halt with a kick pending".into(),
        }
    }

    fn workload(self) -> Option<(Workload, Placement)> {
        match self {
            Self::Raw(..) => None,
            Self::Exit(_) => Some((Workload::PortExit, Placement::SameCpu)),
            Self::KickRunning(_) => Some((Workload::KickRunning, Placement::OtherCpu)),
            Self::KickToRun(_, placement) => Some((Workload::PingPong, placement)),
            Self::PendingHalt(_) => Some((Workload::PendingHalt, Placement::SameCpu)),
        }
    }

    /// Samples per timed operation: a sample is the operation's time divided by this number.
    fn samples_per_operation(self) -> u64 {
        if matches!(self, Self::KickToRun(..)) { 2 } else { 1 }
    }
}

/// Figures of one case in one round.
#[derive(Debug, Default)]
pub struct RoundFigures {
    /// Samples, in nanoseconds.
    pub samples: Vec<u64>,
    /// Operations by vCPU 0 or the measuring thread.
    pub operations: u64,
    /// The VMM's counts, summed over the vCPUs.
    pub vmm: Counts,
    /// KVM's statistics, by name.
    pub kvm: BTreeMap<String, u64>,
}

/// One case and its rounds.
#[derive(Debug)]
pub struct CaseRounds {
    /// The measured case.
    pub case: HyperCase,
    /// The rounds, in order.
    pub rounds: Vec<RoundFigures>,
}

/// All figures of the benchmark.
#[derive(Debug)]
pub struct HyperFigures {
    /// The cases, in the table's order.
    pub cases: Vec<CaseRounds>,
    /// Whether the user interrupted the benchmark.
    pub interrupted: bool,
}

/// Errors when running the benchmark.
#[derive(Debug, Error)]
pub enum HyperError {
    /// The VM could not be built or failed while it ran.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The block of memory shared with the payload is invalid.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The raw thread wakeup cannot be measured.
    #[error("cannot measure thread wakeups")]
    Raw(#[source] io::Error),
    /// The payload made no progress.
    #[error("the payload did not start or made no progress: {0}")]
    NoProgress(String),
    /// The number of vCPUs is invalid.
    #[error(transparent)]
    Units(#[from] UnitError),
}

/// Measures every case in every round, each round in a different order.
///
/// Wakeup preemption is disabled for all threads. Otherwise the kernel may switch in the middle of a
/// kick's exit, depending on how long either thread has slept, which makes the times bimodal (68 and
/// 82 us when first observed). Raw wakeups are measured under the same rule.
pub fn run(
    plan: &HyperPlan,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, HyperCase),
) -> Result<HyperFigures, HyperError> {
    without_wakeup_preemption(|| rounds(plan, interrupt, started))
}

/// Runs `work` with wakeup preemption disabled for this thread and threads that it starts.
pub(super) fn without_wakeup_preemption<T>(work: impl FnOnce() -> T) -> T {
    set_current_class(SchedulingClass::Batch);
    let result = work();
    set_current_class(SchedulingClass::Normal);
    result
}

fn rounds(
    plan: &HyperPlan,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, HyperCase),
) -> Result<HyperFigures, HyperError> {
    let rate = tsc::Rate::start();
    let mut cases: Vec<CaseRounds> = HyperCase::all(plan)
        .into_iter()
        .map(|case| CaseRounds { case, rounds: Vec::new() })
        .collect();
    let mut random = SplitMix64::new(plan.seed);
    let khz = rate.khz();
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        random.shuffle(&mut order);
        for ix in order {
            if interrupt.raised() {
                return Ok(HyperFigures { cases, interrupted: true });
            }
            let case = cases[ix].case;
            started(round, case);
            cases[ix].rounds.push(measure(plan, case, khz)?);
        }
    }
    Ok(HyperFigures { cases, interrupted: false })
}

/// Measures one case once. `khz` is the rate of the time stamp counter.
pub(super) fn measure(
    plan: &HyperPlan,
    case: HyperCase,
    khz: u64,
) -> Result<RoundFigures, HyperError> {
    let nanos = |ticks: Ticks| ticks.0.saturating_mul(1_000_000) / khz.max(1);
    match case {
        HyperCase::Raw(kind, placement) => {
            let end = Instant::now() + plan.duration;
            let samples = thread_wakeup::handoffs(kind, placement, &plan.cpus, end)
                .map_err(HyperError::Raw)?;
            let samples: Vec<u64> = samples.into_iter().map(nanos).collect();
            Ok(RoundFigures {
                operations: samples.len() as u64,
                samples,
                ..RoundFigures::default()
            })
        }
        _ => {
            let mut round = guest::measure(plan, case, khz)?;
            for sample in &mut round.samples {
                *sample = nanos(Ticks(*sample / case.samples_per_operation()));
            }
            Ok(round)
        }
    }
}
