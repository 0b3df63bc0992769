//! The commands that reproduce a figure.

use crate::lists::unique;
use base::sanitize::shell_quoted;
use study::{
    findings::{RunFacts, Study},
    point::Point,
};

/// The commands that measure these points again and report them: one line per run, then
/// one for the report. Empty if no run has a record of the command that started it.
pub fn rerun_commands<'a>(study: &Study, points: impl Iterator<Item = &'a Point>) -> String {
    let points: Vec<&Point> = points.collect();
    let only = only(study, &points);
    let mut lines = Vec::new();
    let mut folders = Vec::new();
    for (ix, run) in study.runs.iter().enumerate() {
        let Some(session) = run.sessions.first() else { continue };
        let words: Vec<String> =
            without_dir(&session.command).map(|word| shell_quoted(word)).collect();
        if words.is_empty() {
            continue;
        }
        // `pvticket compare` has no `--only`.
        let only =
            if session.command.get(1).is_some_and(|word| word == "compare") { "" } else { &only };
        let folder = if ix == 0 { "again".to_owned() } else { format!("again-{}", ix + 1) };
        lines.push(format!("{}{only} --dir {folder}", words.join(" ")));
        folders.push(folder);
    }
    if !lines.is_empty() {
        lines.push(format!("pvticket report {} --html again.html", folders.join(" ")));
    }
    lines.join("\n")
}

/// A command without its `--dir`, which names an existing store.
fn without_dir(command: &[String]) -> impl Iterator<Item = &String> {
    let mut is_value = false;
    command.iter().filter(move |word| {
        let is_left_out = is_value || *word == "--dir" || word.starts_with("--dir=");
        is_value = *word == "--dir";
        !is_left_out
    })
}

/// The command line of a run's first start, quoted for a shell; `None` if not recorded.
pub fn start_command(run: &RunFacts) -> Option<String> {
    let words = &run.sessions.first()?.command;
    let words: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// `--only` for each axis on which `points` lack some value.
fn only(study: &Study, points: &[&Point]) -> String {
    let mut text = String::new();
    for axis in &study.varying {
        let Some(key) = axis.key() else { continue };
        let all_values = unique(study.points.iter().map(|study| axis.value(&study.point)));
        let values = unique(points.iter().map(|point| axis.value(point)));
        if values.len() < all_values.len() && !values.is_empty() {
            text += &format!(" --only {}", shell_quoted(&format!("{key}={}", values.join(","))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rerun_commands_have_no_dir() {
        let command = ["pvticket", "run", "s", "--dir", "d", "--jobs", "2", "--dir=e"];
        let command = command.map(str::to_owned);
        let remaining: Vec<&String> = without_dir(&command).collect();
        assert_eq!(remaining, ["pvticket", "run", "s", "--jobs", "2"]);
    }
}
