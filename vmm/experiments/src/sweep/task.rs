//! `pvticket task DIR --unit N`: one unit of a sweep, whatever starts it.

use std::{
    collections::HashSet,
    env,
    fmt::Write as _,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, bail};
use base::{files, plural::count, units::CpuList};
use rustix::{
    process::{Pid, Signal, getppid, set_parent_process_death_signal},
    system::uname,
};
use thiserror::Error;

use super::{fix, head::stored_engine, nodes, shown};
use crate::{
    Usage,
    host::{self, GuestClass, with_note_of_quota},
    open_run::OpenRun,
    plan::stored,
    prepare::Prepared,
    progress::Progress,
    run::orders,
    workers::{Traced, Workers},
};
use doctor::topology::Wanted;
use kvm::KvmKind;
use lab::{
    host::{binary_facts, gather_facts, kernel_facts, resolve_cpus, topology, with_files},
    run::{self, Order, Watcher},
    sweep::dir::SweepDir,
};
use machine::clock;
use os::{runtime, signals, streams::say};
use study::{
    guest::kernels::{KernelFile, Kernels},
    host::FileFacts,
    point::{HostKind, Point},
    spec::{Experiment, PlannedCell},
    store::{
        self, Store, StoreError,
        record::{CellLine, RunLine, SessionLine},
        sweep::{
            End,
            record::{Attempt, SweepLine, Unit},
        },
    },
};

/// Maximum number of parts whose names differ only in a number at the end.
const MOST_ALIKE: u32 = 1000;

/// A task: one unit of a sweep that was prepared in a directory. Any scheduler may start it, on any node that sees the
/// directory; a unit that is done already is not run again.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// The sweep's directory.
    pub dir: PathBuf,
    /// The unit's number, from 0.
    pub unit: u32,
    /// The submission that the task belongs to.
    pub submission: u32,
    /// The process that started the task; the task ends when this process ends.
    pub parent: Option<u32>,
}

/// Why a node cannot run the unit.
#[derive(Debug, Error)]
enum Refusal {
    #[error(
        "this pvticket ({found}) is not the one that the sweep was planned with ({planned}); start \
         {program}"
    )]
    Program { found: String, planned: String, program: String },
    #[error(
        "{file} has the sum {found}, not {planned} as when the sweep was planned; start the sweep anew"
    )]
    Kernel { file: String, found: String, planned: String },
    #[error(
        "this task may use {} ({cpus}), and its unit needs {wanted}: ask for whole nodes that have as many",
        count(*.there, "CPU")
    )]
    Cpus { wanted: u32, there: usize, cpus: CpuList },
    #[error(
        "there is no /dev/kvm: ask the administrator to load kvm_intel or kvm_amd (with \
         virtualization on in the firmware), or ask for nodes that have it (--slurm \
         '--constraint=kvm', if that is their feature's name)"
    )]
    NoKvm,
    #[error(
        "/dev/kvm may not be opened: ask the administrator for mode 0666 on the nodes, or for your \
         user in its group in the directory service (jobs do not have the groups of your shell)"
    )]
    KvmDenied,
    #[error(transparent)]
    Kernels(host::CannotRunKernels),
}

/// Is the submission told to stop? It is if its stop file exists.
fn is_stopped(file: &Path) -> anyhow::Result<bool> {
    files::is_there(file).with_context(|| format!("cannot look for {}", file.display()))
}

