//! Sweeps: runs whose units are run by separate tasks, on one node or many.
//!
//! ```text
//! DIR/cells.jsonl            the run's line and the sweep's line; no cells
//! DIR/parts/UNIT....jsonl    one attempt at a unit each: session, cells, and a last line `unit`
//! ```
//!
//! Each part has one writer. Reading the directory merges the parts; what an engine such as Slurm
//! says about its tasks does not matter for it.

#[cfg(test)]
mod large_tests;
mod merge;
mod part;
pub mod record;
mod sum;
#[cfg(test)]
mod tests;

use std::{
    fs,
    io::{self, BufReader},
    path::Path,
};

pub use merge::{Merged, PartFault, PartNote, merge};
pub use part::{End, Part, parse};
pub(super) use sum::Checksum;

use super::{Contents, StoreError, failed};
use base::files;
use record::SweepLine;

/// The directory of the parts in a run's directory.
pub const PARTS: &str = "parts";

/// How the names of parts end.
pub const SUFFIX: &str = ".jsonl";

/// Adds the cells of all parts in `dir` to what its head says.
pub(super) fn read(
    dir: &Path,
    contents: Contents,
    sweep: SweepLine,
) -> Result<Contents, StoreError> {
    let names = names(dir)?;
    let parts = names.into_iter().map(|name| {
        let part = read_part(dir, &name, &sweep);
        (name, part)
    });
    Ok(merge(contents, &sweep, parts))
}

/// The names of the parts in `dir`, sorted; none if there is no such directory yet.
pub fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let place = dir.join(PARTS);
    let entries = match fs::read_dir(&place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("list", &place))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("list", &place))?.file_name();
        // Others are not ours: ours are ASCII.
        names.extend(name.into_string().ok().filter(|name| name.ends_with(SUFFIX)));
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads one part. One that cannot be read is damaged.
pub fn read_part(dir: &Path, name: &str, sweep: &SweepLine) -> Part {
    let unread =
        |reason: String| Part { end: End::Damaged { line: 0, why: reason }, ..Part::default() };
    match files::regular(&dir.join(PARTS).join(name)) {
        Ok(file) => parse(BufReader::with_capacity(1 << 16, file), sweep),
        Err(error) => unread(error.to_string()),
    }
}
