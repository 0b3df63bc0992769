//! `pvticket run`: an experiment from its spec to its report.

mod listen;
mod open_run;
mod plan;
mod progress;
mod ready;
mod sweep;
mod tee;
mod workers;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base::{
    plural::{agree, count},
    units::CpuList,
};
use clap::Args;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::{
    FAILURE,
    confinement::SeccompArgs,
    host::{HostKernelArgs, HostMode},
    print, report_command, say,
};
use lab::run::{self, Order, Summary, control::serve, status::Board};
use open_run::OpenRun;
use os::{
    runtime,
    signals::{self, Interrupt},
};
use study::spec::only::One;
use tee::Tee;

pub(super) use listen::NAME as SOCKET;
pub(super) use open_run::RUNS;
pub(super) use plan::{Plan, Request, resumed};
pub(super) use progress::Progress;
#[cfg(feature = "testing")]
pub(super) use sweep::resumed as resumed_sweep;
pub(super) use sweep::{SweepArgs, TaskArgs, status, task};
pub(super) use workers::{KernelFiles, Traced, Workers};

/// Largest number of cells at the same time.
const MOST_JOBS: u16 = 64;

/// Run an experiment: every combination of the values in a spec, repeated, in an interleaved order.
/// Results are stored cell by cell; --resume continues a run that was ended early.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// A spec: a file, or a built-in one: collapse, preemption, seeds
    #[arg(value_name = "SPEC", required_unless_present = "resume", conflicts_with = "resume")]
    spec: Option<PathBuf>,

    /// Directory for the results [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    dir: Option<PathBuf>,

    /// Resume the run in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "host_kernel")]
    resume: Option<PathBuf>,

    /// Print the cells and how long they may take, and exit
    #[arg(long)]
    dry_run: bool,

    /// Only cells with one of these values, for example vcpus=2x,4x; several must all hold
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    only: Vec<One>,

    /// Cells to run at the same time, each on its share of the CPUs; they may disturb each other
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "resume",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_JOBS)))]
    jobs: u16,

    /// Host CPUs that carry the vCPUs, for example 0,2-5 [default: all]
    #[arg(long, value_name = "LIST", conflicts_with = "resume")]
    cpus: Option<CpuList>,

    /// Where to run, if the spec does not say
    #[arg(long, value_enum, default_value_t = HostMode::Auto, conflicts_with = "resume")]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    #[command(flatten)]
    seccomp: SeccompArgs,

    /// Serve status, pause, resume, stop and live figures on a Unix socket (see pvticket top)
    /// [default path: control.sock in the run's directory]
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    listen: Option<Option<PathBuf>>,

    /// Write a timeline of each point's first cell to this file, for ui.perfetto.dev and
    /// pvticket trace
    #[arg(long, value_name = "F")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    kernels: KernelFiles,

    #[command(flatten)]
    sweep: SweepArgs,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &RunArgs) -> anyhow::Result<u8> {
    args.seccomp.choose()?;
    if let Some(status) = sweep::run(args)? {
        return Ok(status);
    }
    let plan = plan::plan(args)?;
    if args.dry_run {
        print(&plan.dry_run());
        return Ok(0);
    }
    let runtime = runtime::build()?;
    // Before the store exists: signals must end in order whatever has begun.
    let (send, orders) = runtime.block_on(orders())?;
    // The socket, too, if its path is known: a run that cannot listen leaves nothing on the disk.
    let named = args.listen.as_ref().and_then(Option::as_ref);
    let socket = named.map(|path| runtime.block_on(listen::listen(path))).transpose()?;
    let mut begun = plan.begin(args.dir.as_deref(), &args.kernels, args.trace.as_deref())?;
    let socket = match (socket, &args.listen) {
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
    finish(&begun.dir, summary)
}

/// The channel of the user's orders: signals send to it, and so does the control socket.
pub(super) async fn orders() -> anyhow::Result<(UnboundedSender<Order>, UnboundedReceiver<Order>)> {
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

fn finish(dir: &Path, summary: Summary) -> anyhow::Result<u8> {
    let Summary { done, failed, left, broken, stopped } = summary;
    let shown = base::shown::quoted(&dir.display().to_string());
    if stopped || left > 0 {
        say(format_args!(
            "pvticket: {} {} left; resume with: pvticket run --resume {shown}",
            count(left, "cell"),
            agree(left, "is", "are")
        ));
        return Ok(signals::exit_status());
    }
    let page = report_command::of_run(dir)?;
    print(&format!(
        "\n{} done, {failed} failed; in {shown}, its page is {}\n",
        count(done, "cell"),
        page.display()
    ));
    if broken > 0 {
        bail!(
            "in {} a lock failed its checks (violations, disorder): this is a bug",
            count(broken, "cell")
        );
    }
    match failed {
        0 => Ok(0),
        _ => Ok(FAILURE),
    }
}

/// A path as printed in commands and errors.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
