//! `pvticket lock new`: writes a lock crate.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;

use super::{build, lock_crate::check_name};
use crate::cli::{Usage, print};
use base::sanitize::shell_quoted;
use os::results;

/// Write a crate with a working lock (a ticketlock in Rust) and its tests, to be changed into your own
#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the lock in tables
    #[arg(value_name = "NAME")]
    name: String,

    /// Directory to create [default: NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Write a lock in C (the lock of Mellor-Crummey and Scott) instead of Rust
    #[arg(long)]
    c: bool,
}

/// Files of a crate: their paths, and the texts that they consist of.
type Files = &'static [(&'static str, &'static [&'static str])];

const TESTS: &str = include_str!("templates/tests.rs.tmpl");
const MANIFEST: &str = include_str!("templates/Cargo.toml.tmpl");
const RUST: Files = &[
    ("Cargo.toml", &[MANIFEST]),
    ("src/lib.rs", &[include_str!("templates/lock.rs.tmpl"), TESTS]),
];
const C: Files = &[
    ("Cargo.toml", &[MANIFEST]),
    ("build.rs", &[include_str!("templates/build.rs.tmpl")]),
    ("src/lib.rs", &[include_str!("templates/lock_c.rs.tmpl"), TESTS]),
    ("src/lock.c", &[include_str!("templates/lock.c.tmpl")]),
    ("src/pvticket.h", &[include_str!("templates/pvticket.h")]),
];

/// Runs the subcommand and returns the exit status.
pub(super) fn run(args: &NewArgs) -> anyhow::Result<u8> {
    check_name(&args.name).map_err(|error| Usage(error.to_string()))?;
    let dir = args.dir.clone().unwrap_or_else(|| args.name.clone().into());
    let locks = build::checkout()?.join("guest-kernel-config/locks");
    let (files, about, file) = if args.c {
        (C, "MCS lock in C (a new lock crate)", "src/lock.c")
    } else {
        (RUST, "ticketlock in one word (a new lock crate)", "src/lib.rs")
    };
    let shown = dir.display().to_string();
    fs::create_dir(&dir).with_context(|| format!("cannot create {shown}"))?;
    fs::create_dir(dir.join("src")).with_context(|| format!("cannot create {shown}/src"))?;
    for (name, texts) in files {
        let text = fill(&texts.concat(), &args.name, about, &locks);
        let path = dir.join(name);
        results::write(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let quoted = shell_quoted(&shown);
    print(&format!(
        "{shown}/{file}: {about}\nnext: pvticket compare --lock-crate {quoted} --vcpus 2x\n"
    ));
    Ok(0)
}

fn fill(text: &str, name: &str, about: &str, locks: &Path) -> String {
    // Quoted for TOML.
    let locks = locks.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    [
        ("@NAME@", name),
        ("@ABOUT@", about),
        ("@LOCKS@", &locks),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
