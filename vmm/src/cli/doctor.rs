//! `pvticket doctor`: what this host can do, and what to do about it.

use clap::Args;

use super::{
    FAILURE,
    host::{self, GuestClass, HostMode, Place},
    print,
};
use crate::{
    doctor::{Facts, GuestRuns, Report, advice},
    emulated::Pieces,
    guest::artifacts,
    kvm::KvmKind,
    streams::print_json,
};

/// Say what this host can do, where guests will run and why, and what to
/// install or change for more. Exit status 1 when no guest can run
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The same facts as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let kind = KvmKind::detect();
    let facts = Facts::collect(kind);
    let guests = vec![runs(GuestClass::Ring0, kind), runs(GuestClass::Payload, kind)];
    let next = advice::next_steps(&facts, &guests);
    let report = Report { facts, guests, next };
    match args.json {
        true => print_json(&(serde_json::to_string_pretty(&report)? + "\n")),
        false => print(&report.to_string()),
    }
    Ok(if report.anything_runs() { 0 } else { FAILURE })
}

/// Where a guest will run, and what it lacks there.
fn runs(class: GuestClass, kind: KvmKind) -> GuestRuns {
    let choice = host::choose(HostMode::Auto, class, kind);
    let mut missing = Vec::new();
    if choice.place == Place::Emulated
        && let Err(error) = Pieces::find()
    {
        missing.push(error.to_string());
    }
    if class == GuestClass::Ring0 {
        missing.extend(artifacts::busybox().err().map(|error| error.to_string()));
        missing.extend(artifacts::built_kernel().err().map(|error| error.to_string()));
    }
    GuestRuns {
        guest: match class {
            GuestClass::Ring0 => "linux",
            GuestClass::Payload => "payload",
        },
        host: match choice.place {
            Place::Direct => "direct",
            Place::Emulated => "emulated",
        },
        why: choice.why,
        missing,
    }
}
