//! What subcommands do with files and answers of others, for the fuzz targets.

use std::path::Path;

use super::top;
use experiments::plan;

/// Resumes the run in `dir`, up to its dry run. An error is one line.
pub fn resume(dir: &Path) -> Result<String, String> {
    let plan = plan::resumed(dir, false).map_err(|error| error.to_string())?;
    Ok(plan.dry_run())
}

/// What `top` shows for a line that a run has sent, or why it does not.
pub fn heard(line: &[u8]) -> Result<Vec<String>, String> {
    top::heard(line)
}
