//! `pvticket inside`, hidden: executes in the emulated host a plan that `pvticket boot` resolved outside.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    Usage,
    boot_command::{self, Plan},
    confinement,
};
use base::{files, units::ByteSize};

/// More than Linux's longest command line (6 MiB) with up to four characters per byte.
const MAX_PLAN: ByteSize = ByteSize::mib(32);

/// Boot the plan in this file on this host's KVM
#[derive(Debug, Args)]
pub struct InsideArgs {
    /// Plan, in the JSON of `pvticket boot`
    file: PathBuf,
}

/// Boots and returns the exit status.
pub fn run(args: &InsideArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    boot_command::direct(&read(&args.file)?)
}

fn read(file: &Path) -> Result<Plan, Usage> {
    let usage = |reason: String| Usage(format!("{}: {reason}", file.display()));
    let bytes = files::read(file, MAX_PLAN).map_err(|error| usage(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| usage(format!("invalid boot plan: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn invalid_plan_is_one_line_error() {
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
                error.contains("invalid boot plan") && error.contains(reason),
                "{text}: {error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
