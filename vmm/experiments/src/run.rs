//! A run: its cells are given to workers on this host.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use anyhow::Context;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    listen,
    open_run::OpenRun,
    plan::Plan,
    progress::Progress,
    tee::Tee,
    workers::{KernelFiles, Traced, Workers},
};
use lab::run::{self, Order, Summary, control::serve, status::Board};
use os::{runtime, signals::Interrupt};

/// Results of a run besides its store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outlets<'a> {
    /// A control socket at this path; Some(None): in the run's directory.
    pub socket: Option<Option<&'a Path>>,
    /// The file that the timelines of the first cells are appended to.
    pub trace: Option<&'a Path>,
    /// Keep the timelines of the last cells.
    pub keeps_traces: bool,
    /// Record the last schedule's decisions.
    pub records: bool,
    /// The first failure ends the run.
    pub ends_at_failure: bool,
}

/// A run that has ended, or was ended.
#[derive(Debug)]
pub struct Ran {
    /// The directory of its store.
    pub dir: PathBuf,
    /// How it ended.
    pub summary: Summary,
    /// Its results besides the store.
    pub(crate) workers: Workers,
}

/// Carries out what is left of a run, whose store is in `dir`, by default in a directory that its spec and the time
/// name.
pub fn run(
    plan: Plan,
    dir: Option<&Path>,
    kernels: &KernelFiles,
    outlets: Outlets<'_>,
) -> anyhow::Result<Ran> {
    let runtime = runtime::build()?;
    // Before the store exists: signals must end in order whatever has begun.
    let (send, orders) = runtime.block_on(orders())?;
    // The socket, too, if its path is known: a run that cannot listen leaves nothing on the disk.
    let named = outlets.socket.flatten();
    let socket = named.map(|path| runtime.block_on(listen::listen(path))).transpose()?;
    let mut begun = plan.begin(dir, kernels, outlets.trace)?;
    let socket = match (socket, outlets.socket) {
        (None, Some(_)) => Some(runtime.block_on(listen::listen(&begun.dir.join(listen::NAME)))?),
        (socket, _) => socket,
    };
    let traced = match begun.trace.take() {
        Some(file) => Traced::First(file),
        None if outlets.keeps_traces => Traced::Last(RefCell::default()),
        None => Traced::Nothing,
    };
    let workers = Workers::new(&begun, traced, outlets.records)?;
    let summary = runtime.block_on(async {
        let OpenRun { experiment, finished, failed, store, dir, jobs, .. } = &mut begun;
        let mut progress = Progress::new(experiment, finished, outlets.ends_at_failure);
        let Some(socket) = socket else {
            return run::run(experiment, finished, store, &workers, &mut progress, orders).await;
        };
        let board = Board::new(experiment, finished, *failed, *jobs as usize, dir);
        let server = tokio::spawn(serve(socket.listener(), board.subscribe(), send));
        let mut both = Tee { progress, board };
        let ran = run::run(experiment, finished, store, &workers, &mut both, orders).await;
        both.board.over();
        // The server sends the last status to its clients and ends.
        let _ = server.await;
        ran
    })?;
    Ok(Ran { dir: begun.dir, summary, workers })
}

/// The channel of the user's orders: signals send to it, and so does the control socket.
async fn orders() -> anyhow::Result<(UnboundedSender<Order>, UnboundedReceiver<Order>)> {
    let (send, orders) = mpsc::unbounded_channel();
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let listener = interrupt.listener().context("cannot catch Ctrl-C")?;
    let sender = send.clone();
    tokio::spawn(async move {
        listener.raised().await;
        // The receiver is dropped when the run is over.
        let _ = sender.send(Order::Stop);
    });
    Ok((send, orders))
}
