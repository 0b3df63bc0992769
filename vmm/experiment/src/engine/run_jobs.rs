//! Runs the jobs of a worker process, one cell at a time.

use std::{
    error::Error,
    fmt,
    io::{self, BufRead, Write},
    sync::Arc,
    time::Instant,
};

use base::{
    chain::chain,
    plural::count,
    units::{ByteSize, CpuList, UnitError, VcpuCount, VcpuId},
};
use hypercalls::payload;

use super::{
    super::{
        Cell, CellError, Interrupt, LinuxCell, Measurement, PayloadCell,
        cell::{RunSpec, simulated},
        host::{
            LoadWatch, allowed_cpus,
            cgroups::{OpenGroups, ThreadFiles},
            hop,
        },
    },
    job::{Bytes, Ended, Extras, Job, WorkerMessage},
    job_lines::{LONGEST_JOB, NoReader, lines},
};
use machine::{
    clock,
    driver::ScheduleSpec,
    vm::{Observer, Schedule, ScheduleError, abandoned},
};
use os::limits;
use sched::recording::Recording;
use study::{
    disturbance::Disturbance,
    guest::kernels::Kernels,
    plan::{PlanError, check_cpus},
    point::{GuestKind, Point},
    store::record::{Figures, Load, Outcome},
    timeline::Timeline,
};

/// Maximum size of a cell's trace. The worker holds three copies of it, at worst in the memory of the
/// emulated host. (A million yields would take three times as much.)
pub const MAX_TRACE: ByteSize = ByteSize::mib(64);

/// Maximum number of times that a cell is measured again because its window was stopped.
const RETRIES: u32 = 2;

/// Errors that end a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A line cannot be parsed as a job.
    #[error("cannot parse a job")]
    Job(#[from] serde_json::Error),
    /// The line was truncated; it is rejected even if the rest parses.
    #[error("a job is longer than {}", ByteSize(LONGEST_JOB))]
    LongJob,
    /// The output is closed.
    #[error("cannot write a cell's result")]
    Write(#[from] io::Error),
    /// A thread of an earlier cell still runs; another worker has to continue.
    #[error("{0} of an earlier cell still runs")]
    Abandoned(VcpuId),
    /// The worker's jobs cannot be read.
    #[error(transparent)]
    NoReader(#[from] NoReader),
}

/// Errors when starting a cell.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error(transparent)]
    Cpus(#[from] PlanError),
    #[error("{}: this host has {} ({cpus})", count(*.wanted, "slot"), count(*.available, "CPU"))]
    Slots { wanted: u32, available: usize, cpus: CpuList },
    #[error("the guest has no workload {0}")]
    Workload(String),
    #[error(transparent)]
    Vcpus(#[from] UnitError),
    #[error("the worker has no such control groups")]
    NoCgroups,
}

/// Renders a timeline as part of a trace file, with its number in the file and its title.
pub type Draw<'a> = &'a dyn Fn(u32, &str, &Timeline) -> io::Result<Vec<u8>>;

/// Resources with which a worker runs its cells.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// The guest kernels.
    pub kernels: &'a Kernels,
    /// The recording that the policy `replay` follows.
    pub recording: Option<&'a Arc<Recording>>,
    /// Renders timelines.
    pub draw: Draw<'a>,
    /// Control groups; None if no cell needs them.
    pub cgroups: Option<&'a OpenGroups>,
    /// The observer of the host's scheduler, or the reason for its absence; None if no cell needs it.
    pub observer: Option<&'a Result<Observer, String>>,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("kernels", &self.kernels).finish_non_exhaustive()
    }
}

/// Runs jobs from `input` until it ends, and writes their results to `output`. The end of the input aborts
/// the current cell.
pub fn work(
    tools: Tools<'_>,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    interrupt: &Interrupt,
) -> Result<(), WorkerError> {
    for line in lines(input, interrupt.clone())? {
        let job = parse(&line)?;
        if let Some(vcpu) = abandoned::wait(abandoned::TIMEOUT, || interrupt.raised()) {
            return Err(WorkerError::Abandoned(vcpu));
        }
        let prepared = Prepared { cpus: cpus(&job), started: Ok(None) };
        run(&job, tools, &mut output, interrupt, prepared)?;
    }
    Ok(())
}

/// State of a job before it runs.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The job's CPUs. A schedule that has been started keeps this process's own threads off them.
    pub(super) cpus: Result<CpuList, JobError>,
    /// The job's schedule, if it has been started.
    pub(super) started: Result<Option<Schedule>, ScheduleError>,
}

pub(super) fn parse(line: &[u8]) -> Result<Job, WorkerError> {
    if line.len() as u64 == LONGEST_JOB && line.last() != Some(&b'\n') {
        return Err(WorkerError::LongJob);
    }
    Ok(serde_json::from_slice(line)?)
}

