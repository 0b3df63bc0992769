//! `pvticket run`: an experiment from its spec to its report.

use std::path::{Path, PathBuf};

use base::{
    plural::{agree, count},
    units::CpuList,
};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    Usage,
    confinement::SeccompArgs,
    host::{HostKernelArgs, modes},
    print, report_command, say,
};
use experiments::{
    cpus,
    host::HostMode,
    options::{RunOptions, SweepOptions},
    plan::{self, MOST_JOBS, built_in},
    run::{self, Outlets},
    sweep::{self, Ended, MOST_CPUS},
    workers::KernelFiles,
};
use lab::{host::topology, sweep::EngineKind};
use os::signals;
use study::{
    findings::RunRecord,
    point::GuestKind,
    spec::only::{One, OnlyError},
    store::Tally,
};

/// Run an experiment: every combination of the values in a spec, repeated, in an interleaved order.
/// Results are stored cell by cell; --resume continues a run that was ended early.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// A spec: a file, or a built-in one: collapse, preemption, seeds, league
    #[arg(value_name = "SPEC", required_unless_present = "resume", conflicts_with = "resume")]
    spec: Option<PathBuf>,

    /// The short form of a built-in spec that has one, as league
    #[arg(long, requires = "spec")]
    quick: bool,

    /// The form of a built-in spec for this guest, as payload, linux or sim of league
    #[arg(long, value_name = "GUEST", requires = "spec", value_parser = guests())]
    guest: Option<GuestKind>,

    /// With --guest sim: only cells of this simulated machine
    #[arg(long, value_name = "NAME", requires = "guest")]
    machine: Option<String>,

    /// Directory for the results [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    dir: Option<PathBuf>,

    /// Resume the run in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "host_kernel")]
    resume: Option<PathBuf>,

    /// With --resume: measure cells again that failed. A BROKEN one stays
    #[arg(long, value_name = "WHAT")]
    retry: Option<Retry>,

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

    #[arg(long, value_name = "LIST", conflicts_with = "resume", help = cpus::HELP)]
    cpus: Option<CpuList>,

    /// Where to run, if the spec does not say
    #[arg(long, value_parser = modes(), default_value_t = HostMode::Auto, conflicts_with = "resume")]
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
    kernels: KernelArgs,

    #[command(flatten)]
    sweep: SweepArgs,
}

/// Cells that are measured again when a run is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Retry {
    /// Those that failed.
    Failed,
}

impl Retry {
    /// Are cells measured again? Only a run that is resumed has some. (clap skips `requires` where the required
    /// option conflicts with a given one.)
    pub(super) fn of(option: Option<Self>, resume: Option<&Path>) -> Result<bool, Usage> {
        match (option, resume) {
            (Some(Self::Failed), None) => Err(Usage("--retry: add --resume DIR".into())),
            (option, _) => Ok(option.is_some()),
        }
    }
}

/// How the tasks of a sweep are started.
#[derive(Debug, Clone, Default, Args)]
struct SweepArgs {
    /// Run each round as a task of its own: in child processes (local), in a batch array of Slurm
    /// (slurm), or in whatever starts `pvticket task` for you (manual)
    #[arg(long, value_parser = engines(), value_name = "ENGINE",
          conflicts_with_all = ["trace", "listen", "jobs", "cpus"])]
    on: Option<EngineKind>,

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

/// The guest kernels that options name.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct KernelArgs {
    /// Linux: the kernel with ticketlocks, an ELF vmlinux or bzImage, if there is one guest kernel
    /// [default: that of `pvticket setup kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,

    /// Linux: the kernel with mainline's spinlocks, for locks other than ticket and pv-ticket
    /// [default: that of `pvticket setup kernel-stock`]
    #[arg(long, value_name = "F")]
    stock_kernel: Option<PathBuf>,
}

