//! `--system-map F`.

use std::{fs, path::Path};

use super::Usage;

/// What `find` finds in the text of a kernel's System.map; what is missing where it finds nothing.
pub(super) fn read<T>(
    map: &Path,
    find: impl FnOnce(&str) -> Option<T>,
    missing: &str,
) -> Result<T, Usage> {
    let usage = |what: &str| Usage(format!("--system-map {}: {what}", map.display()));
    let text = fs::read(map).map_err(|error| usage(&error.to_string()))?;
    find(&String::from_utf8_lossy(&text))
        .ok_or_else(|| usage(&format!("{missing} (is it a kernel's System.map?)")))
}
