//! `--system-map F`.

use std::path::Path;

use super::Usage;
use crate::{files, units::ByteSize};

/// Several times that of a kernel with everything in it.
const LONGEST: ByteSize = ByteSize::mib(64);

/// What `find` finds in the text of a kernel's System.map; what is missing where it finds nothing.
pub(super) fn read<T>(
    map: &Path,
    find: impl FnOnce(&str) -> Option<T>,
    missing: &str,
) -> Result<T, Usage> {
    let usage = |what: &str| Usage(format!("--system-map {}: {what}", map.display()));
    let text = files::read(map, LONGEST).map_err(|error| usage(&error.to_string()))?;
    find(&String::from_utf8_lossy(&text))
        .ok_or_else(|| usage(&format!("{missing} (is it a kernel's System.map?)")))
}
