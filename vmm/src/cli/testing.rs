//! What subcommands do with files and answers of others, for the fuzz targets.

use std::path::Path;

use experiment::plan;

/// Resumes the run in `dir`, up to its dry run. An error is one line.
pub fn resume(dir: &Path) -> Result<String, String> {
    let plan = plan::resumed(dir, false).map_err(|error| error.to_string())?;
    Ok(plan.dry_run())
}
