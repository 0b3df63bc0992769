//! A run: its cells are given to workers on this host.

use std::path::{Path, PathBuf};

use crate::{
    open_run::OpenRun,
    options::RunOptions,
    plan::Plan,
    progress::Progress,
    workers::{Traced, Workers},
};
use anyhow::Context;
use lab::run::{self, Summary};
use os::{
    runtime,
    signals::interrupt::{Interrupt, Listener},
};

/// Carries out what is left of a run, and appends the timelines of the first cells to the file
/// `trace`; returns its directory, and how it ended.
pub fn run(
    plan: Plan,
    options: &RunOptions,
    trace: Option<&Path>,
) -> anyhow::Result<(PathBuf, Summary)> {
    let runtime = runtime::build()?;
    // Before the store exists: signals must end in order whatever has begun.
    let stop = runtime.block_on(stop_listener())?;
    let mut begun = plan.begin(options.dir.as_deref(), &options.kernels, trace)?;
    let traced = begun.trace.take().map_or(Traced::Nothing, Traced::First);
    let workers = Workers::new(&begun, traced, false)?;
    let summary = runtime.block_on(async {
        let (experiment, finished, store) = begun.parts();
        let mut progress = Progress::new(experiment, finished, false);
        run::run(experiment, finished, store, &workers, &mut progress, stop).await
    })?;
    Ok((begun.dir, summary))
}

/// Catches the signals that end a run. Call it within a tokio runtime.
pub(crate) async fn stop_listener() -> anyhow::Result<Listener> {
    let listener = Interrupt::on_signals().and_then(|interrupt| interrupt.listener());
    listener.context("cannot catch Ctrl-C")
}
