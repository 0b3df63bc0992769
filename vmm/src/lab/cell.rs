//! One run: a fresh machine, one lock, a number of vCPUs, a span of time.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use locks::System;
use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{
    Interrupt, latencies::Latencies, live::LiveObserver, sync_counters::WorkCounts,
    timeline::Timeline,
};
use crate::{
    guest::{handoff::HandoffSpec, initrd::InitrdError, payload::SharedError},
    machine::counters::{Counts, FaultCounts},
    sched::{SchedReport, ScheduleSpec, driver::Measured},
    units::{ByteSize, CpuList, VcpuCount},
    vcpu::{
        Cause, End, Failure, Trace,
        fault::{FaultPlan, FaultSpec},
    },
    vm::{PvBackend, VmError},
};

/// What one run is to be.
#[derive(Debug)]
pub struct RunSpec<'a> {
    /// vCPUs of each machine, all of which contend.
    pub vcpus: VcpuCount,
    /// Machines, all alike.
    pub vms: u32,
    /// Host CPUs that carry them.
    pub cpus: &'a CpuList,
    /// Which system of the lock library contends; None: the guest's own ticketlocks, native or PV.
    pub system: Option<System>,
    /// Who serves the waiters; [`PvBackend::Off`]: nobody, they do not halt.
    pub backend: PvBackend,
    /// What PV locks do to be handed over more cheaply.
    pub handoff: HandoffSpec,
    /// Who decides when they run.
    pub schedule: ScheduleSpec,
    /// What goes wrong on purpose, by the schedule's seed.
    pub faults: Option<FaultSpec>,
    /// How long they contend before the measurement.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// Keep everything that happens, for [`Sample::timeline`].
    pub trace: bool,
    /// Who watches it meanwhile, if somebody does.
    pub onlooker: Option<&'a dyn LiveObserver>,
}

/// What one run gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sample {
    /// How long was measured really, in seconds. Of several machines, each measured by its guest:
    /// so long that [`Sample::rate`] is the sum of their rates.
    pub seconds: f64,
    /// Acquisitions of each vCPU.
    pub operations: Vec<u64>,
    /// Acquisitions that had to wait, which were not served at the first look, if the lock counts
    /// them.
    pub slow: Option<u64>,
    /// Times a waiter used up the spin threshold, for any lock of a guest's kernel, if that counts
    /// them: acquisitions of the benchmark's lock are not told apart.
    pub long_waits: Option<u64>,
    /// Locks of any kind that the kernels of the guests took, by the telemetry of their vCPUs, if they
    /// keep it: the VMM reads it when the guest reads its own counts.
    pub locks_taken: Option<u64>,
    /// Halts that the guest counted.
    pub halts: u64,
    /// Kicks that the guest counted.
    pub kicks: u64,
    /// Failures of mutual exclusion since the start; anything but zero is a bug.
    pub violations: u64,
    /// Tickets served out of order since the start, if the guest looks; anything but zero is a bug.
    pub disorder: u64,
    /// The VMM's own counts of the time measured, summed over the vCPUs.
    pub vmm: Counts,
    /// What the schedule did while it was measured, if it was not the host's.
    pub schedule: Option<Scheduled>,
    /// What went wrong on purpose in the time measured, if anything was to.
    pub faults: Option<FaultCounts>,
    /// What the system did beside its operations, if the guest counts it.
    pub work: Option<WorkCounts>,
    /// How long operations took, if they were timed.
    pub latencies: Option<Latencies>,
    /// What happened moment by moment, if it was traced.
    #[serde(skip)]
    pub timeline: Option<Arc<Timeline>>,
}

/// A schedule's account.
#[derive(Debug, Clone, Serialize)]
pub struct Scheduled {
    /// What it did in the time measured.
    #[serde(serialize_with = "totals")]
    pub measured: Measured,
    /// Everything, from the machine's start.
    pub whole: SchedReport,
}

