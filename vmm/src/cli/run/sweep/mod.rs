//! `pvticket run --on ENGINE`: a run whose rounds are tasks of their own.

mod attach;
mod dry_run;
mod fix;
mod head;
mod screen;
mod status;
mod task;

use std::path::Path;

use anyhow::bail;
use base::{shown::quoted, units::CpuList};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

#[cfg(feature = "testing")]
use super::Plan;
use super::{RunArgs, plan::Nodes};
use crate::cli::{Usage, print};
use head::Head;
use lab::{host::resolve_cpus, sweep::EngineKind};
use study::store;

pub(in crate::cli) use status::status;
pub(in crate::cli) use task::{TaskArgs, run as task};

/// Most CPUs of a task.
const MOST_CPUS: i64 = 1024;

/// How the tasks of a sweep are started.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct SweepArgs {
    /// Run each round as a task of its own: in child processes (local), in a batch array of Slurm
    /// (slurm), or in whatever starts `pvticket task` for you (manual)
    #[arg(long, value_parser = engines(), value_name = "ENGINE",
          conflicts_with_all = ["trace", "listen", "jobs", "cpus"])]
    pub(super) on: Option<EngineKind>,

    /// Options for sbatch, for example '--partition=long --account=lab --constraint=kvm'
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    slurm: Option<String>,

    /// Leave the tasks to Slurm and return; `pvticket status DIR` shows how far they are
    #[arg(long)]
    detach: bool,

    /// CPUs that each task uses, which its node must have
    #[arg(long, value_name = "N", requires = "on", conflicts_with = "resume",
          value_parser = clap::value_parser!(u32).range(1..=MOST_CPUS))]
    node_cpus: Option<u32>,

    /// Simulated cells of a task [default: about a minute's]
    #[arg(long, value_name = "N", requires = "on", conflicts_with = "resume",
          value_parser = clap::value_parser!(u32).range(1..))]
    unit_cells: Option<u32>,
}

/// Reads an engine's name.
fn engines() -> impl TypedValueParser<Value = EngineKind> {
    let names = PossibleValuesParser::new(EngineKind::ALL.map(EngineKind::name));
    names.try_map(|name| name.parse::<EngineKind>())
}

/// Where the tasks of an engine run.
const fn nodes(kind: EngineKind) -> Nodes {
    match kind {
        EngineKind::Local => Nodes::Local,
        EngineKind::Slurm | EngineKind::Manual => Nodes::Remote,
    }
}

/// The CPUs of a task: a number of them, whatever their numbers are on its node.
pub(super) fn node_cpus(args: &RunArgs, nodes: Nodes) -> anyhow::Result<CpuList> {
    let count = match (args.sweep.node_cpus, nodes) {
        (Some(count), _) => count as usize,
        (None, Nodes::Here | Nodes::Local) => resolve_cpus(None).map_err(Usage::from)?.cpus().len(),
        (None, Nodes::Remote) => bail!(Usage(
            "--node-cpus N is needed: on how many CPUs do the cells of a task run? Ratios such as \
             2x refer to them"
                .into()
        )),
    };
    Ok(CpuList::new(&Vec::from_iter(0..count)).map_err(Usage::from)?)
}

/// Runs a sweep, if that is what these options ask for.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<Option<u8>> {
    let SweepArgs { on, slurm, detach, .. } = &args.sweep;
    let stored = args.resume.as_deref().map(store::read_head).transpose()?;
    let resumed = args.resume.as_deref().zip(stored.and_then(|(_, sweep)| sweep));
    let head = match (resumed, on) {
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
    if args.dry_run {
        print(&dry_run::text(&head, args.sweep.slurm.as_deref(), args.dir.as_deref())?);
        return Ok(Some(0));
    }
    attach::run(head, args).map(Some)
}

/// Plans the rest of the sweep in `dir`; `None` if the run there is not a sweep.
#[cfg(feature = "testing")]
pub(in crate::cli) fn resumed(dir: &Path) -> anyhow::Result<Option<Plan>> {
    let (_, sweep) = store::read_head(dir)?;
    sweep.map(|sweep| Ok(Head::resumed(dir, sweep, None)?.plan)).transpose()
}

/// A path as an argument in a command to be copied.
fn shown(dir: &Path) -> String {
    quoted(&dir.display().to_string())
}
