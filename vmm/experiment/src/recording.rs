//! Recordings that the policy `replay` follows.

use std::{fmt::Display, io::BufReader, path::Path};

use base::{files, plural::count};
use os::streams::eprint_line;
use sched::recording::Recording;

use crate::Usage;

/// Path in the emulated host of the recording to replay.
pub const RECORDING_INSIDE: &str = "/in/recording";

/// Reads the recording that a policy replays.
pub fn read(file: &Path) -> Result<Recording, Usage> {
    let usage = |error: &dyn Display| unusable(file, error);
    let open = files::open_regular(file).map_err(|error| usage(&error))?;
    Recording::read(&mut BufReader::new(open)).map_err(|error| usage(&error))
}

fn unusable(file: &Path, error: &dyn Display) -> Usage {
    Usage(format!("--policy replay:{}: {error}", file.display()))
}

/// Reads the recording that a policy replays, and prints a note if it is incomplete. It must match every pair
/// of slots and vCPUs (the sum over all machines) in `sizes`.
pub fn read_for(
    file: &Path,
    sizes: impl IntoIterator<Item = (u32, u32)>,
) -> Result<Recording, Usage> {
    let recording = read_matching(file, sizes)?;
    if let Some(shortfall) = recording.shortfall() {
        eprint_line(format_args!("pvticket: --policy replay:{}: {shortfall}", file.display()));
    }
    Ok(recording)
}

/// Like [`read_for`], without the note.
pub fn read_matching(
    file: &Path,
    sizes: impl IntoIterator<Item = (u32, u32)>,
) -> Result<Recording, Usage> {
    let recording = read(file)?;
    let recorded = (recording.slots, recording.vcpus);
    if let Some((slots, vcpus)) = sizes.into_iter().find(|size| *size != recorded) {
        let contents =
            format!("{} on {}", count(recording.vcpus, "vCPU"), count(recording.slots, "slot"));
        return Err(unusable(file, &format!("it has {contents}, but this is {vcpus} on {slots}")));
    }
    Ok(recording)
}
