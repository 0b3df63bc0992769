//! What the two hypercalls cost, one at a time: exits, kicks, halts, and the way from a kick to
//! the kicked vCPU's first instruction, by backend, beside what waking a thread costs at all.

mod guest;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use hypercalls::payload::Workload;
use thiserror::Error;

use super::{
    Interrupt,
    thread_wakeup::{self, Placement, RawKind, Ticks},
};
use crate::{
    guest::payload::SharedError,
    kvm::{
        signal::{Class, ThreadId},
        sys::tsc,
    },
    machine::counters::Counts,
    rng::SplitMix64,
    units::{CpuList, UnitError},
    vm::{PvBackend, VmError},
};

/// What is measured and how.
#[derive(Debug)]
pub struct HyperPlan {
    /// The first two carry the vCPUs.
    pub cpus: CpuList,
    /// Whose calls.
    pub backends: Vec<PvBackend>,
    /// Rounds, each of every case once.
    pub rounds: u32,
    /// How long each case is measured in a round.
    pub duration: Duration,
    /// For the order.
    pub seed: u64,
}

/// How long a vCPU halts before it is kicked from another CPU: longer than a kernel's wakeup
/// takes to go to sleep, shorter than KVM polls before it does (`halt_poll_ns`, 200 us).
pub const REST: Duration = Duration::from_micros(100);

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// One thread wakes another: half of a round trip.
    Raw(RawKind, Placement),
    /// An exit to the VMM and back.
    Exit(PvBackend),
    /// A kick of a vCPU that runs, on another CPU.
    KickRunning(PvBackend),
    /// From a kick to the first instruction of the vCPU that had halted, by two vCPUs that kick
    /// each other in turn. On one CPU the kicker must halt, or be preempted, before the other runs;
    /// on two the other has been halting for [`REST`] when it is kicked.
    KickToRun(PvBackend, Placement),
    /// A halt that finds a kick pending.
    PendingHalt(PvBackend),
}

impl Case {
    /// Everything that `plan` can measure.
    pub fn all(plan: &HyperPlan) -> Vec<Self> {
        let both = [Placement::SameCpu, Placement::OtherCpu];
        let placements = if plan.cpus.cpus().len() > 1 { &both[..] } else { &both[..1] };
        let mut all = Vec::new();
        for kind in [RawKind::Futex, RawKind::Eventfd] {
            all.extend(placements.iter().map(|placement| Self::Raw(kind, *placement)));
        }
        for backend in plan.backends.iter().copied() {
            all.push(Self::Exit(backend));
            if placements.len() > 1 {
                all.push(Self::KickRunning(backend));
            }
            all.extend(placements.iter().map(|placement| Self::KickToRun(backend, *placement)));
            all.push(Self::PendingHalt(backend));
        }
        all
    }

    /// Whose calls are measured, if any are.
    pub fn backend(self) -> Option<PvBackend> {
        match self {
            Self::Raw(..) => None,
            Self::Exit(backend)
            | Self::KickRunning(backend)
            | Self::KickToRun(backend, _)
            | Self::PendingHalt(backend) => Some(backend),
        }
    }

    /// In words.
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

    /// A sample is that part of the operation that was timed.
    fn share(self) -> u64 {
        if matches!(self, Self::KickToRun(..)) { 2 } else { 1 }
    }
}

/// What one case gave in one round.
#[derive(Debug, Default)]
pub struct Round {
    /// In nanoseconds.
    pub samples: Vec<u64>,
    /// What vCPU 0 did from its start, and how often.
    pub operations: u64,
    /// The VMM's counts, of both vCPUs.
    pub vmm: Counts,
    /// KVM's own, by name.
    pub kvm: BTreeMap<String, u64>,
}

/// One case and its rounds.
#[derive(Debug)]
pub struct CaseRounds {
    /// What was timed.
    pub case: Case,
    /// In order.
    pub rounds: Vec<Round>,
}

/// Everything measured.
#[derive(Debug)]
pub struct HyperFigures {
    /// In the table's order.
    pub cases: Vec<CaseRounds>,
    /// The user ended it early.
    pub interrupted: bool,
}

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum HyperError {
    /// The machine.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The payload's shared block.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// A raw handoff.
    #[error("cannot measure how threads wake each other: {0}")]
    Raw(#[source] io::Error),
    /// The guest did nothing.
    #[error("the payload did not begin, or did not go on: {0}")]
    Still(String),
    /// Not a number of vCPUs.
    #[error(transparent)]
    Units(#[from] UnitError),
}

/// Measures every case in every round, each round in another order.
///
/// No thread here preempts another at a wakeup: else the kernel switches in the middle of a kick's
/// exit, at times that depend on how long either thread has slept, and one way has two lengths (68
/// and 82 us where this was first seen). The raw handoffs are measured under the same rule.
pub fn run(
    plan: &HyperPlan,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, Case),
) -> Result<HyperFigures, HyperError> {
    ThreadId::current().set_class(Class::Patient);
    let figures = rounds(plan, interrupt, started);
    ThreadId::current().set_class(Class::Usual);
    figures
}

fn rounds(
    plan: &HyperPlan,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, Case),
) -> Result<HyperFigures, HyperError> {
    let rate = tsc::Rate::start();
    let mut cases: Vec<CaseRounds> =
        Case::all(plan).into_iter().map(|case| CaseRounds { case, rounds: Vec::new() }).collect();
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

fn measure(plan: &HyperPlan, case: Case, khz: u64) -> Result<Round, HyperError> {
    let nanos = |ticks: Ticks| ticks.0.saturating_mul(1_000_000) / khz.max(1);
    match case {
        Case::Raw(kind, placement) => {
            let end = Instant::now() + plan.duration;
            let samples = thread_wakeup::handoffs(kind, placement, &plan.cpus, end)
                .map_err(HyperError::Raw)?;
            let samples: Vec<u64> = samples.into_iter().map(nanos).collect();
            Ok(Round { operations: samples.len() as u64, samples, ..Round::default() })
        }
        _ => {
            let mut round = guest::measure(plan, case, khz)?;
            for sample in &mut round.samples {
                *sample = nanos(Ticks(*sample / case.share()));
            }
            Ok(round)
        }
    }
}
