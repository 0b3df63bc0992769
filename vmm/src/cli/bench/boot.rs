//! `pvticket bench boot`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::keep;
use crate::{
    cli::{
        host::{self, GuestClass, HostMode},
        inside::Inside,
        print, say,
    },
    emulated::StdinMode,
    guest::artifacts::{self, ArtifactError},
    kvm::{KvmKind, host::is_emulated},
    lab::{
        boot_bench::{self, BenchPlan},
        host::HostFacts,
        plan::resolve_cpus,
    },
    report::boot_bench::{self as report, Place},
    units::{ByteSize, VcpuCount},
};

/// Time to a guest's first output and to Linux's init, memory beside the guest's,
/// the cost of a port exit.
#[derive(Debug, Args)]
pub(super) struct BootBenchArgs {
    /// Rounds; each measures everything once
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Write every sample to this file as JSON
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_enum, default_value_t = HostMode::Auto)]
    host: HostMode,

    /// ELF vmlinux or bzImage [default: the PV ticketlock kernel of `make kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,
}

pub(super) fn run(args: &BootBenchArgs) -> anyhow::Result<u8> {
    let kind = KvmKind::detect();
    match host::choose(args.host, GuestClass::Ring0, kind).place {
        host::Place::Direct => direct(args, kind),
        host::Place::Emulated => emulated(args),
    }
}

/// CPUs of the emulated host: as many as the peers of the report had.
const OUTER_CPUS: u32 = 2;

/// The same command there, with the same files.
fn emulated(args: &BootBenchArgs) -> anyhow::Result<u8> {
    let runs = args.runs.to_string();
    let words = ["bench", "boot", "--host", "direct", "--runs", &runs].map(OsString::from);
    let crowd = boot_bench::CROWD_GUEST_MEMORY.0 * boot_bench::CROWD as u64;
    let inside = Inside::new(words, ByteSize(crowd.max(boot_bench::GUEST_MEMORY.0)))
        .with_kernel(&kernel(args)?)
        .with_busybox(&artifacts::busybox()?)
        .connect(|errand| {
            errand.stdin = StdinMode::Null;
            errand.cpus = OUTER_CPUS;
        });
    match &args.json {
        Some(file) => inside.with_result("--json", file).run(),
        None => inside.run(),
    }
}

fn kernel(args: &BootBenchArgs) -> Result<PathBuf, ArtifactError> {
    args.kernel.clone().map_or_else(artifacts::built_kernel, Ok)
}

fn direct(args: &BootBenchArgs, kind: KvmKind) -> anyhow::Result<u8> {
    let kernel = match kind.runs_linux() {
        true => Some(kernel(args)?),
        false => {
            say(format_args!(
                "pvticket: this KVM runs no guest kernels: the tiny guest alone is measured"
            ));
            None
        }
    };
    let plan =
        BenchPlan { runs: args.runs, kernel, vcpus: vec![VcpuCount::ONE, VcpuCount::try_from(4)?] };
    let host = HostFacts::gather(&resolve_cpus(None)?);
    let figures =
        boot_bench::run(&plan, |round| say(format_args!("round {round} of {}", args.runs)))?;
    let place = if is_emulated() { Place::Emulated } else { Place::Direct };
    print(&report::table(&figures, &host, place));
    keep(args.json.as_deref(), || report::json(&figures, &host, place))?;
    Ok(0)
}