fn totals<S: Serializer>(measured: &Measured, serializer: S) -> Result<S::Ok, S::Error> {
    measured.totals.serialize(serializer)
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.measured == other.measured
    }
}

impl Sample {
    /// Acquisitions of all vCPUs.
    pub fn acquisitions(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Both machines' figures: they ran side by side, each with its own reading of one window.
    pub fn with(mut self, other: Sample) -> Self {
        let (acquisitions, rate) =
            (self.acquisitions() + other.acquisitions(), self.rate() + other.rate());
        self.seconds = match rate > 0.0 {
            true => acquisitions as f64 / rate,
            false => self.seconds.max(other.seconds),
        };
        self.operations.extend(other.operations);
        self.slow = self.slow.zip(other.slow).map(|(a, b)| a + b);
        self.long_waits = self.long_waits.zip(other.long_waits).map(|(a, b)| a + b);
        self.halts += other.halts;
        self.kicks += other.kicks;
        self.violations += other.violations;
        self.disorder += other.disorder;
        self.faults = self.faults.zip(other.faults).map(|(mut all, its)| {
            all += its;
            all
        });
        self.vmm += other.vmm;
        self.work = self.work.zip(other.work).map(|(mut all, its)| {
            all += its;
            all
        });
        let latencies = self.latencies.zip(other.latencies);
        self.latencies = latencies.map(|(all, its)| all.merge(&its));
        self
    }

    /// Acquisitions a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.acquisitions() as f64 / self.seconds } else { 0.0 }
    }
}

/// Why a run gave nothing.
#[derive(Debug, Error)]
pub enum CellError {
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// The machine.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The payload's shared block.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The machine ended before the measurement did.
    #[error("the guest ended early: {0}")]
    EndedEarly(String),
    /// Somebody in it waited for ever.
    #[error("{0}")]
    Stuck(String, Trace),
    /// The guest's initrd.
    #[error(transparent)]
    Initrd(#[from] InitrdError),
    /// What the guest printed is no result.
    #[error("cannot read the guest's result {:?}: {error}", quote(.said))]
    Result {
        /// All that it printed.
        said: String,
        /// What JSON it is not.
        error: serde_json::Error,
    },
    /// The guest printed more than a result has.
    #[error("the guest printed more than the {0} that are kept of its result")]
    Flooded(ByteSize),
    /// What the guest says of itself cannot be.
    #[error("the guest claims what cannot be: {0}")]
    Impossible(String),
    /// The guest's locks are not what was asked for.
    #[error("the guest's locks are served by '{found}', not by '{asked}'")]
    Backend {
        /// As the guest says.
        found: String,
        /// As the machine offers.
        asked: PvBackend,
    },
    /// The guest's kernel chose other locks than it should have.
    #[error("the guest's locks are not {asked}: its kernel says {}", quoted(.said.as_deref()))]
    Spinlocks {
        /// What it says of them.
        said: Option<String>,
        /// What it should have chosen.
        asked: System,
    },
    /// PV queued spinlocks whose halts nobody counts.
    #[error(
        "the guest's kernel does not count what its PV queued spinlocks do: it needs \
         CONFIG_LOCK_EVENT_COUNTS"
    )]
    Uncounted,
    /// It is not known when the benchmark was measured.
    #[error("the guest's kernel does not say when its benchmark began and ended: `make kernels`")]
    NoWindow,
    /// None of the kernels at hand has the system.
    #[error("no kernel at hand has {0}")]
    NoKernel(System),
    /// A descriptor to interrupt the machine by.
    #[error("cannot set up an interrupt: {0}")]
    Descriptor(io::Error),
    /// Some vCPUs did not come to the start.
    #[error("{arrived} of {vcpus} vCPUs came to the start within {} s", waited.as_secs())]
    NotArrived {
        /// Those that came.
        arrived: u32,
        /// Those that should.
        vcpus: VcpuCount,
        /// How long they had.
        waited: Duration,
    },
}

