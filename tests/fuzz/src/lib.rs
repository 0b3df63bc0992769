//! Fuzz targets: all input from guests, files and peers, as arbitrary bytes.
//!
//! A target is a function of bytes that must neither panic nor violate its assertions. The tests of this
//! crate replay each target on its seeds, on the files of `corpus/NAME`, and on a few mutations of both.
//! `main.rs` runs the targets under libFuzzer.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a target may panic: that is a finding")]

mod exits;
mod input;
mod kernels;
mod locks;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod replay;
mod schedules;
mod specs;
mod stores;
mod traces;
mod wire;

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    /// Name of the target, and of the folder of its inputs in `corpus`.
    pub name: &'static str,
    /// Processes one input.
    pub run: fn(&[u8]),
    /// Returns inputs that are made by code.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// No seeds except those in `corpus/NAME`.
fn files() -> Vec<Vec<u8>> {
    Vec::new()
}

/// The table of targets, and a test that replays each.
macro_rules! targets {
    ($($name:ident: $run:path, $seeds:path;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $run, seeds: $seeds }),*];

        #[cfg(test)]
        mod tests {
            $(#[test]
            fn $name() {
                crate::replay::replay(stringify!($name));
            })*
        }
    };
}

targets! {
    elf: kernels::elf, kernels::elf_seeds;
    bzimage: kernels::bzimage, kernels::bzimage_seeds;
    initrd: kernels::initrd, kernels::initrd_seeds;
    cmdline: kernels::cmdline, kernels::cmdline_seeds;
    wire: wire::frames, wire::frame_seeds;
    agent: wire::messages, wire::message_seeds;
    recording: schedules::recording, schedules::recording_seeds;
    trace: traces::trace, files;
    store: stores::store, stores::store_seeds;
    spec: specs::spec, specs::spec_seeds;
    machine: specs::machine, specs::machine_seeds;
    exits: exits::exits, exits::seeds;
    core: schedules::core, schedules::core_seeds;
    locks: locks::locks, locks::seeds;
}
