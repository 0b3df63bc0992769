//! One measurement: fresh machines, one lock, a number of vCPUs, one window.

pub mod linux;
mod linux_outcome;
mod machines;
pub mod payload;
pub mod simulated;
mod timeline;
mod window;

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use locks::System;
use thiserror::Error;

use super::{Interrupt, host::cgroups::ThreadFiles};
use base::{
    backend::PvBackend,
    host_counts::ThreadTimes,
    host_extras::PleWindow,
    plural::count,
    units::{ByteSize, CpuList, Nanos, VcpuCount},
};
use machine::{
    driver::{AccountDelta, SchedReport},
    guest::{initrd::InitrdError, payload::SharedError},
    vcpu::{Cause, End, Failure, Trace, fault::FaultPlan},
    vm::{GuestSpec, LockMonitoring, MachineSpec, Purpose, Schedule, ScheduleError, VmError},
};
use sched::recording::Recording;
use study::{
    guest::program::FigureError,
    point::Point,
    spec::Method,
    store::record::{Figures, ScheduleFigures, SinceStart},
    timeline::Timeline,
    timings::Timings,
};

/// Each machine of a cell has its own telemetry lines in the BPF scheduler.
#[cfg(feature = "bpf")]
const _: () = assert!(study::spec::MAX_VMS <= bpf::MAX_MACHINES);

/// Parameters of one cell of an experiment.
#[derive(Debug)]
pub struct RunSpec<'a> {
    /// The machines, their lock, their schedule, and the window. All vCPUs contend.
    pub point: &'a Point,
    /// Text of the simulated machine's file; None to find it by its name.
    pub machine: Option<&'a str>,
    /// How the window is measured.
    pub method: &'a Method,
    /// Host CPUs of the vCPUs.
    pub cpus: &'a CpuList,
    /// Control groups of each machine's vCPUs; empty for the groups of this process.
    pub cgroups: &'a [ThreadFiles],
    /// Decisions that a simulation replays, if its policy replays any.
    pub replay: Option<Arc<Recording>>,
    /// Whether to record the decisions of a simulation, for [`Measurement::recording`].
    pub record: bool,
    /// Whether to record events, for [`Measurement::timeline`].
    pub trace: bool,
    /// Schedule of the machines; a simulation makes its own.
    pub schedule: Schedule,
}

/// Result of a measurement.
#[derive(Debug)]
pub struct Measurement {
    /// The figures, as the store keeps them.
    pub figures: Figures,
    /// Events of the run, if it was traced.
    pub timeline: Option<Timeline>,
    /// The schedule's decisions, if it was ours; empty or None unless recorded.
    pub recording: Option<Recording>,
}

impl Measurement {
    /// Combines the `figures` of the guests and the VMM with the schedule's account: `measured` over the
    /// window, `report` since the machines' start (None under the host's scheduler).
    fn new(
        figures: Figures,
        measured: &AccountDelta,
        report: Option<SchedReport>,
        timeline: Option<Timeline>,
    ) -> Self {
        let schedule = report.as_ref().map(|report| schedule_figures(measured, report));
        let counts = timeline.as_ref().map(Timeline::counts);
        Self {
            figures: Figures { schedule, timeline: counts, ..figures },
            timeline,
            recording: report.map(|report| report.recording),
        }
    }
}

/// The account of a schedule, as the store keeps it.
fn schedule_figures(measured: &AccountDelta, report: &SchedReport) -> ScheduleFigures {
    ScheduleFigures {
        seconds: measured.seconds(),
        totals: measured.totals,
        hits: measured.hits,
        extensions: measured.extensions.as_ref().map(|extensions| extensions.counts),
        extension_needed: measured.extensions.as_ref().map(Timings::needed).unwrap_or_default(),
        waste_uncounted: !report.counts_waste,
        lost: report.lost,
        since_start: SinceStart { totals: report.totals, hits: report.hits },
        divergence: report.divergence,
        times: report.histograms.map(Timings::from_histogram),
    }
}