impl KernelArgs {
    /// The files.
    pub(super) fn files(&self) -> KernelFiles {
        KernelFiles { kernel: self.kernel.clone(), stock_kernel: self.stock_kernel.clone() }
    }
}

/// Reads a guest's name.
fn guests() -> impl TypedValueParser<Value = GuestKind> {
    let names = PossibleValuesParser::new(GuestKind::ALL.map(GuestKind::name));
    names.try_map(|name| GuestKind::ALL.into_iter().find(|guest| guest.name() == name).ok_or(name))
}

/// Reads an engine's name.
fn engines() -> impl TypedValueParser<Value = EngineKind> {
    let names = PossibleValuesParser::new(EngineKind::ALL.map(EngineKind::name));
    names.try_map(|name| name.parse::<EngineKind>())
}

impl RunArgs {
    /// The spec in the form that was asked for.
    fn spec(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(spec) = self.spec.as_ref().filter(|_| self.quick || self.guest.is_some()) else {
            return Ok(self.spec.clone());
        };
        let guest = self.guest.unwrap_or(GuestKind::Payload);
        let form = built_in::form(&spec.display().to_string(), guest, self.quick)?;
        Ok(Some(form.into()))
    }

    /// Which cells.
    fn only(&self) -> anyhow::Result<Vec<One>> {
        let machine = self.machine.as_ref().map(|name| format!("machines={name}").parse());
        let machine = machine.transpose().map_err(|error: OnlyError| Usage(error.to_string()))?;
        Ok(self.only.iter().cloned().chain(machine).collect())
    }

    pub(super) fn options(&self) -> anyhow::Result<RunOptions> {
        let SweepArgs { on, slurm, detach, node_cpus, unit_cells } = self.sweep.clone();
        Ok(RunOptions {
            spec: self.spec()?,
            dir: self.dir.clone(),
            resume: self.resume.clone(),
            retry: Retry::of(self.retry, self.resume.as_deref())?,
            only: self.only()?,
            jobs: self.jobs,
            cpus: self.cpus.clone(),
            host: self.host,
            host_kernel: self.host_kernel.choice(),
            kernels: self.kernels.files(),
            sweep: SweepOptions { on, slurm, detach, node_cpus, unit_cells },
        })
    }
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &RunArgs) -> anyhow::Result<u8> {
    args.seccomp.choose()?;
    let options = args.options()?;
    match sweep::run(&options, args.dry_run)? {
        Some(Ended::Text(text)) => {
            print(&text);
            return Ok(0);
        }
        Some(Ended::Status(status)) => return Ok(status),
        Some(Ended::Whole { dir }) => return finish(&dir, false),
        None => {}
    }
    let plan = plan::plan(&options, &topology())?;
    if args.dry_run {
        print(&plan.dry_run());
        return Ok(0);
    }
    let socket = args.listen.as_ref().map(Option::as_deref);
    let outlets = Outlets { socket, trace: args.trace.as_deref() };
    let (dir, summary) = run::run(plan, &options, outlets)?;
    finish(&dir, summary.stopped)
}

/// Reports the run in `dir`, or how to resume it. The status covers the whole store.
fn finish(dir: &Path, stopped: bool) -> anyhow::Result<u8> {
    let record = RunRecord::read(dir)?;
    let tally = record.contents.tally();
    let Tally { done, failed, left, .. } = tally;
    let shown = base::shown::quoted(&dir.display().to_string());
    let is_over = !stopped && left == 0;
    if is_over {
        let page = report_command::of_run(record, dir)?;
        print(&format!(
            "\n{} done, {failed} failed; in {shown}, its page is {}\n",
            count(done, "cell"),
            page.display()
        ));
    } else {
        say(format_args!(
            "pvticket: {} {} left; resume with: pvticket run --resume {shown}",
            count(left, "cell"),
            agree(left, "is", "are")
        ));
    }
    report_command::check(tally)?;
    Ok(if is_over { 0 } else { signals::exit_status() })
}
