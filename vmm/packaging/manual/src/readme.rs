//! What the man page quotes from the README, so that it is written once.

use crate::ManualError;

const README: &str = include_str!("../../../../README.md");

/// The rows of the table of environment variables: name, meaning.
pub(crate) fn environment() -> Result<Vec<(&'static str, &'static str)>, ManualError> {
    let missing = ManualError::Readme("table of the environment");
    let section = README.split("\n## Environment\n").nth(1).ok_or(missing)?;
    let rows: Vec<_> = section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let (name, meaning) =
                line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
            Some((name, meaning))
        })
        .collect();
    if rows.is_empty() { Err(ManualError::Readme("environment variables")) } else { Ok(rows) }
}

/// The paragraph on exit statuses.
pub(crate) fn exit_status() -> Result<String, ManualError> {
    let at = README.find("\nExit status: ").ok_or(ManualError::Readme("exit status"))?;
    let lines = README[at..].trim_start().lines();
    Ok(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" "))
}
