//! `pvticket check`: tests the spinlocks of a kernel.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

use super::{
    eprint_line,
    host::{HostKernelArgs, host_parser},
    print,
    results::ResultFile,
};
use crate::check::{
    FAILED, NO_VERDICT, NoVerdict,
    guests::{Guests, UserProgram},
    kernel_pair::KernelPair,
    kernel_source::{self, Kernel},
    process::ProcessError,
    reference::Reference,
    runner,
    suite::{Load, TestName},
};
use base::units::{ByteSize, CpuList};
use experiment::{
    Usage, cpus,
    host::{gather_facts, kernel_facts, topology},
    host_choice::{self, GuestClass, HostMode},
    inside::EmulatedCommand,
    kernel, programs,
};
use kvm::KvmKind;
use os::{artifacts, signals};
use study::{
    guest::program::Program,
    host_facts::FileFacts,
    point::{HostKernel, HostKind},
};

/// Slots that the guests share, unless the host has fewer.
const SLOTS: usize = 2;
/// Memory of a guest; the default of `boot`.
const MEMORY: ByteSize = ByteSize::mib(512);

/// Test a kernel's spinlocks under preemption, PV switches and CPU hotplug, and measure rates; prints
/// KTAP. Exit status: 0 passed, 1 a test failed, 125 no verdict (`git bisect run` skips the commit)
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Kernel: a bzImage or vmlinux, or a source tree, which is built first (make bzImage) [default:
    /// the tree in the current directory]
    #[arg(long, value_name = "FILE|DIR")]
    kernel: Option<PathBuf>,

    /// Do not build the tree; test its present arch/x86/boot/bzImage (in KBUILD_OUTPUT, if set)
    #[arg(long)]
    as_built: bool,

    /// Run shorter tests: about 5 minutes in the emulated host
    #[arg(long)]
    quick: bool,

    /// Ignore kernel bug reports with this text, e.g. the source file of a warning that all kernels of
    /// a bisection have; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    allow_warning: Vec<String>,

    /// Run only these tests, and boot and smp, which the others require
    #[arg(long, value_name = "TESTS", value_delimiter = ',', conflicts_with = "compare")]
    only: Vec<TestName>,

    /// Compare rates with this --json file; fail if a median is significantly below 0.8 of the file's
    #[arg(long, value_name = "F", conflicts_with = "compare")]
    against: Option<PathBuf>,

    /// Write verdicts and rates to this file, for --against
    #[arg(long, value_name = "F", conflicts_with = "compare")]
    json: Option<PathBuf>,

    /// Compare the rates of two kernels (files or trees) with native and PV locks instead: alternating
    /// boots, one table
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "kernel")]
    compare: Option<Vec<PathBuf>>,

    /// With --compare: exit with status 1 if any rate of B is lower by more than a fifth
    #[arg(long, value_name = "WHAT", requires = "compare")]
    fail_on: Option<FailOn>,

    /// Test this program and its arguments instead, e.g. a reproducer: it fails if its exit status is not 0. DIR
    /// travels into the guest, which has busybox
    #[arg(long, value_name = "DIR/COMMAND ARGS", conflicts_with_all = ["compare", "only"])]
    program: Option<String>,

    /// With --program: the guest's root, a directory with unpacked packages
    #[arg(long, value_name = "DIR", requires = "program")]
    root: Option<PathBuf>,

    /// In the emulated host: the packed program
    #[arg(long, hide = true)]
    packed: Option<PathBuf>,

    /// Host of the guests: this host's KVM, or an AMD-V machine emulated by QEMU
    #[arg(long, value_parser = host_parser(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    /// In the emulated host: the kernels' paths outside
    #[arg(long, hide = true)]
    called: Vec<PathBuf>,

    /// In the emulated host: the outer host
    #[arg(long, hide = true, default_value = "")]
    outside: String,
}

/// Condition under which the comparison of two kernels fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A rate of B is significantly lower than A's, by more than a fifth.
    Regression,
}

/// Runs the subcommand and returns the exit status. Errors other than usage errors and signals mean "no verdict".
pub fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    match run_tests(args) {
        Err(error) if is_interrupted(&error) => Ok(signals::exit_status()),
        Err(error) if !error.is::<Usage>() => {
            eprint_line(format_args!("pvticket: {error:#}"));
            Ok(NO_VERDICT)
        }
        result => result,
    }
}

/// Whether a signal ended the check.
fn is_interrupted(error: &anyhow::Error) -> bool {
    let is_interrupt = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ProcessError::Interrupted))
    };
    error.chain().any(is_interrupt)
}