/// Runs the unit and returns the exit status.
pub fn run(args: &TaskOptions) -> anyhow::Result<u8> {
    if !bound_to(args.parent) {
        return Ok(signals::status_of(Signal::TERM.as_raw()));
    }
    let (head, sweep) = store::read_head(&args.dir)?;
    let shown = shown(&args.dir);
    let sweep = sweep.ok_or_else(|| {
        Usage(format!("{shown} is not a sweep: prepare one with pvticket run SPEC --on ENGINE"))
    })?;
    let unit = *sweep.units.get(args.unit as usize).ok_or_else(|| {
        let units = match sweep.units.len().checked_sub(1) {
            Some(last) => format!("has units 0 to {last}"),
            None => "has no units".to_owned(),
        };
        Usage(format!("--unit {}: {shown} {units}", args.unit))
    })?;
    let dir = SweepDir::new(&args.dir)?;
    let number = args.unit;
    if is_done(&dir, &sweep, number)? {
        say(format_args!("pvticket: unit {number} is done already"));
        return Ok(0);
    }
    if is_stopped(&dir.stop_file(args.submission))? {
        bail!("unit {number}: the sweep was stopped; pvticket run --resume {shown} continues it");
    }
    let node = node();
    let engine = stored_engine(&args.dir, &sweep.engine)?;
    let experiment = stored(&args.dir, &head.run, &[], nodes(engine))?;
    let kernels = fix::kept(&dir, &sweep);
    let cpus = fits(&dir, &sweep, &kernels, &experiment)
        .with_context(|| format!("unit {number}: node {node}"))?;
    let task = Task { args, run: head.run, sweep, unit, dir, node, kernels, cpus };
    task.run(experiment)
}

/// Has SIGTERM sent to this task when its parent ends. False: the parent has ended already.
fn bound_to(parent: Option<u32>) -> bool {
    let Some(parent) = parent else { return true };
    // This cannot fail here: it only fails for signals that do not exist.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    getppid().map(Pid::as_raw_pid) == i32::try_from(parent).ok()
}

/// Has any attempt at the unit completed all of its cells?
fn is_done(dir: &SweepDir, sweep: &SweepLine, unit: u32) -> Result<bool, StoreError> {
    let prefix = format!("{unit}.");
    let names = store::sweep::names(dir.path())?;
    Ok(names.iter().filter(|name| name.starts_with(&prefix)).any(|name| {
        let part = store::sweep::read_part(dir.path(), name, sweep);
        part.end == End::Whole && part.attempt().is_some_and(|attempt| attempt.unit == unit)
    }))
}

/// This node's name: Slurm's name if there is one, as several Slurm nodes may be one machine.
fn node() -> String {
    let name = env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| uname().nodename().to_string_lossy().into_owned())
}

/// The CPUs to use, if this node can run the unit.
fn fits(
    dir: &SweepDir,
    sweep: &SweepLine,
    kernels: &Kernels,
    experiment: &Experiment,
) -> anyhow::Result<CpuList> {
    let binary = binary_facts().context("cannot read this program's own file")?;
    if binary.sha256 != sweep.binary.sha256 {
        let (found, planned) = (binary.sha256, sweep.binary.sha256.clone());
        bail!(Refusal::Program { found, planned, program: super::shown(&dir.program()) });
    }
    for ((_, _, planned), file) in sweep.kernels().zip(kernels.iter()) {
        check_kernel(planned, file.path())?;
    }
    let wanted = Wanted::Count(sweep.cpus as usize);
    let cpus = resolve_cpus(&topology(), None, wanted).map_err(Usage::from)?.cpus;
    let available = cpus.cpus().len();
    if available < sweep.cpus as usize {
        bail!(Refusal::Cpus { wanted: sweep.cpus, there: available, cpus });
    }
    if sweep.kvm {
        check_kvm(experiment)?;
    }
    Ok(cpus)
}

fn check_kernel(planned: &FileFacts, file: &Path) -> anyhow::Result<()> {
    let found = kernel_facts(file).with_context(|| format!("cannot read {}", file.display()))?;
    if found.sha256 != planned.sha256 {
        let (file, planned) = (found.path, planned.sha256.clone());
        bail!(Refusal::Kernel { file, found: found.sha256, planned });
    }
    Ok(())
}

fn check_kvm(experiment: &Experiment) -> Result<(), Refusal> {
    match KvmKind::detect() {
        KvmKind::Absent => Err(Refusal::NoKvm),
        KvmKind::Denied => Err(Refusal::KvmDenied),
        kind => {
            let direct = experiment.points.iter().filter(|point| point.host == HostKind::Direct);
            let class = if direct.into_iter().any(Point::needs_ring_0) {
                GuestClass::Ring0
            } else {
                GuestClass::Payload
            };
            host::check_direct(class, kind).map_err(Refusal::Kernels)
        }
    }
}

/// A unit that this node can run.
struct Task<'a> {
    args: &'a TaskOptions,
    run: RunLine,
    sweep: SweepLine,
    unit: Unit,
    dir: SweepDir,
    node: String,
    kernels: Kernels,
    cpus: CpuList,
}

