//! `pvticket doctor`: reports the host's features and possible improvements.

use anyhow::Context;
use clap::Args;

use super::{FAILURE, print};
use base::chain::chain;
use emulated::Parts;
use experiment::doctor::{DoctorReport, Facts, GuestHost, advice, brief::brief, calls};
use experiment::host_choice::{self, GuestClass, HostKernelChoice, HostMode};
use kvm::KvmKind;
use os::{artifacts, streams::print_json};
use study::point::{HostKernel, HostKind};

/// Report this host's features, where guests run and why, and what to install or change. Exit status 1 if no
/// guest can run
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print only three lines: the host, where guests run, and the next step
    #[arg(long, conflicts_with = "json")]
    brief: bool,

    /// Print the system calls allowed to each class of confined threads, and those denied to QEMU
    #[arg(long, conflicts_with_all = ["json", "brief"])]
    calls: bool,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    if args.calls {
        print(&calls::text().context("cannot create the filters")?);
        return Ok(0);
    }
    let kind = KvmKind::detect();
    let facts = Facts::collect(kind);
    let kernel = HostKernelChoice::default().kernel()?;
    let classes = [GuestClass::Ring0, GuestClass::Payload];
    let guests: Vec<_> = classes.map(|class| guest_runs(class, kind, kernel)).into();
    let next = advice::next_steps(&facts, &guests);
    let report = DoctorReport { facts, guests, next };
    if args.json {
        print_json(&(serde_json::to_string_pretty(&report)? + "\n"));
    } else if args.brief {
        print(&brief(&report));
    } else {
        print(&report.to_string());
    }
    Ok(if report.can_run_any() { 0 } else { FAILURE })
}

/// The host for guests of this class, and missing files.
fn guest_runs(class: GuestClass, kind: KvmKind, host_kernel: HostKernel) -> GuestHost {
    let choice = host_choice::choose(HostMode::Auto, class, kind);
    let mut missing = Vec::new();
    if choice.place == HostKind::Emulated
        && let Err(error) = Parts::find(host_kernel)
    {
        missing.push(chain(&error));
    }
    if class == GuestClass::Ring0 {
        missing.extend(artifacts::busybox().err().map(|error| chain(&error)));
        missing.extend(artifacts::default_kernel().err().map(|error| chain(&error)));
    }
    GuestHost {
        guest: match class {
            GuestClass::Ring0 => "linux",
            GuestClass::Payload => "payload",
        },
        host: choice.place.name(),
        why: choice.reason,
        missing,
    }
}
