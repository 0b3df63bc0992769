//! A run, whose cells are passed to workers on this host.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use crate::{
    engine::{self, Summary},
    open_run::OpenRun,
    plan::Plan,
    progress::Progress,
    worker_pool::{Traced, Workers},
};
use anyhow::Context;
use os::{
    runtime,
    signals::{Interrupt, Listener},
};

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// The file that the timelines of the first cells are appended to.
    pub trace: Option<&'a Path>,
    /// Whether to keep the timelines of the last cells.
    pub keeps_traces: bool,
    /// Whether to record the last schedule's decisions.
    pub records: bool,
    /// Whether the first failure ends the run.
    pub ends_at_failure: bool,
}

/// A run that has ended.
#[derive(Debug)]
pub struct RunResult {
    /// The store's directory.
    pub dir: PathBuf,
    /// Summary of the run.
    pub summary: Summary,
    /// Results in addition to the store.
    pub(crate) workers: Workers,
}

/// Measures the remaining cells of a run, whose store is in `dir`, by default in a directory named after its
/// spec and the time.
pub fn run(plan: Plan, dir: Option<&Path>, options: RunOptions<'_>) -> anyhow::Result<RunResult> {
    let runtime = runtime::build()?;
    // Before the store exists: signals must cause an orderly end at any stage.
    let stop = runtime.block_on(stop_listener())?;
    let mut open = plan.begin(dir, options.trace)?;
    let traced = match open.trace.take() {
        Some(file) => Traced::First(file),
        None if options.keeps_traces => Traced::Last(RefCell::default()),
        None => Traced::Nothing,
    };
    let workers = Workers::new(&open, traced, options.records)?;
    let summary = runtime.block_on(async {
        let OpenRun { experiment, finished, store, .. } = &mut open;
        let mut progress = Progress::new(experiment, finished, options.ends_at_failure);
        engine::run(experiment, finished, store, &workers, &mut progress, stop).await
    })?;
    Ok(RunResult { dir: open.dir, summary, workers })
}

/// Catches the signals that end a run. Must be called within a tokio runtime.
async fn stop_listener() -> anyhow::Result<Listener> {
    let listener = Interrupt::on_signals().and_then(|interrupt| interrupt.listener());
    listener.context("cannot catch Ctrl-C")
}
