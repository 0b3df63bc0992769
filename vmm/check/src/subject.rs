//! The kernel under test: a file, or that of a tree, which is built first.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;

use crate::{CannotTell, process};
use base::shown;
use experiments::{Usage, kernel};
use os::{signals::Interrupt, streams::say};

/// Where a tree has its kernel.
const BZIMAGE: &str = "arch/x86/boot/bzImage";
/// A build that takes longer is not waited for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The lines of a failed build that are shown.
const SHOWN: usize = 10;

/// The file to boot: `named`, or the kernel of the tree that it is; without a name that of the current directory. A tree
/// is built before, unless `as_built`.
pub fn find(
    named: Option<&Path>,
    option: &str,
    as_built: bool,
    stop: &Interrupt,
) -> anyhow::Result<PathBuf> {
    let place = named.unwrap_or(Path::new("."));
    if !place.is_dir() {
        // A build that failed has left none: nothing can be said about it.
        let found = kernel::named(place, option);
        return found.map_err(|Usage(why)| CannotTell(why).into());
    }
    if !is_tree(place) {
        let why = format!(
            "{}: not a kernel's source tree: change to one, or name a kernel or a tree with --kernel",
            fs::canonicalize(place).unwrap_or_else(|_| place.to_owned()).display()
        );
        return Err(Usage(why).into());
    }
    if !as_built {
        build(place, stop)?;
    }
    let file = place.join(BZIMAGE);
    if !file.is_file() {
        return Err(
            CannotTell(format!("there is no {}: build it (make bzImage)", file.display())).into()
        );
    }
    fs::canonicalize(&file).with_context(|| format!("cannot find {}", file.display()))
}

fn is_tree(place: &Path) -> bool {
    place.join("Makefile").is_file() && place.join("arch/x86").is_dir()
}

/// `make bzImage`, which does nothing if all is built.
fn build(tree: &Path, stop: &Interrupt) -> anyhow::Result<()> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    say(format_args!("pvticket: building {} (make -j{jobs} bzImage)", tree.display()));
    let errors = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut make = Command::new("make");
    make.arg("-C").arg(tree).arg("-s").arg(format!("-j{jobs}")).arg("bzImage");
    // Those of a make that has started us are not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").stdin(Stdio::null()).stdout(Stdio::null());
    make.stderr(errors.reopen().context("cannot open a temporary file")?);
    let why = match process::run(make, LONGEST, stop)? {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("make ended with {status}"),
        None => format!("make took more than {} hours", LONGEST.as_secs() / 3600),
    };
    let errors = fs::read(errors.path()).unwrap_or_default();
    let errors = String::from_utf8_lossy(&errors);
    let lines: Vec<&str> = errors.lines().collect();
    let last = &lines[lines.len().saturating_sub(SHOWN)..];
    last.iter().for_each(|line| say(format_args!("  {}", shown::line(line))));
    Err(CannotTell(format!("{} does not build: {why}", tree.display())).into())
}
