//! `pvticket compare`: compares native and PV ticketlocks, or any other locks, under overcommit. The options
//! become a spec for the engine of `run`.

mod keys;
pub(super) mod options;
mod workload;

use std::path::PathBuf;

use clap::{Arg, Args, builder::NonEmptyStringValueParser};

use super::{
    confinement, eprint_line,
    host::{HostKernelArgs, guest_kernel_value, host_parser, provide_all},
    print,
    report_command::columns,
    results::ResultFile,
    run::guest_parser,
    schedule::{ScheduleArgs, write_record},
    trace,
};
use base::{backend::PvBackend, sanitize::shell_quoted, units::CpuList};
use experiment::{
    host_choice::HostMode,
    measure::{Folder, Measured, exit_status, measure},
    plan::{self, Plan},
    run::RunOptions,
};
use keys::KeyOptions;
use report::{
    document::Document,
    words::text::{self, Form},
};
use sched::{PolicySpec, policy::POLICIES, recording::Recording};
use study::{
    findings::Study,
    guest::systems::Systems,
    plan::{Level, Seconds},
    point::GuestKind,
    spec::KeyValues,
    store,
};
use workload::workloads;

/// Compare native and PV ticketlocks, or any other locks, while all vCPUs contend for one lock on fewer CPUs.
/// Runs of the locks alternate, each in a new VM
#[derive(Debug, Clone, Args)]
#[command(mut_args(conflict_with_resume), mut_arg("policy", list_policies))]
pub struct CompareArgs {
    #[command(flatten)]
    comparison: ComparisonArgs,

    /// Directory for the results, as with `pvticket run` [default: a temporary directory, kept if the
    /// comparison fails or is interrupted]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Resume the comparison in this directory (`pvticket run --resume DIR --retry failed` repeats failed
    /// cells)
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,

    /// Write the results to this file in the format of `pvticket export --json`
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Write a timeline of the last round (a run of each kind at each number of vCPUs) to this file, for
    /// ui.perfetto.dev and `pvticket trace`
    #[arg(long, value_name = "F")]
    trace: Option<PathBuf>,
}

/// Makes all options except those for outputs conflict with `--resume`: the store has them.
fn conflict_with_resume(option: Arg) -> Arg {
    const WITH_RESUME: [&str; 3] = ["resume", "json", "trace"];
    if WITH_RESUME.contains(&option.get_id().as_str()) {
        option
    } else {
        option.conflicts_with("resume")
    }
}

/// The options that define a comparison.
#[derive(Debug, Clone, Args)]
struct ComparisonArgs {
    /// vCPUs of the machine, 1 to 128, or vCPUs per slot (2x)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1x,1.5x,2x,4x",
        allow_hyphen_values = true
    )]
    vcpus: Vec<Level>,

    /// Host CPUs of the slots, in order, e.g. 0,2-5 [default: at most 16 of one socket, one thread per core
    /// first]; with --guest sim the number of CPUs [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Guest: payload (in ring 3, on any KVM), linux (spin_lock in a Linux guest, by a kernel thread on each
    /// vCPU) or sim (the lock library on a simulated --machine, without KVM)
    #[arg(long, value_name = "GUEST", value_parser = guest_parser(), default_value = GuestKind::Payload.name())]
    guest: GuestKind,

    /// With --guest linux: kernels of the guests, 6.1, 6.12 or 7 (`pvticket setup kernel-6.1`), or files as
    /// NAME=PATH or PATH: bzImage, vmlinux, build directory or Debian package [default: 6.12]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = guest_kernel_value)]
    guest_kernel: Vec<String>,

    /// With --guest sim: the machine, from the list of `pvticket sim` or a file (see vmm/sim/README.md). The
    /// figures describe the simulator and that file
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,

    /// Workload of the guest [default: lock, with kernel files eventfd]
    #[arg(long, value_name = "WORKLOAD", value_parser = workloads())]
    workload: Option<String>,

    /// With --guest linux: a program of yours and its arguments instead of a workload; may be repeated. DIR travels
    /// into the guest, which has busybox, or --root DIR as its root. Its figure is its runs a second, or the number
    /// in the group of --rate REGEX in its output (after 1/: seconds)
    #[arg(long, value_name = "DIR/COMMAND ARGS", conflicts_with = "workload",
          value_parser = NonEmptyStringValueParser::new())]
    program: Vec<String>,

    /// With --program: the figure is the run time, as without this option, or with =REGEX the seconds in its output
    #[arg(long, value_name = "REGEX", num_args = 0..=1, require_equals = true, default_missing_value = "",
          requires = "program")]
    seconds_of: Option<String>,

    /// Measured time of a run in seconds [default: 0.5 for the payload, 0.8 for Linux, 0.1 in simulations]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seconds: Option<Seconds>,

    /// Runs of each lock at each number of vCPUs, 1 to 100000 [default: 10 for the payload, 6 for Linux and
    /// simulations]
    #[arg(long, value_name = "K", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,

    /// Measure the latency of each operation (payload, sim) and report percentiles, also in --json: waits for
    /// spinlocks and mutexes; payload: also counter adds, lockref gets and puts
    #[arg(long)]
    latency: bool,

    /// Backends to compare with native locks: vmm, doorbell, kvm. doorbell and kvm require ring 0: on a
    /// software KVM, the payload then runs in the emulated host [default: vmm]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pv_backends: Vec<PvBackend>,

    /// Systems of `pvticket locks` to compare, or all; Linux kernels have ticket, pv-ticket, test-and-set,
    /// queued, and pv-queued (only with kvm); --lock-crate DIR adds your own (`pvticket lock --help`) [default: ticket
    /// and pv-ticket; with kernel files kernel, the lock that each kernel chooses]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    locks: Vec<Systems>,

    /// Host of the guests: this host's KVM, or an AMD-V machine emulated by QEMU
    #[arg(long, value_parser = host_parser(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    #[command(flatten)]
    schedule: ScheduleArgs,

    #[arg(long, value_name = "KEY=VALUES", value_parser = KeyValues::parse_spec, help = set_help())]
    set: Vec<KeyValues>,

    #[command(flatten)]
    keys: KeyOptions,
}