fn quoted(said: Option<&str>) -> String {
    said.map_or_else(|| "nothing of its locks".to_owned(), |said| format!("\"{said}\""))
}

/// A kind of guest that can be measured.
pub trait Cell {
    /// Makes a machine, measures, takes it down.
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Sample, CellError>;
}

impl RunSpec<'_> {
    /// The faults of its machines: native locks make no calls that could go wrong.
    pub(super) fn fault_plan(&self) -> Option<FaultPlan> {
        let faults = self.faults.filter(|_| self.backend != PvBackend::Off);
        faults.map(|spec| FaultPlan { spec, seed: self.schedule.seed })
    }

    /// Shall the guests say what they do with locks? A schedule and a watch over faults want to
    /// know. Native guests then say it too, so that both bear the same.
    pub(super) fn has_telemetry(&self) -> bool {
        !self.schedule.policy.is_host() || self.faults.is_some()
    }
}

/// The beginning of what a guest wrote, which may be of any length.
fn quote(text: &str) -> Cow<'_, str> {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        None => text.into(),
        Some((end, _)) => format!("{} ... (of {} bytes)", &text[..end], text.len()).into(),
    }
}

/// A machine has ended that should not have.
pub(super) fn ended_early(end: &End, messages: &str) -> CellError {
    match end {
        End::Failed(failure @ Failure { cause: Cause::Stuck(_, trace), .. }) => {
            CellError::Stuck(failure.to_string(), trace.clone())
        }
        _ => CellError::EndedEarly(early(end, messages)),
    }
}

/// How a machine ended that should not have, and the guest's word on it: what it
/// says of a panic, whose last lines say nothing, or its last line.
fn early(end: &End, messages: &str) -> String {
    let how = match end {
        End::Exit(status) => format!("the benchmark gave exit status {status}"),
        End::Done(status) => format!("a vCPU gave status {status}"),
        End::Failed(failure) => failure.to_string(),
        other => format!("{other:?}"),
    };
    let panic = messages.lines().find(|line| line.contains("Kernel panic"));
    let last = || messages.lines().rev().find(|line| !line.trim().is_empty());
    match (panic, last()) {
        (Some(line), _) => format!("{how}; the guest: {}", quote(line.trim())),
        (None, Some(line)) => format!("{how}; the guest's last line: {}", quote(line.trim())),
        (None, None) => how,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_all_vcpus_over_the_time_measured() {
        let mut sample = Sample { seconds: 0.5, operations: vec![10, 30], ..Sample::default() };
        assert_eq!((sample.acquisitions(), sample.rate()), (40, 80.0));
        sample.seconds = 0.0;
        assert_eq!(sample.rate(), 0.0);
    }

    /// A machine that is measured for a little longer than the other does not lower its rate.
    #[test]
    fn the_rate_of_two_machines_is_the_sum_of_both() {
        let of = |seconds, operations| Sample {
            seconds,
            operations: vec![operations],
            ..Sample::default()
        };
        let both = of(1.0, 100).with(of(2.0, 600));
        assert_eq!((both.acquisitions(), both.rate()), (700, 400.0));
        assert_eq!(of(1.0, 0).with(of(2.0, 0)).seconds, 2.0);
    }

    #[test]
    fn an_early_end_quotes_the_guest() {
        assert_eq!(
            early(&End::Exit(1), "booting\ninit: no such file\n\n"),
            "the benchmark gave exit status 1; the guest's last line: init: no such file"
        );
        assert_eq!(early(&End::Reset, ""), "Reset");
        let panic = "[1.0] Kernel panic - not syncing: why\n[1.1] Kernel Offset: disabled\n";
        assert_eq!(
            early(&End::Reset, panic),
            "Reset; the guest: [1.0] Kernel panic - not syncing: why"
        );
        let long = early(&End::Reset, &"\u{e9}".repeat(1000));
        assert!(long.ends_with(" ... (of 2000 bytes)") && long.chars().count() < 400, "{long}");
    }
}
