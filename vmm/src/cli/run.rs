//! `pvticket run`: runs an experiment, from the spec to the report.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base::{
    plural::{agree, count},
    units::CpuList,
};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    Usage, confinement, eprint_line,
    host::{HostKernelArgs, host_parser, provide_all},
    print, report_command, slurm_script,
};
use experiment::doctor::topology::Topology;
use experiment::{
    cpus,
    host::topology,
    host_choice::HostMode,
    plan::{self, MAX_JOBS, Plan, Request, built_in},
    run::{self, RunOptions},
};
use os::signals;
use study::{
    findings::RunRecord,
    point::GuestKind,
    spec::{KeyValues, MAX_PARTS, Only, Part, SpecError},
    store::{Tally, parts::Parts},
};

/// Run an experiment: all combinations of a spec's values, repeated in interleaved order. Each cell is
/// stored when it ends; --resume continues an interrupted run
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Spec file or built-in spec: collapse, preemption, schedules, handoffs, seeds, league, pgbench, soak
    #[arg(value_name = "SPEC", required_unless_present = "resume", conflicts_with = "resume")]
    spec: Option<PathBuf>,

    /// Use the short form of a built-in spec: league, pgbench
    #[arg(long, requires = "spec")]
    quick: bool,

    /// Use a built-in spec's form for this guest: payload, linux or sim of league
    #[arg(long, value_name = "GUEST", requires = "spec", value_parser = guest_parser())]
    guest: Option<GuestKind>,

    /// Directory for the results [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    dir: Option<PathBuf>,

    /// Resume the run or comparison in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "host_kernel")]
    resume: Option<PathBuf>,

    /// With --resume: repeat failed cells, except BROKEN cells
    #[arg(long, value_name = "WHAT")]
    retry: Option<Retry>,

    /// Print the cells and the estimated time, and exit
    #[arg(long)]
    dry_run: bool,

    /// Run only cells with one of these values, e.g. vcpus=2x,4x; if repeated, all must match
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume", value_parser = KeyValues::parse_matrix)]
    only: Vec<KeyValues>,

    /// Number of concurrent cells, 1 to 64, each on its share of the CPUs; they may disturb each other
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "resume",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_JOBS)))]
    jobs: u16,

    #[arg(long, value_name = "LIST", conflicts_with = "resume", help = cpus::HELP)]
    cpus: Option<CpuList>,

    /// Host of the guests, unless the spec names it
    #[arg(long, value_parser = host_parser(), default_value_t = HostMode::Auto, conflicts_with = "resume")]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    /// Write a timeline of each point's first cell to this file, for ui.perfetto.dev and `pvticket trace`
    #[arg(long, value_name = "F")]
    trace: Option<PathBuf>,

    /// Measure part K of N of the rounds into a separate store in --dir; repeat the command to resume.
    /// report and export read all parts in that directory
    #[arg(long, value_name = "K/N", requires = "dir", conflicts_with_all = ["jobs", "trace"])]
    part: Option<Part>,

    /// Print a script for sbatch that measures the run in N parts, one per node
    #[arg(long, value_name = "N", requires = "dir", conflicts_with_all = ["part", "dry_run"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PARTS)))]
    slurm: Option<u32>,
}

/// Cells that are measured again when a run is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Retry {
    /// Failed cells.
    Failed,
}

impl Retry {
    /// Whether failed cells are measured again, which requires `--resume`. (clap ignores `requires` if the
    /// required option conflicts with a present one.)
    fn check(option: Option<Self>, resume: Option<&Path>) -> Result<bool, Usage> {
        match (option, resume) {
            (Some(Self::Failed), None) => Err(Usage("--retry: requires --resume DIR".into())),
            (option, _) => Ok(option.is_some()),
        }
    }
}

pub(super) fn guest_parser() -> impl TypedValueParser<Value = GuestKind> {
    let names = PossibleValuesParser::new(GuestKind::ALL.map(GuestKind::name));
    names.try_map(|name| name.parse::<GuestKind>())
}

