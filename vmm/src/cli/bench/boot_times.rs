//! `pvticket bench boot`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Common, option, run_inside, write_json};
use crate::cli::{Usage, confinement, eprint_line, print};
use base::units::{ByteSize, VcpuCount};
use experiment::{
    bench::boot_times::{self, BenchPlan},
    host::{allowed_cpus, gather_facts},
    host_choice::{self, GuestClass, with_quota_note},
    inside::EmulatedCommand,
    kernel,
    tables::boot_times::{self as tables, MeasurementHost},
};
use kvm::{KvmKind, host::is_emulated};
use os::artifacts;
use study::point::{HostKernel, HostKind};

/// Measure the time to a guest's first output and to Linux's init, the VMM's memory in addition to
/// the guest's, and the cost of a port exit
#[derive(Debug, Args)]
pub(super) struct BootBenchArgs {
    /// Number of rounds, 1 to 10000; each measures everything once
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    #[command(flatten)]
    common: Common,

    /// ELF vmlinux or bzImage [default: the PV ticketlock kernel of `pvticket setup kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,
}

pub(super) fn run(args: BootBenchArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    let kind = KvmKind::detect();
    let place = host_choice::choose_here(args.common.host, GuestClass::Ring0, kind).place;
    let host_kernel = args.common.host_kernel.choice()?;
    host_kernel.check(place == HostKind::Emulated)?;
    let kernel = if place == HostKind::Emulated || kind.runs_linux() {
        Some(find_kernel(args.kernel.as_deref())?)
    } else {
        eprint_line(format_args!(
            "pvticket: this KVM cannot run guest kernels: measuring only the tiny guest"
        ));
        None
    };
    let json = args.common.json.as_deref();
    match place {
        HostKind::Direct => run_direct(args.runs, kernel, json),
        HostKind::Emulated => run_emulated(args.runs, kernel, json, host_kernel.kernel()?),
    }
}

/// Finds the Linux guests' kernel. Fails if it cannot boot in their memory.
fn find_kernel(file: Option<&Path>) -> anyhow::Result<PathBuf> {
    let file = match file {
        Some(file) => kernel::resolve(file, "--kernel")?,
        None => artifacts::default_kernel()?,
    };
    kernel::check(&file, boot_times::GUEST_MEMORY)?;
    Ok(file)
}

/// CPUs of the emulated host, as in the measurements of other VMMs.
const OUTER_CPUS: u32 = 2;

/// Measures in the emulated host.
fn run_emulated(
    runs: u32,
    guest_kernel: Option<PathBuf>,
    json: Option<&Path>,
    kernel: HostKernel,
) -> anyhow::Result<u8> {
    let memory = boot_times::PARALLEL_GUEST_MEMORY.0 * boot_times::PARALLEL_VMMS as u64;
    let mut inside = EmulatedCommand::new(kernel, ByteSize(memory.max(boot_times::GUEST_MEMORY.0)));
    // The measured boots take busybox from the cache.
    inside.take_busybox(&artifacts::busybox()?);
    inside.errand().cpus = OUTER_CPUS;
    let guest_kernel = guest_kernel.map(|file| option("--kernel", inside.take_kernel(&file)));
    let options = guest_kernel.into_iter().chain([option("--runs", runs.to_string())]);
    run_inside(inside, "boot", json, options.flatten())
}

/// Measures on this host's KVM. Without a kernel, Linux guests are left out.
fn run_direct(runs: u32, kernel: Option<PathBuf>, json: Option<&Path>) -> anyhow::Result<u8> {
    let vcpus = vec![VcpuCount::ONE, VcpuCount::try_from(4)?];
    let bench = BenchPlan { runs, kernel, vcpus };
    let cpus = allowed_cpus().map_err(Usage::from)?;
    let host = with_quota_note(gather_facts(&cpus), &cpus);
    let figures =
        boot_times::run(&bench, |round| eprint_line(format_args!("round {round} of {runs}")))?;
    let place = if is_emulated() { MeasurementHost::Emulated } else { MeasurementHost::Direct };
    print(&tables::table(&figures, &host));
    write_json(json, || tables::json(&figures, &host, place))?;
    Ok(0)
}
