//! `pvticket boot`: a Linux guest, with a command or a shell in it.

mod check;
mod direct;
mod dry_run;
mod fault;
mod in_emulator;
mod plan;
mod schedule_summary;

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::{
    confinement,
    host::{HostKernelArgs, modes},
    print,
    schedule::ScheduleArgs,
};
use base::{
    backend::PvBackend,
    guest_kernel::GuestKernel,
    handoff::HandoffSpec,
    units::{ByteSize, VcpuCount},
};
use dry_run::DryRun;
use experiment::{
    host_choice::{self, GuestClass, HostMode},
    prepare::driver,
};
use fault::FaultArgs;
use kvm::KvmKind;
use sched::{driver::DriverKind, policy::InKernel};
use study::{plan::Seconds, point::HostKind};

pub(super) use direct::run as direct;
pub(super) use plan::Plan;

/// Boot a Linux guest. With a command, run it in the guest and exit with its
/// status; without one, open a shell (Ctrl-A x ends the machine).
#[derive(Debug, Args)]
pub struct BootArgs {
    /// ELF vmlinux or bzImage [default: the PV ticketlock kernel of `pvticket setup kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,

    /// The PV ticketlock kernel of another Linux: 6.1 or 7 (`pvticket setup kernel-6.1`)
    #[arg(long, value_name = "V", default_value_t, conflicts_with = "kernel")]
    guest_kernel: GuestKernel,

    /// Initial RAM disk [default: our init and busybox]. Without a command its own /init runs
    #[arg(long, value_name = "F")]
    initrd: Option<PathBuf>,

    /// vCPUs, 1 to 128 [default: the host's CPUs]
    #[arg(long, value_name = "N")]
    cpus: Option<VcpuCount>,

    /// Memory, rounded up to whole pages of 4 KiB, for example 512M or 4G [default: 512M; with bench pgbench 1G]
    #[arg(long, value_name = "SIZE")]
    mem: Option<ByteSize>,

    /// Parameters to append to the kernel's command line (noapic, nosmp, maxcpus=0 or acpi=off leave the serial lines
    /// without interrupts: name a command then; after a panic, panic=0 leaves the machine running)
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    append: Option<String>,

    /// Backend of the PV ticketlock's halts and kicks: this VMM, KVM with doorbells (kicks without
    /// an exit to the VMM), KVM itself, or none (native locks)
    #[arg(long, value_name = "vmm|doorbell|kvm|off", default_value = "vmm")]
    pv: PvBackend,

    /// How the guest's PV locks make handoffs cheaper: none, or several of predecessor, adapt,
    /// claim, ahead, far:N and queue:N joined by '+' (for our kernels, as pvticket_handoff=)
    #[arg(long, value_name = "WORDS", default_value = "none")]
    handoff: HandoffSpec,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_parser = modes(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    /// The kernel's System.map, for a kernel without telemetry: what a schedule's preemptions hit is then observed
    /// from outside [default: as our init finds in the guest's /proc/kallsyms]
    #[arg(long, value_name = "F")]
    system_map: Option<PathBuf>,

    #[command(flatten)]
    schedule: ScheduleArgs,

    /// Seed of all that is random: schedule and faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[arg(long, value_name = "user|bpf", default_value = "user", help = driver_help())]
    driver: DriverKind,

    #[command(flatten)]
    faults: FaultArgs,

    /// Check options and files as a boot does, print the resolved machine and exit
    #[arg(long)]
    dry_run: bool,

    /// Write the machine's counters to this file as JSON when it has ended
    #[arg(long, value_name = "F")]
    stats: Option<PathBuf>,

    /// End the machine with a failure once the guest has printed more than this, for example 1G
    /// [default: no limit]
    #[arg(long, value_name = "SIZE")]
    output_limit: Option<ByteSize>,

    /// Do not read stdin: the command's is at its end (for loops that read a list, as ssh -n). Without a command, of
    /// an initrd of your own, the console gets no input
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// End the machine after this time, with status 124 and a line about its vCPUs
    #[arg(long, value_name = "S")]
    timeout: Option<Seconds>,

    /// Command to run in the guest; `bench pgbench` adds PostgreSQL to the guest (pvticket setup guest-disk)
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The help of `--driver`.
fn driver_help() -> String {
    format!(
        "What carries out the schedule: user, this program, with all policies; or bpf, a BPF scheduler \
         in the host's kernel (sched_ext, Linux 7.x), with {}",
        InKernel::usages()
    )
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: BootArgs) -> anyhow::Result<u8> {
    confinement::choose()?;
    let choice = host_choice::choose_here(args.host, GuestClass::Ring0, KvmKind::detect());
    let host_kernel = args.host_kernel.choice().kernel()?;
    args.host_kernel.choice().check(choice.place == HostKind::Emulated)?;
    let is_dry = args.dry_run;
    if choice.place == HostKind::Emulated {
        driver::check_emulated(args.driver, host_kernel)?;
    }
    let plan = Plan::resolve(args)?;
    // A direct boot looks at the same before anything else; it would load its guest twice.
    if is_dry || choice.place == HostKind::Emulated {
        plan.check(choice.place)?;
    }
    if is_dry {
        print(&DryRun { plan: &plan, choice, host_kernel }.to_string());
        return Ok(0);
    }
    match choice.place {
        HostKind::Direct => direct(&plan),
        HostKind::Emulated => in_emulator::run(&plan, host_kernel),
    }
}
