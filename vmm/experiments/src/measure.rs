//! Measures an experiment that a command makes up itself (`compare`, `bench`), by the engine
//! of `run`: worker processes, a store, and a study of it.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::{
    Usage,
    host::{HostKernelChoice, HostMode},
    plan::{Plan, Request},
    progress::Progress,
    run::stop_listener,
    workers::{KernelFiles, Traced, Workers},
};
use base::{
    guest_kernel::GuestKernel,
    io_errors::without_path,
    plural::{agree, count},
    shown,
    units::CpuList,
};
use lab::run::{self, Summary};
use machine::vcpu::Trace;
use os::{
    runtime, signals,
    streams::{self, Stream},
};
use study::{
    findings::{RunRecord, Study},
    spec::Only,
    store,
};

/// The directory of a store.
#[derive(Debug)]
pub enum Folder {
    /// Named by the user, and kept.
    Named(PathBuf),
    /// Made for this command, and removed with this value.
    Temporary(TempDir),
}

impl Folder {
    /// The directory of that name, or a new temporary one.
    pub fn new(named: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(dir) = named {
            return Ok(Self::Named(dir));
        }
        let mut new = tempfile::Builder::new();
        let dir = new.prefix("pvticket-").tempdir().map_err(without_path);
        let place =
            || format!("cannot make a temporary directory in {}", env::temp_dir().display());
        Ok(Self::Temporary(dir.with_context(place)?))
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    /// Is there anything in it to go on with? A temporary store without a cell is nothing.
    pub fn is_worth_keeping(&self) -> bool {
        match self {
            Self::Named(dir) => dir.join(store::FILE).exists(),
            Self::Temporary(dir) => {
                store::read(dir.path()).is_ok_and(|store| !store.cells.is_empty())
            }
        }
    }

    /// Keeps it; gives its path.
    pub fn keep(self) -> PathBuf {
        match self {
            Self::Named(dir) => dir,
            Self::Temporary(dir) => dir.keep(),
        }
    }
}

/// What a command asks for besides the figures.
pub struct Asked {
    /// Which cells are traced.
    pub traced: Traced,
    /// Record the last schedule's decisions.
    pub record: bool,
    /// The first failure ends the run.
    pub ends_at_failure: bool,
}

/// What a command has measured.
#[derive(Debug)]
pub struct Measured {
    /// The store's contents.
    pub record: RunRecord,
    /// How the run ended.
    pub summary: Summary,
    /// The traces, one after the other.
    pub traces: Vec<u8>,
    /// The recording of the last schedule.
    pub recording: Option<Vec<u8>>,
}

/// Runs what is left of an experiment, with its store in `folder`.
pub fn measure(
    plan: Plan,
    folder: &Folder,
    kernels: &KernelFiles,
    asked: Asked,
) -> anyhow::Result<Measured> {
    let runtime = runtime::build()?;
    // Before the store exists: signals must end the run in order from its first moment.
    let stop = runtime.block_on(stop_listener())?;
    let mut begun = plan.begin(Some(folder.path()), kernels, None)?;
    let workers = Workers::new(&begun, asked.traced, asked.record)?;
    let summary = runtime.block_on(async {
        let (experiment, finished, store) = begun.parts();
        let mut progress = Progress::new(experiment, finished, asked.ends_at_failure);
        run::run(experiment, finished, store, &workers, &mut progress, stop).await
    })?;
    Ok(Measured {
        record: RunRecord::read(folder.path())?,
        summary,
        traces: workers.traces(),
        recording: workers.recording(),
    })
}

/// The plan for specs that are measured together, in one order and with one correction.
pub fn plan_of(
    name: &str,
    specs: &[String],
    cpus: CpuList,
    (host, host_kernel): (HostMode, HostKernelChoice),
) -> anyhow::Result<Plan> {
    let part = |spec: &String| {
        let (name, spec, cpus) = (name.to_owned(), spec.clone(), cpus.clone());
        let (jobs, guest_kernel, only, part) = (1, GuestKernel::default(), Only::default(), None);
        let request =
            Request { name, spec, cpus, jobs, host, host_kernel, guest_kernel, only, part };
        Plan::new(request, |error| Usage(error.to_string()))
    };
    let mut parts = specs.iter().map(part);
    let mut plan = parts.next().context("nothing to measure")??;
    for part in parts {
        plan.add(part?.experiment);
    }
    Ok(plan)
}

/// Measures a plan in a temporary store.
pub fn measure_plan(plan: Plan, traced: Traced) -> anyhow::Result<Measured> {
    let asked = Asked { traced, record: false, ends_at_failure: true };
    measure(plan, &Folder::new(None)?, &KernelFiles::default(), asked)
}

/// Prints the vCPUs' last events; the error that names the stuck vCPUs follows.
pub fn show_events(trace: &Trace) {
    // A closed stderr is ignored.
    let _ = streams::write(Stream::Stderr, shown::lines(&trace.0).as_bytes());
}

/// A broken lock or a failed cell is an error; an interrupted comparison has its own exit status.
pub fn finish(summary: &Summary, study: &Study) -> anyhow::Result<u8> {
    let (violations, disorder) = study.broken();
    if violations > 0.0 {
        bail!("mutual exclusion failed {}: this is a bug", count(violations, "time"));
    }
    if disorder > 0.0 {
        bail!(
            "{} {} served out of order: this is a bug",
            count(disorder, "ticket"),
            agree(disorder, "was", "were")
        );
    }
    for lost in &study.lost {
        if let Some(error) = &lost.error {
            if !lost.trace.is_empty() {
                show_events(&Trace(lost.trace.clone()));
            }
            bail!("cell {}: {}: {error}", lost.cell, lost.point);
        }
    }
    Ok(if summary.stopped || summary.left > 0 { signals::exit_status() } else { 0 })
}
