//! `pvticket inside`, hidden: what `pvticket boot` resolved on one host, carried out in the emulated host.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    Usage,
    boot_command::{self, Plan},
    confinement,
};
use base::{files, units::ByteSize};

/// More than the longest command line that Linux takes (6 MiB), with up to four characters for each
/// byte.
const LONGEST: ByteSize = ByteSize::mib(32);

/// Boot as the plan in this file says, on this host's KVM.
#[derive(Debug, Args)]
pub struct InsideArgs {
    /// JSON, as `pvticket boot` wrote it
    file: PathBuf,
}

/// Boots and returns the exit status.
pub fn run(args: &InsideArgs) -> anyhow::Result<u8> {
    confinement::choose()?;
    boot_command::direct(&read(&args.file)?)
}

fn read(file: &Path) -> Result<Plan, Usage> {
    let usage = |what: String| Usage(format!("{}: {what}", file.display()));
    let bytes = files::read(file, LONGEST).map_err(|error| usage(error.to_string()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| usage(format!("not the plan of a boot: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_a_plan_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan");
        for (text, reason) in [
            ("", "EOF"),
            ("{\"kernel\": ", "EOF"),
            ("{}", "missing field `kernel`"),
            ("{\"wings\": 2}", "unknown field `wings`"),
        ] {
            fs::write(&file, text).unwrap();
            let Usage(error) = read(&file).unwrap_err();
            assert!(
                error.contains("not the plan of a boot") && error.contains(reason),
                "{text}: {error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
