//! A worker: runs the cells that it is told to, one after the other.

use std::{
    io::{self, BufRead, Read, Write},
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::ValueEnum;
use hypercalls::payload;
use thiserror::Error;

use super::{
    super::{
        Cell, CellError, GuestWorkload, Interrupt, LinuxCell, PayloadCell, Sample,
        cell::RunSpec,
        host::LoadWatch,
        live::LiveObserver,
        plan::{self, PlanError},
        point::GuestKind,
        store::record::Outcome,
        timeline::Timeline,
    },
    job::{Ended, Job, WorkerMessage},
    live_reporter::LiveReporter,
};
use crate::{
    clock,
    guest::kernels::Kernels,
    sched::ScheduleSpec,
    units::{ByteSize, CpuList},
};

/// Bytes of a cell's trace at most. The worker has it three times, at the worst in the memory of the
/// emulated host; a million yields are three times as much.
pub const MOST_TRACE: ByteSize = ByteSize::mib(64);

/// Bytes of a job at most, as a line.
const LONGEST_JOB: u64 = 1 << 20;

/// Jobs that wait for the one under way. A run gives one at a time.
const JOBS_AHEAD: usize = 4;

/// A worker that cannot go on.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// What it was told is no job.
    #[error("cannot understand a job: {0}")]
    Job(#[from] serde_json::Error),
    /// A line that was cut, of no use even if what there is of it makes sense.
    #[error("a job is longer than {}", ByteSize(LONGEST_JOB))]
    LongJob,
    /// Nobody listens.
    #[error("cannot say what a cell gave: {0}")]
    Say(#[from] io::Error),
}

/// Why a cell cannot be begun.
#[derive(Debug, Error)]
enum JobError {
    #[error(transparent)]
    Cpus(#[from] PlanError),
    #[error("{wanted} slots: this host has {there} CPUs ({cpus})")]
    Slots { wanted: u32, there: usize, cpus: CpuList },
    #[error("the guest has no workload {0}")]
    Workload(String),
}

/// Draws what happened in a run, as a part of a trace's file: its number there, its title.
pub type Draw<'a> = &'a dyn Fn(u32, &str, &Timeline) -> io::Result<Vec<u8>>;

/// Runs jobs from `input` until it ends, and says on `output` what each gave. An end of the input
/// aborts the cell that is being run.
pub fn work(
    kernels: &Kernels,
    draw: Draw<'_>,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    interrupt: &Interrupt,
) -> Result<(), WorkerError> {
    for line in lines(input, interrupt.clone()) {
        if line.len() as u64 == LONGEST_JOB && line.last() != Some(&b'\n') {
            return Err(WorkerError::LongJob);
        }
        let job: Job = serde_json::from_slice(&line)?;
        say(&mut output, &WorkerMessage::Begun { cell: job.cell })?;
        let teller = LiveReporter::new(job.cell, &mut output);
        let onlooker: &dyn LiveObserver = &teller;
        let onlooker = job.live.then_some(onlooker);
        let ended = Task { job: &job, kernels, draw, interrupt, onlooker }.run();
        say(&mut output, &WorkerMessage::Ended(Box::new(ended)))?;
    }
    Ok(())
}

pub(super) fn say(output: &mut dyn Write, word: &WorkerMessage) -> Result<(), WorkerError> {
    let mut text = serde_json::to_vec(word)?;
    text.push(b'\n');
    output.write_all(&text)?;
    Ok(output.flush()?)
}

/// The input's lines, read by a thread, so that its end is seen at once. A line that is longer than
/// any job is cut, and then is none.
fn lines(mut input: impl BufRead + Send + 'static, interrupt: Interrupt) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::sync_channel(JOBS_AHEAD);
    thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            let read = (&mut input).take(LONGEST_JOB).read_until(b'\n', &mut line);
            if !read.is_ok_and(|count| count > 0) || send.send(line).is_err() {
                break;
            }
        }
        interrupt.raise();
    });
    receive
}

/// A job with what it takes.
struct Task<'a> {
    job: &'a Job,
    kernels: &'a Kernels,
    draw: Draw<'a>,
    interrupt: &'a Interrupt,
    onlooker: Option<&'a dyn LiveObserver>,
}

