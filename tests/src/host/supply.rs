//! The inputs of builds and tests: the versions that the repository names, verified by checksums.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::{files, process::Program, suite::skip, tests};

tests![every_cargo_call_is_locked, a_kernel_source_with_another_sum_is_refused];

fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn every_cargo_call_is_locked() -> anyhow::Result<()> {
    let makefile = fs::read_to_string(repository("Makefile")).context("Makefile")?;
    let mut calls = 0;
    for line in makefile.lines().filter(|line| line.starts_with('\t') && line.contains("$(CARGO)"))
    {
        // It formats files, resolves no dependencies and has no such option.
        if line.contains("$(CARGO) fmt") {
            continue;
        }
        calls += 1;
        ensure!(line.contains(" --locked"), "not locked: {line}");
    }
    ensure!(calls >= 10, "the Makefile calls cargo {calls} times: is this the right file?");
    Ok(())
}

/// A version of the package that apt does not have, with the checksum that was kept for it.
fn a_kernel_source_with_another_sum_is_refused() -> anyhow::Result<()> {
    let script = repository("guest-kernel-config/linux/build.sh");
    if !script.is_file() {
        return skip("the repository is not here");
    }
    let folder = files::scratch()?;
    let source = folder.path().join("source");
    fs::create_dir(&source)?;
    let package = source.join("linux-source-6.1_6.1.9999-1_all.deb");
    fs::write(&package, "not what apt gave")?;
    let build = || {
        let program = Program::new("bash").args([&script]);
        program.env("PVTICKET_CACHE", folder.path()).env("KERNEL_SRC", "").run()
    };
    build()?.exits(1)?.complains(&["no SHA-256 to check", "6.1.9999-1"])?;
    let kept = format!("{}  linux-source-6.1_6.1.9999-1_all.deb\n", "5a".repeat(32));
    fs::write(source.join("linux-source-6.1_6.1.9999-1_all.deb.sha256"), kept)?;
    let ran = build()?.exits(1)?.complains(&["does not have the SHA-256", "remove the file"])?;
    ensure!(ran.errors().lines().count() == 1, "not one line\n{}", ran.show());
    Ok(())
}