fn run_tests(args: &CheckArgs) -> anyhow::Result<u8> {
    let kind = KvmKind::detect();
    let place = host_choice::choose_here(args.host, GuestClass::Ring0, kind).place;
    let host_kernel = args.host_kernel.choice()?;
    host_kernel.check(place == HostKind::Emulated)?;
    let against = args.against.as_deref().map(Reference::read).transpose()?;
    let json = ResultFile::check("--json", args.json.as_deref())?;
    let paths: Vec<Option<&Path>> = match &args.compare {
        Some(kernels) => kernels.iter().map(|place| Some(place.as_path())).collect(),
        None => vec![args.kernel.as_deref()],
    };
    let stop = signals::catch().context("cannot catch signals")?;
    let option = if args.compare.is_some() { "--compare" } else { "--kernel" };
    let find = |place: &Option<&Path>| kernel_source::find(*place, option, args.as_built, &stop);
    let kernels = paths.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?;
    for Kernel { file, .. } in &kernels {
        kernel::check(file, MEMORY).map_err(|error| NoVerdict(base::chain::chain(&error)))?;
    }
    let text = args.program.as_deref().map(programs::absolute);
    let program = text.as_deref().map(user_program).transpose()?;
    let archive = match &args.packed {
        None => programs::pack(args.root.as_deref(), program)?,
        Some(_) => None,
    };
    let packed = args.packed.as_deref().or(archive.as_deref());
    if place == HostKind::Emulated {
        let host_kernel = host_kernel.kernel()?;
        return run_emulated(args, host_kernel, &kernels, text.as_deref().zip(packed));
    }
    let program = program
        .zip(packed)
        .map(|(program, archive)| UserProgram { archive: archive.into(), argv: program.argv() });
    host_choice::check_direct(GuestClass::Ring0, kind)?;
    let cpus = cpus::choose_default(&topology(), Some(SLOTS))?;
    let slots = cpus.cpus().len() as u32;
    let load = if args.quick { Load::QUICK } else { Load::FULL };
    let names = args.called.iter().map(Some).chain(std::iter::repeat(None));
    let kernels: Vec<Kernel> = kernels
        .into_iter()
        .zip(names)
        .map(|(kernel, name)| Kernel { name: name.cloned().unwrap_or(kernel.name), ..kernel })
        .collect();
    let kernel = kernels.first().context("no kernel")?;
    let mut guests = Guests::new(kernel, &args.allow_warning, slots, program, stop)?;
    if let [first, second] = kernels.as_slice() {
        return run_comparison(&mut guests, load, [first, second], args.fail_on);
    }
    let facts = kernel_facts(&kernel.file);
    let facts = facts.with_context(|| format!("cannot read {}", kernel.name.display()))?;
    let facts = FileFacts { path: kernel.name.display().to_string(), ..facts };
    let outcome = Reference::new(facts, format!("{}{}", host_description(&cpus), args.outside));
    let (status, outcome) = runner::run(outcome, guests, load, against.as_ref(), &args.only)?;
    if let Some(json) = json {
        json.write_text(&(serde_json::to_string(&outcome)? + "\n"))?;
    }
    Ok(status)
}

fn user_program(text: &str) -> Result<Program<'_>, Usage> {
    let invalid = || Usage(format!("--program {text}: write DIR/COMMAND ARGS, without '..'"));
    Program::parse(text).ok_or_else(invalid)
}

/// A description of the host. Rates are only compared if it is equal.
fn host_description(cpus: &CpuList) -> String {
    let facts = gather_facts(cpus);
    let count = base::plural::count(cpus.cpus().len(), "CPU");
    format!("{}, {count}", facts.summary())
}

fn run_comparison(
    guests: &mut Guests,
    load: Load,
    kernels: [&Kernel; 2],
    fail_on: Option<FailOn>,
) -> anyhow::Result<u8> {
    let pair = KernelPair::measure(guests, load, kernels)?;
    let [first, second] = kernels.map(|kernel| kernel.name.display());
    print(&format!("A  {first}\nB  {second}\n\n{}", pair.table()));
    let fails = fail_on == Some(FailOn::Regression) && pair.has_regression()?;
    Ok(if fails { FAILED } else { 0 })
}

/// Runs the same command in the emulated host.
fn run_emulated(
    args: &CheckArgs,
    host_kernel: HostKernel,
    kernels: &[Kernel],
    program: Option<(&str, &Path)>,
) -> anyhow::Result<u8> {
    let memory = program.map_or(MEMORY, |(_, archive)| programs::guest_memory(archive));
    let mut inside = EmulatedCommand::new(host_kernel, memory);
    inside.take_busybox(&artifacts::busybox()?);
    let mut words: Vec<std::ffi::OsString> = vec!["check".into(), "--host".into(), "direct".into()];
    words.push(if args.compare.is_some() { "--compare".into() } else { "--kernel".into() });
    for (ix, Kernel { file, .. }) in kernels.iter().enumerate() {
        words.push(inside.take(file, format!("/in/kernel{ix}")).into());
    }
    for Kernel { name, .. } in kernels {
        words.extend(["--called".into(), name.into()]);
    }
    let outside = host_description(&cpus::choose_default(&topology(), Some(SLOTS))?);
    words.push(format!("--outside= in QEMU on {outside}").into());
    for text in &args.allow_warning {
        words.push(format!("--allow-warning={text}").into());
    }
    words.extend(args.quick.then(|| "--quick".into()));
    for TestName(name) in &args.only {
        words.extend(["--only".into(), name.into()]);
    }
    if let Some((program, archive)) = program {
        words.extend([format!("--program={program}").into(), "--packed".into()]);
        words.push(inside.take_programs(archive).into());
    }
    words.extend(args.fail_on.map(|_| "--fail-on=regression".into()));
    if let Some(file) = &args.against {
        words.extend(["--against".into(), inside.take(file, "/in/against").into()]);
    }
    if let Some(file) = &args.json {
        words.extend(["--json".into(), inside.bring_back(file, "check.json").into()]);
    }
    inside.warn_of_memory();
    inside.run(words)
}
