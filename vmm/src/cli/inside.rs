//! `pvticket inside`, hidden: what a subcommand resolved on one host, carried out in the emulated host.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Usage, bench, boot_command, confinement};
use base::{files, units::ByteSize};

/// More than the longest command line that Linux takes (6 MiB), with up to four characters for each
/// byte.
const LONGEST: ByteSize = ByteSize::mib(32);

/// A resolved plan, with the paths of its files on the host that carries it out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Task {
    /// `boot`.
    Boot(Box<boot_command::Plan>),
    /// `bench boot`.
    BenchBoot(bench::BootPlan),
    /// `bench confinement`.
    BenchConfinement(bench::ConfinementPlan),
    /// `bench hypercalls`.
    BenchHypercalls(bench::HypercallsPlan),
}

/// Carry out the task in this file on this host's KVM.
#[derive(Debug, Args)]
pub struct InsideArgs {
    /// JSON, as the subcommand wrote it
    file: PathBuf,
}

/// Carries out the task and returns the exit status.
pub fn run(args: &InsideArgs) -> anyhow::Result<u8> {
    confinement::choose_by_environment()?;
    match read(&args.file)? {
        Task::Boot(plan) => boot_command::direct(&plan),
        Task::BenchBoot(plan) => bench::boot(&plan),
        Task::BenchConfinement(plan) => bench::confinement(&plan),
        Task::BenchHypercalls(plan) => bench::hypercalls(&plan),
    }
}

fn read(file: &Path) -> Result<Task, Usage> {
    let usage = |what: String| Usage(format!("{}: {what}", file.display()));
    let bytes = files::read(file, LONGEST).map_err(|error| usage(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| usage(format!("not a task: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_no_task_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("task");
        for (text, reason) in [
            ("", "EOF"),
            ("{\"boot\": {", "EOF"),
            ("{\"fly\": {}}", "unknown variant `fly`"),
            ("{\"bench_boot\": {}}", "missing field `runs`"),
            ("{\"bench_boot\": {\"runs\": 1, \"wings\": 2}}", "unknown field `wings`"),
        ] {
            fs::write(&file, text).unwrap();
            let Usage(error) = read(&file).unwrap_err();
            assert!(error.contains("not a task") && error.contains(reason), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
