//! `pvticket compare`: native against PV ticketlocks under overcommit.

mod direct;
mod emulated;
mod kernels;
mod plan;
mod workload;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{
    fault::FaultArgs,
    host::{HostMode, Place},
    schedule::ScheduleArgs,
};
use crate::{
    guest::{handoff::HandoffSpec, payload::PayloadSpec, systems::Systems},
    lab::plan::{Level, Seconds},
    units::CpuList,
    vm::PvBackend,
};
use plan::Resolved;
pub(super) use workload::Workload;
use workload::WorkloadName;

/// Compare native with PV ticketlocks, or any locks: take one on every vCPU, on few CPUs.
/// Runs alternate between the two, each on a fresh machine.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// vCPUs of the machine, 1 to 128, or vCPUs for each CPU
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1x,1.5x,2x,4x",
        allow_hyphen_values = true
    )]
    vcpus: Vec<Level>,

    /// Host CPUs that carry the vCPUs, for example 0,2-5 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// What runs in the machine
    #[arg(long, value_enum, default_value_t = Guest::Payload)]
    guest: Guest,

    /// What it does
    #[arg(long, value_enum, default_value_t = WorkloadName::LOCK)]
    workload: WorkloadName,

    /// Time measured in a run [default: 0.5 for the payload, 1 for Linux]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seconds: Option<Seconds>,

    /// Runs of each lock at each number of vCPUs [default: 10 for the payload, 6 for Linux]
    #[arg(long, value_name = "K", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,

    /// Write every run's figures to this file
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Increments of a shared counter under the lock; what a per-CPU counter adds
    #[arg(long, value_name = "N", default_value_t = PayloadSpec::CRITICAL)]
    critical: u32,

    /// Increments of a private counter between two acquisitions
    #[arg(long, value_name = "N", default_value_t = PayloadSpec::THINK)]
    think: u32,

    /// Payload: adds of each vCPU between two sums of a per-CPU counter; 0: no sums
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    sum_every: Option<u32>,

    /// Payload: how long each vCPU waits for a lock or a mutex, and how long an add takes, or a get
    /// and put: percentiles here, histograms with --json
    #[arg(long)]
    latency: bool,

    /// Looks at the lock before a PV waiter halts [default: 2048 for the payload, 32768 for Linux,
    /// 512 for Linux in the emulated host, where each takes so long]
    #[arg(long, value_name = "N")]
    spin_threshold: Option<u32>,

    /// Linux: the kernel with ticketlocks, an ELF vmlinux or bzImage [default: that of
    /// `make kernel`]
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,

    /// Linux: the kernel with the other locks of --locks, mainline's [default: that of
    /// `make kernel-stock`]
    #[arg(long, value_name = "F")]
    stock_kernel: Option<PathBuf>,

    /// What to compare with native: vmm, doorbell, kvm. The payload needs ring 0 for doorbell and
    /// kvm, which software KVMs emulate slowly: then it runs in the emulated host [default: vmm]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pv_backends: Option<Vec<PvBackend>>,

    /// Which systems of the lock library, names as `pvticket locks` has them, or all that the guest
    /// has; a Linux guest boots the kernel that has them: ticket, pv-ticket, test-and-set, queued,
    /// pv-queued (always with KVM's own halts and kicks) [default: ticket and pv-ticket, as native
    /// and pv]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    locks: Vec<Systems>,

    /// What PV ticketlocks do to be handed over more cheaply: none, or a few of predecessor, adapt,
    /// claim, ahead, fuse, far:N and queue:N joined by '+' (see hypercalls/README.md)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "none")]
    handoff: Vec<HandoffSpec>,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_enum, default_value_t = HostMode::Auto)]
    host: HostMode,

    /// Write what happened in the last round, a run of each kind at each number of vCPUs, to this
    /// file: a timeline for ui.perfetto.dev, in words by `pvticket trace`
    #[arg(long, value_name = "F")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    schedule: ScheduleArgs,

    #[command(flatten)]
    faults: FaultArgs,
}

/// Kinds of guests that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Guest {
    /// The ring-3 payload, on any KVM
    Payload,
    /// spin_lock in a Linux guest: a kernel thread on each vCPU
    Linux,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: CompareArgs) -> anyhow::Result<u8> {
    let resolved = Resolved::new(args)?;
    match resolved.place {
        Place::Direct => direct::run(&resolved),
        Place::Emulated => emulated::run(&resolved),
    }
}