impl Task<'_> {
    fn run(&self) -> Ended {
        let at_ms = clock::since_1970();
        let began = Instant::now();
        let cpus = cpus(self.job);
        let watch = cpus.as_ref().ok().map(LoadWatch::start);
        let (outcome, timeline) = match &cpus {
            Err(error) => (failed(error), None),
            Ok(cpus) => self.measure(cpus),
        };
        Ended {
            cell: self.job.cell,
            at_ms,
            took: began.elapsed().as_secs_f64(),
            load: watch.map(LoadWatch::end).unwrap_or_default(),
            outcome,
            trace: timeline.map(|timeline| self.drawn(&timeline)),
        }
    }

    /// In base64. A trace that cannot be drawn is a trace less.
    fn drawn(&self, timeline: &Timeline) -> Result<String, String> {
        let title = format!("cell {}: {}", self.job.cell, self.job.point);
        let drawn = (self.draw)(self.job.cell, &title, timeline);
        drawn.map(|bytes| BASE64_STANDARD.encode(bytes)).map_err(|error| error.to_string())
    }

    fn measure(&self, cpus: &CpuList) -> (Outcome, Option<Arc<Timeline>>) {
        let cell = match cell(self.job, self.kernels) {
            Ok(cell) => cell,
            Err(error) => return (failed(&error), None),
        };
        let outcome = match self.sample(cpus, cell.as_ref()) {
            Ok(mut sample) => {
                let timeline = sample.timeline.take();
                return (Outcome::Done { figures: Box::new(sample.into()) }, timeline);
            }
            Err(CellError::Interrupted) => Outcome::Aborted,
            Err(CellError::Stuck(error, trace)) => {
                let error = error.replace('\n', " ");
                Outcome::Failed { error, trace: trace.0 }
            }
            Err(error) => failed(&error),
        };
        (outcome, None)
    }

    fn sample(&self, cpus: &CpuList, cell: &dyn Cell) -> Result<Sample, CellError> {
        let Job { point, method, trace, .. } = self.job;
        let schedule =
            ScheduleSpec::new(point.policy.clone(), cpus.cpus().to_vec(), point.slice, point.seed);
        let spec = RunSpec {
            vcpus: point.vcpus,
            vms: point.vms,
            cpus,
            system: Some(point.lock),
            backend: point.backend,
            handoff: point.handoff,
            schedule,
            faults: point.fault,
            warm_up: method.warm_up,
            duration: point.duration,
            trace: *trace,
            onlooker: self.onlooker,
        };
        cell.run(&spec, self.interrupt)
    }
}

fn cpus(job: &Job) -> Result<CpuList, JobError> {
    let asked = job.cpus.as_ref().map(|cpus| CpuList::new(cpus)).transpose();
    let cpus = plan::resolve_cpus(asked.map_err(|_| PlanError::Allowed)?)?;
    let (wanted, there) = (job.point.slots, cpus.cpus().len());
    match wanted as usize <= there && wanted > 0 {
        true => Ok(cpus.first(wanted as usize)),
        false => Err(JobError::Slots { wanted, there, cpus }),
    }
}

fn failed(error: &dyn ToString) -> Outcome {
    Outcome::Failed { error: error.to_string().replace('\n', " "), trace: String::new() }
}

fn cell(job: &Job, kernels: &Kernels) -> Result<Box<dyn Cell>, JobError> {
    let point = &job.point;
    let unknown = || JobError::Workload(point.workload.clone());
    Ok(match point.guest {
        GuestKind::Payload => {
            let mut workloads = payload::Workload::OF_LOCKS.iter();
            let found = workloads.find(|(_, name, _)| *name == point.workload);
            Box::new(PayloadCell {
                workload: found.ok_or_else(unknown)?.0,
                spin_threshold: point.spin_threshold,
                critical: point.critical,
                think: point.think,
                sum_every: job.method.sum_every,
                timed: job.method.timed,
            })
        }
        GuestKind::Linux => {
            let mut workloads = GuestWorkload::value_variants().iter();
            let found = workloads.find(|workload| workload.name() == point.workload);
            Box::new(LinuxCell {
                kernels: kernels.clone(),
                workload: *found.ok_or_else(unknown)?,
                spin_threshold: point.spin_threshold,
                critical: point.critical,
                think: point.think,
            })
        }
    })
}
