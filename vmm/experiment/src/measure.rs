//! Measures an experiment that a command defines itself (`compare`, `reproduce`), with the engine of
//! `run`: worker processes, a store, and a study.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::{
    engine::Summary,
    plan::Plan,
    run::{self, RunOptions},
};
use base::{
    io_errors::without_path,
    plural::{agree, count},
    sanitize,
};
use machine::vcpu::Trace;
use os::{
    signals,
    streams::{self, Stream},
};
use study::{
    findings::{RunRecord, Study},
    store,
};

/// The directory of a store.
#[derive(Debug)]
pub enum Folder {
    /// Named by the user, and kept.
    Named(PathBuf),
    /// Created for this command, and removed on drop.
    Temporary(TempDir),
}

impl Folder {
    /// Returns the directory with this name, or a new temporary one.
    pub fn new(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(dir) = dir {
            return Ok(Self::Named(dir));
        }
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("pvticket-").tempdir().map_err(without_path);
        let place =
            || format!("cannot create a temporary directory in {}", env::temp_dir().display());
        Ok(Self::Temporary(dir.with_context(place)?))
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    /// Whether it has a run to resume. A temporary store without a cell does not count.
    pub fn is_resumable(&self) -> bool {
        match self {
            Self::Named(dir) => dir.join(store::FILE).exists(),
            Self::Temporary(dir) => {
                store::read(dir.path()).is_ok_and(|store| !store.cells.is_empty())
            }
        }
    }

    /// Keeps the directory, and returns its path.
    pub fn keep(self) -> PathBuf {
        match self {
            Self::Named(dir) => dir,
            Self::Temporary(dir) => dir.keep(),
        }
    }
}

/// Result of a command's measurement.
#[derive(Debug)]
pub struct Measured {
    /// The store's contents.
    pub record: RunRecord,
    /// Summary of the run.
    pub summary: Summary,
    /// The traces, concatenated.
    pub traces: Vec<u8>,
    /// The recording of the last schedule, if requested.
    pub recording: Option<Vec<u8>>,
}

/// Runs the remaining cells of an experiment, with its store in `folder`.
pub fn measure(plan: Plan, folder: &Folder, options: RunOptions<'_>) -> anyhow::Result<Measured> {
    let result = run::run(plan, Some(folder.path()), options)?;
    Ok(Measured {
        record: RunRecord::read(&result.dir)?,
        summary: result.summary,
        traces: result.workers.traces(),
        recording: result.workers.recording(),
    })
}

/// Prints the vCPUs' last events to stderr, where the error that names the stuck vCPUs follows.
pub fn show_events(trace: &Trace) {
    // A closed stderr is ignored.
    let _ = streams::write(Stream::Stderr, sanitize::lines(&trace.0).as_bytes());
}

/// Fails on a broken lock or a failed cell. Returns 0, or the exit status of an interrupted run.
pub fn exit_status(summary: &Summary, study: &Study) -> anyhow::Result<u8> {
    let (violations, disorder) = study.failures();
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
    Ok(if summary.stopped || summary.remaining > 0 { signals::exit_status() } else { 0 })
}