impl RunArgs {
    /// The spec, in the form chosen by `--quick` and `--guest`.
    fn spec(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(spec) = self.spec.as_ref().filter(|_| self.quick || self.guest.is_some()) else {
            return Ok(self.spec.clone());
        };
        let guest = self.guest.unwrap_or(GuestKind::Payload);
        let form = built_in::form(&spec.display().to_string(), guest, self.quick)?;
        Ok(Some(form.into()))
    }

    /// The results directory, if named. Each part has a separate directory.
    fn store(&self) -> anyhow::Result<Option<PathBuf>> {
        let part = self.part.zip(self.dir.as_ref()).map(|(part, dir)| Parts::dir_of(dir, part));
        Ok(part.transpose()?.or_else(|| self.dir.clone()))
    }

    /// The plan with the remaining cells.
    pub(super) fn plan(&self, topology: &Topology) -> anyhow::Result<Plan> {
        let retry = Retry::check(self.retry, self.resume.as_deref())?;
        if let Some(dir) = &self.resume {
            return plan::resume(dir, retry);
        }
        let file = self.spec()?.context("no spec")?;
        let usage = |error: SpecError| Usage(format!("{}: {error}", file.display()));
        let request = Request {
            jobs: self.jobs,
            host: self.host,
            host_kernel: self.host_kernel.choice()?,
            only: Only::new(self.only.clone()),
            part: self.part,
            ..Request::from_file(&file, self.cpus.as_ref(), topology, usage)?
        };
        let plan = Plan::new(request, usage)?;
        match self.store()?.filter(|_| self.part.is_some()) {
            Some(dir) => plan.for_part(&dir),
            None => Ok(plan),
        }
    }
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &RunArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    if let Some((parts, dir)) = args.slurm.zip(args.dir.as_deref()) {
        args.spec()?;
        print(&slurm_script::text(parts, dir)?);
        return Ok(0);
    }
    let plan = args.plan(&topology())?;
    if args.dry_run {
        print(&plan.dry_run());
        return Ok(0);
    }
    provide_all(&plan)?;
    let dir = args.store()?;
    if let (true, Some(part)) = (plan.is_finished(), args.part) {
        eprint_line(format_args!("pvticket: part {part} is already complete"));
        return finish(dir.as_deref().unwrap_or(Path::new(".")), false);
    }
    let options = RunOptions { trace: args.trace.as_deref(), ..RunOptions::default() };
    let result = run::run(plan, dir.as_deref(), options)?;
    finish(&result.dir, result.summary.stopped)
}

/// Reports the run in `dir`, or the command that resumes it. The status covers the entire store.
fn finish(dir: &Path, stopped: bool) -> anyhow::Result<u8> {
    let record = RunRecord::read(dir)?;
    let tally = record.contents.tally();
    let Tally { done, failed, remaining, .. } = tally;
    let quoted_dir = base::sanitize::shell_quoted(&dir.display().to_string());
    let is_finished = !stopped && remaining == 0;
    if let (true, Some(part)) = (is_finished, record.contents.run.part) {
        let run_dir = dir.parent().unwrap_or(dir).display().to_string();
        print(&format!(
            "part {part}: {} done, {failed} failed; pvticket report {} reads all parts\n",
            count(done, "cell"),
            base::sanitize::shell_quoted(&run_dir)
        ));
    } else if is_finished {
        let page = report_command::report_run(record, dir)?;
        print(&format!(
            "\n{} done, {failed} failed; results: {quoted_dir}, page: {}\n",
            count(done, "cell"),
            page.display()
        ));
    } else {
        eprint_line(format_args!(
            "pvticket: {} {} left; resume with: pvticket run --resume {quoted_dir}",
            count(remaining, "cell"),
            agree(remaining, "is", "are")
        ));
    }
    report_command::check(tally)?;
    Ok(if is_finished { 0 } else { signals::exit_status() })
}
