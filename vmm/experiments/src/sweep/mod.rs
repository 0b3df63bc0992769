//! A sweep: a run whose rounds are tasks of their own, which an engine starts.

mod attach;
mod dry_run;
mod fix;
mod head;
mod screen;
mod status;
mod task;

use std::path::{Path, PathBuf};

use anyhow::bail;
use base::{shown::quoted, units::CpuList};

#[cfg(feature = "testing")]
use crate::plan::Plan;
use crate::{
    Usage,
    options::{RunOptions, SweepOptions},
    plan::Nodes,
};
use doctor::topology::{Topology, Wanted};
use head::Head;
use lab::{host::resolve_cpus, sweep::EngineKind};
use study::store;

pub use status::{Status, status};
pub use task::{TaskOptions, run as task};

/// Most CPUs of a task.
pub const MOST_CPUS: i64 = 1024;

/// How a sweep ended for the program that started or resumed it.
#[derive(Debug)]
pub enum Ended {
    /// Nothing ran; this is what the user asked to see, or has to do.
    Text(String),
    /// The tasks go on, or were ended early, as was said on stderr; this is the exit status.
    Status(u8),
    /// All units are done.
    Whole {
        /// The sweep's directory.
        dir: PathBuf,
    },
}

/// Where the tasks of an engine run.
const fn nodes(kind: EngineKind) -> Nodes {
    match kind {
        EngineKind::Local => Nodes::Local,
        EngineKind::Slurm | EngineKind::Manual => Nodes::Remote,
    }
}

/// The CPUs of a task: a number of them, whatever their numbers are on its node.
pub(crate) fn node_cpus(
    args: &RunOptions,
    nodes: Nodes,
    topology: &Topology,
) -> anyhow::Result<CpuList> {
    let count = match (args.sweep.node_cpus, nodes) {
        (Some(count), _) => count as usize,
        (None, Nodes::Here | Nodes::Local) => {
            resolve_cpus(topology, None, Wanted::Default).map_err(Usage::from)?.cpus.cpus().len()
        }
        (None, Nodes::Remote) => bail!(Usage(
            "--node-cpus N is needed: on how many CPUs do the cells of a task run? Ratios such as \
             2x refer to them"
                .into()
        )),
    };
    Ok(CpuList::new(&Vec::from_iter(0..count)).map_err(Usage::from)?)
}

/// Runs a sweep, or with `dry_run` describes it, if a sweep is what these options ask for.
pub fn run(args: &RunOptions, dry_run: bool) -> anyhow::Result<Option<Ended>> {
    let SweepOptions { on, slurm, detach, .. } = &args.sweep;
    let stored = args.resume.as_deref().map(store::read_head).transpose()?;
    let resumed = args.resume.as_deref().zip(stored.and_then(|(_, sweep)| sweep));
    let head = match (resumed, on) {
        (Some(_), _) if args.retry => bail!(Usage(
            "--retry: the units of a sweep are whole once their cells have ended; measure these points in a run of their own \
             (--only)"
                .into()
        )),
        (Some((dir, sweep)), _) => Head::resumed(dir, sweep, on.as_ref())?,
        (None, Some(_)) if args.resume.is_some() => {
            bail!(Usage("--on: the run was not started as a sweep; resume it without".into()))
        }
        (None, Some(kind)) => Head::planned(args, *kind)?,
        (None, None) if slurm.is_some() || *detach => {
            let option = if *detach { "--detach" } else { "--slurm" };
            bail!(Usage(format!("{option}: add --on slurm")))
        }
        (None, None) => return Ok(None),
    };
    head.check_options(&args.sweep, &args.kernels)?;
    if dry_run {
        let slurm = args.sweep.slurm.as_deref();
        return dry_run::text(&head, slurm, args.dir.as_deref()).map(Ended::Text).map(Some);
    }
    attach::run(head, args).map(Some)
}

/// Plans the rest of the sweep in `dir`; `None` if the run there is not a sweep.
#[cfg(feature = "testing")]
pub fn resumed(dir: &Path) -> anyhow::Result<Option<Plan>> {
    let (_, sweep) = store::read_head(dir)?;
    sweep.map(|sweep| Ok(Head::resumed(dir, sweep, None)?.plan)).transpose()
}

/// A path as an argument in a command to be copied.
fn shown(dir: &Path) -> String {
    quoted(&dir.display().to_string())
}