/// Errors when measuring a cell.
#[derive(Debug, Error)]
pub enum CellError {
    /// The user interrupted the cell.
    #[error("interrupted")]
    Interrupted,
    /// The VM could not be built or failed while it ran.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The schedule cannot be started or read.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The host's kernel ended the schedule, for this reason.
    #[error(
        "the host's kernel ended the BPF scheduler ({0}); the vCPUs continued under its own scheduler"
    )]
    ScheduleEnded(String),
    /// The block of memory shared with the payload is invalid.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The machine ended before the window did, or had no result in time.
    #[error("the guest ended early: {0}")]
    EndedEarly(String),
    /// The watchdog found a vCPU that waits forever.
    #[error("{0}")]
    Stuck(String, Trace),
    /// The guest's initial RAM disk cannot be built.
    #[error(transparent)]
    Initrd(#[from] InitrdError),
    /// The guest's output cannot be parsed as a result.
    #[error("cannot read the guest's result {:?}: {error}", quote(.output))]
    Result {
        /// The complete output.
        output: String,
        /// The JSON parser's error.
        error: serde_json::Error,
    },
    /// The guest's output is longer than any result.
    #[error("the result of the guest is longer than {0}")]
    LongOutput(ByteSize),
    /// The guest reports impossible figures.
    #[error("the guest reports impossible figures: {0}")]
    Impossible(String),
    /// The guest's locks use another backend than requested.
    #[error("the guest's locks use backend '{reported}' instead of '{requested}'")]
    Backend {
        /// The backend that the guest reports.
        reported: String,
        /// The backend that the machine offers.
        requested: PvBackend,
    },
    /// The guest uses fewer or more CPUs than it has.
    #[error("the guest uses {reported} CPUs instead of {}", vcpus.get())]
    Vcpus {
        /// Number of CPUs that it uses.
        reported: usize,
        /// Number of CPUs that it has.
        vcpus: VcpuCount,
    },
    /// The guest's kernel uses spinlocks other than requested.
    #[error("the guest's locks are not {requested}: its kernel reports {}", quoted(.reported.as_deref()))]
    Spinlocks {
        /// The kernel's report about them.
        reported: Option<String>,
        /// The requested system.
        requested: System,
    },
    /// A program's output has no figure.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// The guest did not mark the start and end of the benchmark's window.
    #[error("the guest did not report the start and end of its benchmark")]
    NoWindow,
    /// No available kernel has the system.
    #[error("no available kernel has {0}")]
    NoKernel(System),
    /// The descriptor that interrupts the machine cannot be created.
    #[error("cannot set up an interrupt")]
    Descriptor(#[source] io::Error),
    /// Some vCPUs did not reach the start barrier in time.
    #[error("{arrived} of {} reached the start barrier within {} s{}", count(.vcpus.get(), "vCPU"), waited.as_secs(), describe_times(*times))]
    NotArrived {
        /// Number of vCPUs that arrived.
        arrived: u32,
        /// Number of vCPUs expected.
        vcpus: VcpuCount,
        /// The time limit.
        waited: Duration,
        /// CPU times of the vCPUs within the limit.
        times: ThreadTimes,
    },
}

fn quoted(report: Option<&str>) -> String {
    report.map_or_else(|| "no lock type".to_owned(), |report| format!("\"{report}\""))
}

/// Describes the CPU times of vCPUs within a time limit, which distinguish a hanging guest from a busy
/// host. Empty where the host's kernel does not count them.
pub(super) fn describe_times(times: ThreadTimes) -> String {
    let ThreadTimes { ran, waited, slices } = times;
    if slices == 0 {
        return String::new();
    }
    let [ran, waited] = [ran, waited].map(Nanos::seconds);
    format!("; the vCPUs ran for {ran:.1} s and waited for a CPU for {waited:.1} s")
}

/// A kind of guest that can be measured: the payload or Linux.
pub trait Cell {
    /// Builds the machines, measures, and takes them down.
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Measurement, CellError>;
}

impl<'a> RunSpec<'a> {
    /// Describes a cell under the host's scheduler, without replay, recording, trace or control groups.
    pub const fn new(point: &'a Point, method: &'a Method, cpus: &'a CpuList) -> Self {
        Self {
            point,
            machine: None,
            method,
            cpus,
            cgroups: &[],
            replay: None,
            record: false,
            trace: false,
            schedule: Schedule::Host,
        }
    }
}

impl RunSpec<'_> {
    /// The machines' faults, if any; none for native locks, which make no hypercalls.
    fn fault_plan(&self) -> Option<FaultPlan> {
        let faults = self.point.fault.filter(|_| self.point.backend != PvBackend::Off);
        faults.map(|spec| FaultPlan { spec, seed: self.point.seed })
    }

    /// Describes the point's first machine, with this guest. `is_ours` is as in [`Purpose::Cell`].
    pub(super) fn machine(&self, guest: GuestSpec, memory: ByteSize, is_ours: bool) -> MachineSpec {
        let Point { vcpus, backend, steal_time, fault, ple, .. } = self.point;
        // The schedule is ours or observed.
        let is_accounted = !matches!(self.schedule, Schedule::Host);
        let is_disturbed = is_accounted || fault.is_some();
        let purpose = Purpose::Cell { is_ours };
        MachineSpec {
            pv: *backend,
            steal: *steal_time,
            pause_exits: ple.map(|window| window != PleWindow::OFF),
            // A schedule of ours places the threads itself.
            affinity: self.point.policy.is_host().then(|| self.cpus.clone()),
            monitoring: LockMonitoring::for_machine(purpose, *backend, is_disturbed),
            host_counts: true,
            faults: self.fault_plan(),
            traced: self.trace,
            ..MachineSpec::new(*vcpus, memory, guest)
        }
    }
}

