//! Fuzz targets: everything that a guest, a file or a peer can send, on arbitrary bytes.
//!
//! A target is a function of bytes that must neither panic nor break what it asserts. All targets are in
//! one binary, which is linked once; `PVTICKET_FUZZ` names the one to run, and the arguments are those of
//! libFuzzer. `run.sh` runs them, `README.md` says how to add one.

// libFuzzer has the entry point.
#![no_main]
#![allow(clippy::unwrap_used, reason = "a target may panic: that is a finding")]

mod control;
mod exits;
mod input;
mod kernels;
mod locks;
mod schedules;
mod specs;
mod stores;
mod traces;
mod wire;

use std::{fs, path::Path, process::exit, sync::OnceLock};

use libfuzzer_sys::fuzz_target;

/// A fuzz target.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// Inputs that only code can make.
    seeds: fn() -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// No seeds but those in `corpus/NAME`.
fn files() -> Vec<Vec<u8>> {
    Vec::new()
}

const TARGETS: &[Target] = &[
    target("elf", kernels::elf, kernels::elf_seeds),
    target("bzimage", kernels::bzimage, kernels::bzimage_seeds),
    target("initrd", kernels::initrd, kernels::initrd_seeds),
    target("cmdline", kernels::cmdline, kernels::cmdline_seeds),
    target("wire", wire::frames, wire::frame_seeds),
    target("agent", wire::messages, wire::message_seeds),
    target("recording", schedules::recording, schedules::recording_seeds),
    target("trace", traces::trace, files),
    target("store", stores::store, stores::store_seeds),
    target("spec", specs::spec, specs::spec_seeds),
    target("machine", specs::machine, specs::machine_seeds),
    target("parts", stores::parts, stores::part_seeds),
    target("control", control::control, control::seeds),
    target("exits", exits::exits, exits::seeds),
    target("core", schedules::core, schedules::core_seeds),
    target("locks", locks::locks, locks::seeds),
];

static CHOSEN: OnceLock<&Target> = OnceLock::new();

/// Finds the target that the environment names; writes its seeds if asked to.
fn choose() {
    let name = std::env::var("PVTICKET_FUZZ").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        exit(if name == "list" { 0 } else { 2 });
    };
    if let Some(folder) = std::env::var_os("PVTICKET_FUZZ_SEEDS") {
        let folder = Path::new(&folder);
        fs::create_dir_all(folder).unwrap();
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
        }
    }
    let _ = CHOSEN.set(target);
}

fuzz_target!(init: choose(), |bytes: &[u8]| {
    if let Some(target) = CHOSEN.get() {
        (target.run)(bytes);
    }
});
