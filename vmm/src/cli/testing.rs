//! Reads untrusted files as subcommands do, for the fuzz targets.

use std::path::Path;

use experiment::plan;

/// Resumes the run in `dir`, up to the dry run. An error is one line.
pub fn resume(dir: &Path) -> Result<String, String> {
    let plan = plan::resume(dir, false).map_err(|error| error.to_string())?;
    Ok(plan.dry_run())
}