/// Returns the beginning of a guest's output, which may have any length.
fn quote(text: &str) -> Cow<'_, str> {
    const MAX_CHARS: usize = 300;
    match text.char_indices().nth(MAX_CHARS) {
        None => text.into(),
        Some((end, _)) => format!("{} ... (of {} bytes)", &text[..end], text.len()).into(),
    }
}

/// The error for a machine that ended before its time.
pub(super) fn ended_early(end: &End, messages: &str) -> CellError {
    match end {
        End::Failed(failure @ Failure { cause: Cause::Stuck(_, trace), .. }) => {
            CellError::Stuck(failure.to_string(), trace.clone())
        }
        _ => CellError::EndedEarly(describe_end(end, messages)),
    }
}

/// Describes how the machine ended, with a message of the guest: the line of a panic if there is one (a
/// panic's last lines carry no information), otherwise its last line.
fn describe_end(end: &End, messages: &str) -> String {
    let how = match end {
        End::Exit(status) => format!("the benchmark exited with status {status}"),
        End::Done(status) => format!("a vCPU exited with status {status}"),
        End::Failed(failure) => failure.to_string(),
        End::Panicked(_) => "panic".into(),
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
    fn timeout_error_reports_cpu_times() {
        let times =
            ThreadTimes { ran: Nanos::millis(1_460), waited: Nanos::millis(58_000), slices: 9 };
        let vcpus = VcpuCount::try_from(4).unwrap();
        let waited = Duration::from_secs(60);
        let error = CellError::NotArrived { arrived: 3, vcpus, waited, times };
        assert_eq!(
            error.to_string(),
            "3 of 4 vCPUs reached the start barrier within 60 s; the vCPUs ran for 1.5 s and waited for a CPU for 58.0 s"
        );
        assert_eq!(describe_times(ThreadTimes::default()), "", "this host does not count it");
    }

    #[test]
    fn early_end_quotes_the_guest() {
        assert_eq!(
            describe_end(&End::Exit(1), "booting\ninit: no such file\n\n"),
            "the benchmark exited with status 1; the guest's last line: init: no such file"
        );
        assert_eq!(describe_end(&End::Reset, ""), "Reset");
        let panic = "[1.0] Kernel panic - not syncing: why\n[1.1] Kernel Offset: disabled\n";
        assert_eq!(
            describe_end(&End::Panicked("why".into()), panic),
            "panic; the guest: [1.0] Kernel panic - not syncing: why"
        );
        let long = describe_end(&End::Reset, &"\u{e9}".repeat(1000));
        assert!(long.ends_with(" ... (of 2000 bytes)") && long.chars().count() < 400, "{long}");
    }
}
