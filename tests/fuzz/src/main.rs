//! libFuzzer's entry point to the fuzz targets.
//!
//! All targets are in one binary, which is linked once. `PVTICKET_FUZZ` names the target to run, and
//! the arguments are libFuzzer's. `run.sh` runs the targets, and `README.md` explains how to add one.

// libFuzzer provides `main`.
#![no_main]

use std::{fs, io, path::Path, process::exit, sync::OnceLock};

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static CHOSEN: OnceLock<&Target> = OnceLock::new();

/// Finds the target that the environment names, and writes its seeds on request.
fn choose() {
    let name = std::env::var("PVTICKET_FUZZ").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        exit(if name == "list" { 0 } else { 2 });
    };
    if let Some(folder) = std::env::var_os("PVTICKET_FUZZ_SEEDS")
        && let Err(error) = write_seeds(target, Path::new(&folder))
    {
        eprintln!("pvticket-fuzz: cannot write the seeds of {name}: {error}");
        exit(2);
    }
    let _ = CHOSEN.set(target);
}

fn write_seeds(target: &Target, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (number, seed) in (target.seeds)().into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

fuzz_target!(init: choose(), |bytes: &[u8]| {
    if let Some(target) = CHOSEN.get() {
        (target.run)(bytes);
    }
});
