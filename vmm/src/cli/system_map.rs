//! Reads the file of `--system-map`.

use std::path::Path;

use super::Usage;
use base::{files, units::ByteSize};

/// Limit of the file's size: several times the System.map of an allyesconfig kernel.
const MAX_FILE: ByteSize = ByteSize::mib(64);

/// Reads a System.map and returns the result of `find` on its text. If that is `None`, fails with the reason
/// `missing`.
pub(super) fn read<T>(
    map: &Path,
    find: impl FnOnce(&str) -> Option<T>,
    missing: &str,
) -> Result<T, Usage> {
    let usage = |reason: &str| Usage(format!("--system-map {}: {reason}", map.display()));
    let text = files::read(map, MAX_FILE).map_err(|error| usage(&error.to_string()))?;
    find(&String::from_utf8_lossy(&text))
        .ok_or_else(|| usage(&format!("{missing} (is it a kernel's System.map?)")))
}
