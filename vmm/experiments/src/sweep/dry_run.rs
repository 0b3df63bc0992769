//! `--dry-run` of a sweep: what would be submitted, and whether the cluster would take it.

use std::{fmt::Write as _, path::Path};

use base::{plural::count, shown::quoted};

use super::head::Head;
use crate::plan::spoken;
use lab::sweep::{
    EngineError, EngineKind,
    dir::SweepDir,
    slurm::{Shape, array, options, text as script},
    units::is_simulated,
};

/// The cells, the units and the estimate; for Slurm also the options, the script and Slurm's answer.
pub(super) fn text(head: &Head, given: Option<&str>, dir: Option<&Path>) -> anyhow::Result<String> {
    let mut text = head.plan.dry_run();
    let units = match &head.plan.resumed {
        Some((_, _, contents)) => {
            contents.sweep.iter().flat_map(|merged| merged.missing()).collect()
        }
        None => Vec::from_iter(0..head.sweep.units.len() as u32),
    };
    let cells = head.sweep.units.iter().map(|unit| unit.cells).max().unwrap_or(0);
    let longest = head.longest();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} of up to {}, each about {} on {}: {}",
        count(units.len(), "unit"),
        count(cells, "cell"),
        spoken(longest),
        count(head.sweep.cpus, "CPU"),
        array(&units)
    );
    if head.kind != EngineKind::Slurm {
        return Ok(text);
    }
    let default = Path::new("runs/NAME-TIME");
    let dir = SweepDir::new(head.resumed.as_deref().or(dir).unwrap_or(default))?;
    let submission = head.submission(0, given, units);
    let shape = Shape { exclusive: !is_simulated(head.experiment()), estimate: longest };
    let words = options(&dir, &submission, &shape);
    let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let script = script(&dir, &head.sweep.binary.sha256, 0);
    let _ = writeln!(text, "\nsbatch {}\n\n{script}", words.join(" "));
    let _ = match head.slurm(&dir).try_out(&submission) {
        Ok(answer) => writeln!(text, "Slurm says: {answer}"),
        Err(EngineError::Absent(command)) => {
            writeln!(text, "There is no {command} here to ask what the cluster says.")
        }
        Err(error) => writeln!(text, "Slurm refuses it: {error}"),
    };
    Ok(text)
}
