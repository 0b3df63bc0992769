//! The cost of confinement: the same operations by confined threads and by others, in turn.
//!
//! A filter of system calls costs some 100 ns a call, and a host's speed may change by more than the
//! share of that in an exit within a second. So calls are measured in one process, for a few
//! milliseconds each, confined and not, in alternating order; what is compared is each such pair.

use std::{path::PathBuf, time::Duration};

use thiserror::Error;

use super::{
    boot_times::{BenchError, Binary, Pages},
    hypercall_times::{self, HyperCase, HyperError, HyperPlan},
    thread_wakeup::Placement,
};
use crate::Interrupt;
use base::{
    backend::PvBackend,
    units::{CpuList, Nanos, VcpuCount},
};
use confine::{ConfineError, Files, Seccomp};
use kvm::sys::tsc;
use study::stats;

/// What to measure, and how.
#[derive(Debug)]
pub struct ConfinementPlan {
    /// The vCPUs run on the first two.
    pub cpus: CpuList,
    /// Pairs of each subject.
    pub runs: u32,
    /// How long calls are measured for each side of a pair.
    pub duration: Duration,
    /// The Linux guest's kernel; None: none is booted.
    pub kernel: Option<PathBuf>,
}

/// What is measured confined and not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfinedOperation {
    /// A hypercall: the median of its samples.
    Call(HyperCase),
    /// From the start of a process to the first byte of the tiny guest's output.
    FirstOutput,
    /// From the start of a process to the Linux guest's init.
    ToInit,
}

impl ConfinedOperation {
    fn all(plan: &ConfinementPlan) -> Vec<Self> {
        let vmm = PvBackend::Vmm;
        let mut calls = vec![
            HyperCase::Exit(vmm),
            HyperCase::PendingHalt(vmm),
            HyperCase::KickToRun(vmm, Placement::SameCpu),
        ];
        if plan.cpus.cpus().len() > 1 {
            calls.extend([
                HyperCase::KickRunning(vmm),
                HyperCase::KickToRun(vmm, Placement::OtherCpu),
            ]);
        }
        let linux = plan.kernel.as_ref().map(|_| Self::ToInit);
        calls.into_iter().map(Self::Call).chain([Self::FirstOutput]).chain(linux).collect()
    }

    /// The subject's name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Call(case) => case.name(),
            Self::FirstOutput => "start -> first output, tiny guest".into(),
            Self::ToInit => "start -> init, Linux guest".into(),
        }
    }
}

/// Nanoseconds of one operation, measured in direct succession.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfinedPair {
    /// By confined threads.
    pub confined: f64,
    /// By threads with no limits; of a boot, by a process without filters (`--seccomp off`).
    pub bare: f64,
}

/// A subject and its pairs.
#[derive(Debug)]
pub struct SubjectPairs {
    /// What the pairs have in common.
    pub subject: ConfinedOperation,
    /// In the order of the runs.
    pub pairs: Vec<ConfinedPair>,
}

/// All figures of the bench.
#[derive(Debug)]
pub struct ConfinementFigures {
    /// In the table's order.
    pub subjects: Vec<SubjectPairs>,
    /// The user interrupted it.
    pub interrupted: bool,
}

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum ConfinementError {
    /// A hypercall cannot be measured.
    #[error(transparent)]
    Call(#[from] HyperError),
    /// A boot cannot be measured.
    #[error(transparent)]
    Boot(#[from] BenchError),
    /// A thread cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

struct ConfinementBench {
    calls: HyperPlan,
    khz: u64,
    confined: Binary,
    bare: Binary,
}

/// Measures each subject in each run; `started` is told of each run, from 1.
pub fn run(
    plan: &ConfinementPlan,
    interrupt: &Interrupt,
    mut started: impl FnMut(u32),
) -> Result<ConfinementFigures, ConfinementError> {
    let rate = tsc::Rate::start();
    let kernel = plan.kernel.clone().unwrap_or_default();
    let calls = HyperPlan {
        cpus: plan.cpus.clone(),
        backends: vec![PvBackend::Vmm],
        rounds: 1,
        duration: plan.duration,
        seed: 0,
    };
    let confined = Binary::new(kernel.clone(), confine::chosen())?;
    let bare = Binary::new(kernel, Seccomp::Off)?;
    let bench = ConfinementBench { calls, khz: rate.khz(), confined, bare };
    let none = |subject| SubjectPairs { subject, pairs: Vec::new() };
    let mut subjects: Vec<_> = ConfinedOperation::all(plan).into_iter().map(none).collect();
    for run in 0..plan.runs {
        started(run + 1);
        for entry in &mut subjects {
            if interrupt.raised() {
                return Ok(ConfinementFigures { subjects, interrupted: true });
            }
            entry.pairs.push(bench.pair(entry.subject, run.is_multiple_of(2))?);
        }
    }
    Ok(ConfinementFigures { subjects, interrupted: false })
}

impl ConfinementBench {
    fn pair(
        &self,
        subject: ConfinedOperation,
        confined_first: bool,
    ) -> Result<ConfinedPair, ConfinementError> {
        if confined_first {
            let confined = self.confined(subject)?;
            Ok(ConfinedPair { confined, bare: self.bare(subject)? })
        } else {
            let bare = self.bare(subject)?;
            Ok(ConfinedPair { confined: self.confined(subject)?, bare })
        }
    }

    fn confined(&self, subject: ConfinedOperation) -> Result<f64, ConfinementError> {
        match subject {
            ConfinedOperation::Call(case) => {
                confine::within(&Files::of_guests(), || self.call(case))?
            }
            _ => boot(&self.confined, subject),
        }
    }

    fn bare(&self, subject: ConfinedOperation) -> Result<f64, ConfinementError> {
        match subject {
            ConfinedOperation::Call(case) => confine::without(|| self.call(case))?,
            _ => boot(&self.bare, subject),
        }
    }

    fn call(&self, case: HyperCase) -> Result<f64, ConfinementError> {
        let round =
            hypercall_times::patiently(|| hypercall_times::measure(&self.calls, case, self.khz))?;
        let samples: Vec<f64> = round.samples.iter().map(|sample| *sample as f64).collect();
        let none = || HyperError::Still("it finished no operation".into());
        Ok(stats::median(&samples).ok_or_else(none)?)
    }
}

fn boot(binary: &Binary, subject: ConfinedOperation) -> Result<f64, ConfinementError> {
    let Nanos(nanos) = match subject {
        ConfinedOperation::ToInit => binary.to_init(VcpuCount::ONE, Pages::AsGranted)?,
        _ => binary.first_output()?,
    };
    Ok(nanos as f64)
}
