//! `pvticket boot`: boots a Linux guest with a command or a shell.

mod check;
mod direct;
mod dry_run;
mod fault;
mod in_emulator;
mod plan;
mod schedule_summary;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    confinement,
    host::{HostKernelArgs, host_parser},
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

/// The parser of `--guest-kernel`.
fn guest_kernel_parser() -> impl TypedValueParser<Value = GuestKernel> {
    let names = PossibleValuesParser::new(GuestKernel::ALL.map(GuestKernel::name));
    names.try_map(|name| name.parse::<GuestKernel>())
}

/// Boot a Linux guest. With a command, run it and exit with its status; without, open a shell (Ctrl-A x ends
/// the machine)
#[derive(Debug, Args)]
pub struct BootArgs {
    /// ELF vmlinux or bzImage [default: the PV ticketlock kernel of `pvticket setup kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,

    /// Linux version of the PV ticketlock kernel: 6.1, 6.12 or 7 (`pvticket setup kernel-6.1`)
    #[arg(long, value_name = "V", default_value_t, conflicts_with = "kernel",
          value_parser = guest_kernel_parser())]
    guest_kernel: GuestKernel,

    /// Initial RAM disk [default: our init and busybox]. Without a command, its /init runs
    #[arg(long, value_name = "F")]
    initrd: Option<PathBuf>,

    /// vCPUs, 1 to 128 [default: the host's CPUs]
    #[arg(long, value_name = "N")]
    cpus: Option<VcpuCount>,

    /// Memory, rounded up to 4 KiB pages, e.g. 512M or 4G [default: 512M, with bench pgbench 1G]
    #[arg(long, value_name = "SIZE")]
    mem: Option<ByteSize>,

    /// Kernel parameters to append. noapic, nosmp, maxcpus=0 and acpi=off disable serial interrupts and
    /// require a command; panic=0 keeps the machine running after a panic
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    append: Option<String>,

    /// Backend of PV halts and kicks: this VMM, KVM with doorbells (kicks without an exit to the VMM), KVM
    /// itself, or off (native locks)
    #[arg(long, value_name = "vmm|doorbell|kvm|off", default_value = "vmm")]
    pv: PvBackend,

    /// Handoff optimizations of PV locks: none, or predecessor, adapt, claim, ahead, far:N and queue:N joined
    /// by '+' (for our kernels, as pvticket_handoff=)
    #[arg(long, value_name = "WORDS", default_value = "none")]
    handoff: HandoffSpec,

    /// Host of the guest: this host's KVM, or an AMD-V machine emulated by QEMU
    #[arg(long, value_parser = host_parser(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    /// System.map of a kernel without telemetry, to observe the lock state of preempted vCPUs [default: our
    /// init reads the guest's /proc/kallsyms]
    #[arg(long, value_name = "F")]
    system_map: Option<PathBuf>,

    #[command(flatten)]
    schedule: ScheduleArgs,

    /// Seed of all random choices: schedule and faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[arg(long, value_name = "user|bpf", default_value = "user", help = driver_help())]
    driver: DriverKind,

    #[command(flatten)]
    faults: FaultArgs,

    /// Check options and files, print the resolved machine and exit
    #[arg(long)]
    dry_run: bool,

    /// Write the machine's counters to this file as JSON at its end
    #[arg(long, value_name = "F")]
    stats: Option<PathBuf>,

    /// End the VM with a failure if the guest prints more than this, e.g. 1G [default: no limit]
    #[arg(long, value_name = "SIZE")]
    output_limit: Option<ByteSize>,

    /// Do not read stdin; the guest command sees EOF (like ssh -n). With your own initrd and no command, the
    /// console gets no input
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// End the VM after this many seconds, with status 124 and a line about its vCPUs
    #[arg(long, value_name = "S")]
    timeout: Option<Seconds>,

    /// Command to run in the guest; `bench pgbench` adds PostgreSQL to the guest (pvticket setup guest-disk)
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The help of `--driver`.
fn driver_help() -> String {
    format!(
        "Driver of the schedule: user, this process, for all policies; or bpf, a BPF scheduler in the host's kernel \
         (sched_ext, Linux 7.x), for {}",
        InKernel::usages()
    )
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: BootArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    let choice = host_choice::choose_here(args.host, GuestClass::Ring0, KvmKind::detect());
    let named = args.host_kernel.choice()?;
    let host_kernel = named.kernel()?;
    named.check(choice.place == HostKind::Emulated)?;
    let is_dry = args.dry_run;
    if choice.place == HostKind::Emulated {
        driver::check_emulated(args.driver, host_kernel)?;
    }
    let plan = Plan::resolve(args)?;
    // A direct boot starts with the same checks. Repeating them here would load its guest twice.
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