pub(super) fn run(
    job: &Job,
    tools: Tools<'_>,
    output: &mut dyn Write,
    interrupt: &Interrupt,
    prepared: Prepared,
) -> Result<(), WorkerError> {
    send(output, &WorkerMessage::Begun { cell: job.cell })?;
    let ended = PreparedJob { job, tools, interrupt, prepared }.run();
    send(output, &WorkerMessage::Ended(Box::new(ended)))
}

pub(super) fn send(output: &mut dyn Write, message: &WorkerMessage) -> Result<(), WorkerError> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    output.write_all(&text)?;
    Ok(output.flush()?)
}

/// A job and the resources needed to run it.
struct PreparedJob<'a> {
    job: &'a Job,
    tools: Tools<'a>,
    interrupt: &'a Interrupt,
    prepared: Prepared,
}

impl PreparedJob<'_> {
    fn run(&self) -> Ended {
        let at_ms = clock::unix_millis();
        let began = Instant::now();
        let cpus = &self.prepared.cpus;
        let hop_before = self.hop();
        let watch = cpus.as_ref().ok().map(LoadWatch::start);
        let CellResult { outcome, timeline, recording } = match cpus {
            Err(error) => failed(error).into(),
            Ok(cpus) => self.measure(cpus),
        };
        let load = watch.map(LoadWatch::end).unwrap_or_default();
        Ended {
            cell: self.job.cell,
            at_ms,
            took: began.elapsed().as_secs_f64(),
            load: Load { hop_before, hop_after: self.hop(), ..load },
            outcome,
            trace: timeline.map(|timeline| self.render_trace(&timeline)),
            recording,
        }
    }

    /// Measures the current hop time of a cache line between the cell's CPUs.
    fn hop(&self) -> Option<f64> {
        let is_real = self.job.point.guest != GuestKind::Sim;
        self.prepared.cpus.as_ref().ok().filter(|_| is_real).and_then(hop::measure)
    }

    /// If this fails, the cell still has its figures.
    fn render_trace(&self, timeline: &Timeline) -> Result<Bytes, String> {
        let Job { cell, point, .. } = self.job;
        let simulated = if point.guest == GuestKind::Sim { "SIMULATED " } else { "" };
        let title = format!("{simulated}cell {cell}: {point}");
        let trace = (self.tools.draw)(self.job.cell, &title, timeline);
        trace.map(Bytes).map_err(|error| chain(&error))
    }

    fn measure(&self, cpus: &CpuList) -> CellResult {
        let Job { cell: number, point, .. } = self.job;
        if point.guest == GuestKind::Sim {
            let spec = spec(self.job, self.tools, cpus);
            return match simulated::simulate(&spec, *number, self.interrupt) {
                Ok(measurement) => self.finish(measurement),
                Err(simulated::SimCellError::Interrupted) => Outcome::Aborted.into(),
                Err(error) => failed(&error).into(),
            };
        }
        let cell = match cell(self.job, self.tools.kernels) {
            Ok(cell) => cell,
            Err(error) => return failed(&error).into(),
        };
        let cgroups = match self.cgroups() {
            Ok(cgroups) => cgroups,
            Err(error) => return failed(&error).into(),
        };
        let started = match &self.prepared.started {
            Ok(started) => started.as_ref(),
            Err(error) => return failed(error).into(),
        };
        let measure = || {
            let start = || start(point, cpus, self.tools, self.job.extras);
            let schedule = started.cloned().map_or_else(start, Ok)?;
            let spec = RunSpec { cgroups, schedule, ..spec(self.job, self.tools, cpus) };
            cell.run(&spec, self.interrupt)
        };
        // A schedule started before the cell serves only its first attempt, as this process may load no other
        // into the host's kernel. The report notes a stopped window.
        let mut retries_left = if started.is_none() { RETRIES } else { 0 };
        let measured = loop {
            match measure() {
                Ok(measurement) if retries_left > 0 && was_stopped(point, &measurement.figures) => {
                    retries_left -= 1;
                }
                result => break result,
            }
        };
        match measured {
            Ok(measurement) => self.finish(measurement),
            Err(CellError::Interrupted) => Outcome::Aborted.into(),
            Err(CellError::Stuck(error, trace)) => {
                let error = error.replace('\n', " ");
                Outcome::Failed { error, trace: trace.0 }.into()
            }
            Err(error) => failed(&error).into(),
        }
    }

    /// Returns the control groups that the point requests.
    fn cgroups(&self) -> Result<&[ThreadFiles], JobError> {
        if self.job.point.cgroups.is_none() {
            return Ok(&[]);
        }
        let open = self.tools.cgroups.and_then(|open| open.files(&self.job.point));
        open.ok_or(JobError::NoCgroups)
    }

    fn finish(&self, measurement: Measurement) -> CellResult {
        let Measurement { mut figures, timeline, recording } = measurement;
        if self.job.point.is_to_be_observed() {
            match self.tools.observer {
                Some(Ok(observer)) => figures.no_yields = observer.no_yields().map(Into::into),
                Some(Err(reason)) => figures.unobserved = Some(reason.clone()),
                None => {}
            }
        }
        let recording = recording.filter(|_| self.job.extras.recording);
        let outcome = Outcome::Done { figures: Box::new(figures) };
        CellResult { outcome, timeline, recording: recording.as_ref().map(serialize_recording) }
    }
}