impl Task<'_> {
    fn run(self, experiment: Experiment) -> anyhow::Result<u8> {
        let runtime = runtime::build()?;
        let (_send, orders) = runtime.block_on(orders())?;
        let others = (0..self.run.cells).filter(|cell| !self.unit.has(*cell));
        let finished: HashSet<u32> = others.collect();
        let store = self.part()?;
        let mut begun = OpenRun {
            experiment,
            finished,
            failed: 0,
            store,
            dir: self.dir.path().to_owned(),
            cpus: self.cpus,
            jobs: 1,
            host_kernel: self.run.host_kernel,
            kernels: self.kernels,
            recording: None,
            trace: None,
            prepared: Prepared::default(),
        };
        let workers = Workers::new(&begun, Traced::Nothing, false)?;
        let OpenRun { experiment, finished, store, .. } = &mut begun;
        let progress = Progress::new(experiment, finished, false).of_unit();
        let stop = self.dir.stop_file(self.args.submission);
        let mut watcher = Stoppable { progress, stop };
        let summary = run::run(experiment, finished, store, &workers, &mut watcher, orders);
        let summary = runtime.block_on(summary)?;
        if summary.left > 0 || summary.stopped {
            say(format_args!("pvticket: unit {} was ended early", self.args.unit));
            return Ok(signals::exit_status());
        }
        drop(watcher);
        begun.store.end_part(self.args.unit, self.unit)?;
        Ok(0)
    }

    /// Creates the part of the store that this attempt writes.
    fn part(&self) -> Result<Store, StoreError> {
        let restart = env::var("SLURM_RESTART_COUNT").ok().and_then(|text| text.parse().ok());
        let restart: u32 = restart.unwrap_or(0);
        let TaskOptions { unit, submission, .. } = self.args;
        let session = SessionLine {
            at_ms: clock::since_1970(),
            command: self.sweep.command.clone(),
            host: with_files(
                with_note_of_quota(gather_facts(&self.cpus), &self.cpus),
                self.kernels.iter().map(KernelFile::path),
            ),
            attempt: Some(Attempt {
                sweep: self.sweep.id.clone(),
                unit: *unit,
                submission: *submission,
                restart,
                node: self.node.clone(),
                job: job(),
            }),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let node: String =
            self.node.chars().map(|c| if is_plain(c) { c } else { '-' }).take(64).collect();
        let mut name = format!("{unit}.{submission}.{restart}.{node}.{}", process::id());
        let plain = name.len();
        let mut number = 1;
        loop {
            match Store::part(self.dir.path(), &name, session.clone()) {
                // A part has this name already: PIDs may repeat, as in containers.
                Err(error) if error.is_taken() && number < MOST_ALIKE => {
                    number += 1;
                    name.truncate(plain);
                    // Writing to a string cannot fail.
                    let _ = write!(name, ".{number}");
                }
                made => return made,
            }
        }
    }
}

/// Slurm's name for this task, to be shown to people; None outside of Slurm.
fn job() -> Option<String> {
    let array = env::var("SLURM_ARRAY_JOB_ID").ok()?;
    Some(format!("{array}_{}", env::var("SLURM_ARRAY_TASK_ID").ok()?))
}

/// Shows progress, and begins no further cell once the submission is told to stop.
struct Stoppable<'a> {
    progress: Progress<'a>,
    stop: PathBuf,
}

impl Watcher for Stoppable<'_> {
    fn started(&mut self, cell: &PlannedCell, point: &Point) {
        self.progress.started(cell, point);
    }

    fn ended(&mut self, line: &CellLine) {
        self.progress.ended(line);
    }

    fn died(&mut self, cell: &PlannedCell, reason: &str) {
        self.progress.died(cell, reason);
    }

    fn has_enough(&self) -> bool {
        is_stopped(&self.stop).unwrap_or_else(|error| {
            // An order to stop could not be seen either: the remaining cells are left to a resumed sweep.
            say(format_args!("pvticket: {error:#}: no further cell is begun"));
            true
        })
    }

    fn ordered(&mut self, order: Order) {
        self.progress.ordered(order);
    }
}