/// Lists all policies in the help of `--policy`, to which other commands refer.
fn list_policies(option: Arg) -> Arg {
    let usages: Vec<_> = POLICIES.iter().map(|policy| policy.usage).collect();
    option.help(format!(
        "Scheduling policies: {}. host-* are for simulations, where host is {} [default: host, in simulations rr]",
        usages.join(", "),
        PolicySpec::simulated_host(),
    ))
}

/// The help of `--set`.
fn set_help() -> String {
    format!(
        "Set another spec key, e.g. critical=400 or ple=on,off; may be repeated, also for more values of a key (required \
         for values with a comma). Also as an option: --ple on,off. Keys (see vmm/specs/README.md): {}",
        KeyValues::keys().join(", ")
    )
}

struct OutputFiles {
    json: Option<ResultFile>,
    trace: Option<ResultFile>,
    record: Option<ResultFile>,
}

impl OutputFiles {
    fn new(args: &CompareArgs) -> anyhow::Result<Self> {
        Ok(Self {
            json: ResultFile::check("--json", args.json.as_deref())?,
            record: ResultFile::check("--record", args.comparison.schedule.record.as_deref())?,
            trace: ResultFile::check(trace::OPTION, args.trace.as_deref())?,
        })
    }

    fn write(&self, measured: &Measured, study: &Study) -> anyhow::Result<()> {
        if let Some(file) = &self.json {
            file.write_text(&store::export::json(std::slice::from_ref(&measured.record), study)?)?;
        }
        if let Some((file, recording)) = self.record.as_ref().zip(measured.recording.as_deref()) {
            write_record(file, &Recording::read(&mut &*recording)?)?;
        }
        // An interrupted comparison may have no traces.
        match &self.trace {
            Some(file) if !measured.traces.is_empty() => {
                file.write(|out| out.write_all(&measured.traces))
            }
            _ => Ok(()),
        }
    }
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &CompareArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    let plan = match &args.resume {
        Some(dir) => plan::resume(dir, false)?,
        None => options::plan(args, &experiment::host::topology())?,
    };
    provide_all(&plan)?;
    let files = OutputFiles::new(args)?;
    let folder = Folder::new(args.resume.clone().or(args.dir.clone()))?;
    match compare(plan, &folder, &files) {
        Ok(0) => Ok(0),
        result => {
            if folder.is_resumable() {
                let dir = folder.keep();
                let dir = shell_quoted(&dir.display().to_string());
                eprint_line(format_args!("pvticket: resume with: pvticket compare --resume {dir}"));
            }
            result
        }
    }
}

fn compare(plan: Plan, folder: &Folder, files: &OutputFiles) -> anyhow::Result<u8> {
    let options = RunOptions {
        keeps_traces: files.trace.is_some(),
        records: files.record.is_some(),
        // A kernel of the user may lack what others have.
        ends_at_failure: plan.experiment.guest_kernels.is_empty(),
        ..RunOptions::default()
    };
    let mut measured = measure(plan, folder, options)?;
    if matches!(folder, Folder::Temporary(_)) {
        measured.record.source.clear();
    }
    let study = Study::new(std::slice::from_ref(&measured.record));
    let document = Document::summary(&study);
    print(&text::render(&document, Form::summary(columns())));
    files.write(&measured, &study)?;
    exit_status(&measured.summary, &study)
}