fn spec<'a>(job: &'a Job, tools: Tools<'_>, cpus: &'a CpuList) -> RunSpec<'a> {
    let Job { point, machine, method, extras, .. } = job;
    RunSpec {
        machine: machine.as_deref(),
        replay: tools.recording.cloned(),
        record: extras.recording,
        trace: extras.trace,
        ..RunSpec::new(point, method, cpus)
    }
}

/// Starts the schedule of a point's machines, observed if the point asks for it and `tools` have an observer.
pub(super) fn start(
    point: &Point,
    cpus: &CpuList,
    tools: Tools<'_>,
    extras: Extras,
) -> Result<Schedule, ScheduleError> {
    let observer = tools.observer.and_then(|observer| observer.as_ref().ok());
    let observer = observer.filter(|_| !point.observe_off);
    start_schedule(point, cpus, tools.recording, extras, observer)
}

/// Starts the schedule of a point's machines. `recording` is the recording that the policy `replay` follows.
pub(crate) fn start_schedule(
    point: &Point,
    cpus: &CpuList,
    recording: Option<&Arc<Recording>>,
    extras: Extras,
    observer: Option<&Observer>,
) -> Result<Schedule, ScheduleError> {
    let spec = ScheduleSpec {
        recording: recording.cloned(),
        record: extras.recording,
        ..ScheduleSpec::new(point.policy.clone(), cpus.cpus().to_vec(), point.slice, point.seed)
    };
    let vcpus: Vec<u32> = point.sizes().map(VcpuCount::get).collect();
    Schedule::start(point.driver, &spec, &vcpus, extras.trace, observer)
}

/// Whether the window was stopped, which may not happen again.
fn was_stopped(point: &Point, figures: &Figures) -> bool {
    Disturbance::new(point, [figures].into_iter()).is_stop()
}

struct CellResult {
    outcome: Outcome,
    timeline: Option<Timeline>,
    recording: Option<Bytes>,
}

impl From<Outcome> for CellResult {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, timeline: None, recording: None }
    }
}

fn serialize_recording(recording: &Recording) -> Bytes {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = recording.write(&mut bytes);
    Bytes(bytes)
}

pub(super) fn cpus(job: &Job) -> Result<CpuList, JobError> {
    let allowed = allowed_cpus()?;
    if job.point.guest == GuestKind::Sim {
        // A simulation runs on any CPU.
        return Ok(allowed);
    }
    let cpus = match &job.cpus {
        None => allowed,
        Some(list) => {
            let list = CpuList::new(list).map_err(|_| PlanError::Allowed)?;
            check_cpus(&list, &allowed)?;
            list
        }
    };
    let (wanted, available) = (job.point.slots, cpus.cpus().len());
    if wanted as usize <= available && wanted > 0 {
        Ok(cpus.first(wanted as usize))
    } else {
        Err(JobError::Slots { wanted, available, cpus })
    }
}

fn failed(error: &dyn Error) -> Outcome {
    let error = limits::with_advice(chain(error).replace('\n', " "));
    Outcome::Failed { error, trace: String::new() }
}

fn cell(job: &Job, kernels: &Kernels) -> Result<Box<dyn Cell>, JobError> {
    let point = &job.point;
    let unknown = || JobError::Workload(point.workload.clone());
    // Only a simulated machine may exceed the limit of vCPUs.
    VcpuCount::try_from(point.vcpus.get())?;
    Ok(match point.guest {
        GuestKind::Payload => {
            let mut workloads = payload::Workload::OF_LOCKS.iter();
            let workload = workloads.find(|(_, name, _)| *name == point.workload);
            Box::new(PayloadCell { workload: workload.ok_or_else(unknown)?.0 })
        }
        // Guests of this kind are simulated, without a cell.
        GuestKind::Sim => return Err(unknown()),
        GuestKind::Linux => {
            let workload = point.guest_workload().ok_or_else(unknown)?;
            Box::new(LinuxCell { kernels: kernels.clone(), workload })
        }
    })
}
