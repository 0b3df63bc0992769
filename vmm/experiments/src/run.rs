//! A run: its cells are given to workers on this host.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    listen,
    open_run::OpenRun,
    options::RunOptions,
    plan::Plan,
    progress::Progress,
    tee::Tee,
    workers::{Traced, Workers},
};
use lab::run::{self, Order, Summary, control::serve, status::Board};
use os::{runtime, signals::Interrupt};

/// What a run gives while its cells are measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outlets<'a> {
    /// A control socket at this path; Some(None): in the run's directory.
    pub socket: Option<Option<&'a Path>>,
    /// The file that the timelines of the first cells are appended to.
    pub trace: Option<&'a Path>,
}

/// Carries out what is left of a run; returns its directory, and how it ended.
pub fn run(
    plan: Plan,
    options: &RunOptions,
    outlets: Outlets<'_>,
) -> anyhow::Result<(PathBuf, Summary)> {
    let runtime = runtime::build()?;
    // Before the store exists: signals must end in order whatever has begun.
    let (send, orders) = runtime.block_on(orders())?;
    // The socket, too, if its path is known: a run that cannot listen leaves nothing on the disk.
    let named = outlets.socket.flatten();
    let socket = named.map(|path| runtime.block_on(listen::listen(path))).transpose()?;
    let mut begun = plan.begin(options.dir.as_deref(), &options.kernels, outlets.trace)?;
    let socket = match (socket, outlets.socket) {
        (None, Some(_)) => Some(runtime.block_on(listen::listen(&begun.dir.join(listen::NAME)))?),
        (socket, _) => socket,
    };
    let traced = begun.trace.take().map_or(Traced::Nothing, Traced::First);
    let workers = Workers::new(&begun, traced, false)?;
    let summary = runtime.block_on(async {
        let OpenRun { experiment, finished, failed, store, dir, jobs, .. } = &mut begun;
        let mut progress = Progress::new(experiment, finished, false);
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
    Ok((begun.dir, summary))
}

/// The channel of the user's orders: signals send to it, and so does the control socket.
pub(crate) async fn orders() -> anyhow::Result<(UnboundedSender<Order>, UnboundedReceiver<Order>)> {
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
