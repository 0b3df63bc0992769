//! How far the run in a directory is, from its files and, if it can be asked, its engine.

use std::{fmt::Write as _, path::Path};

use super::{
    head::stored_engine,
    nodes,
    screen::{self, Activities},
};
use crate::plan::stored;
use base::plural::{agree, count};
use lab::sweep::{
    Activity, Engine, EngineKind,
    dir::SweepDir,
    progress::{State, Tracker},
    slurm::{Shape, Slurm, array},
};
use study::store::{
    self, Contents, Tally,
    sweep::{PartFault, record::SweepLine},
};

/// The state of a run in words.
#[derive(Debug)]
pub struct Status {
    /// Lines for people.
    pub text: String,
    /// Units that are neither done, nor known to wait or run; empty for a run without units.
    pub missing: Vec<u32>,
    /// All cells have ended.
    pub is_over: bool,
}

/// The state of the run in `dir`.
pub fn status(dir: &Path) -> anyhow::Result<Status> {
    match store::read_head(dir)? {
        (contents, None) => Ok(of_run(dir, &contents)),
        (head, Some(sweep)) => of_sweep(dir, &head, &sweep),
    }
}

fn of_run(dir: &Path, contents: &Contents) -> Status {
    let (all, Tally { failed, left, .. }) = (contents.run.cells, contents.tally());
    let text = format!(
        "{}: {}\n{} of {} done, {failed} failed, {} left\n",
        dir.display(),
        contents.run.name,
        all - left - failed,
        count(all, "cell"),
        left
    );
    Status { text, missing: Vec::new(), is_over: left == 0 }
}

fn of_sweep(dir: &Path, head: &Contents, sweep: &SweepLine) -> anyhow::Result<Status> {
    let planned = stored_engine(dir, &sweep.engine)?;
    let experiment = stored(dir, &head.run, &[], nodes(planned))?;
    let state = Tracker::new(&experiment, sweep).look(dir)?;
    let place = SweepDir::new(dir)?;
    let submissions: Vec<_> = place
        .submissions(&sweep.id)?
        .into_iter()
        .filter(|submission| submission.engine == EngineKind::Slurm.name())
        .collect();
    let shape = Shape { exclusive: false, estimate: Default::default() };
    let asked = Slurm::new(place, &sweep.binary.sha256, shape).watch(&submissions);
    let nothing = Activities::new();
    let activities = asked.as_ref().unwrap_or(&nothing);
    let all = 0..sweep.units.len() as u32;
    let missing = all.filter(|unit| !state.whole.contains(unit) && !activities.contains_key(unit));
    let missing: Vec<u32> = missing.collect();
    let mut text = format!("{}: {}, a sweep on {}\n", dir.display(), head.run.name, sweep.engine);
    let line = screen::line(&state, activities, sweep.units.len(), head.run.cells);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
    describe(&mut text, &state, activities, &missing);
    if let Err(error) = &asked {
        let _ = writeln!(text, "note: what waits and runs is not known: {error}");
    }
    notes(&mut text, dir)?;
    Ok(Status { text, is_over: state.whole.len() == sweep.units.len(), missing })
}

fn describe(text: &mut String, state: &State, activities: &Activities, missing: &[u32]) {
    let nodes: Vec<String> =
        state.nodes.iter().map(|(node, units)| format!("{node} {units}")).collect();
    if !nodes.is_empty() {
        let _ = writeln!(text, "units done by node: {}", nodes.join(", "));
    }
    for (unit, activity) in activities {
        match activity {
            Activity::Running => {
                let node = state.attempts.get(unit).filter(|node| !node.is_empty());
                let place = node.map(|node| format!(" on {node}")).unwrap_or_default();
                let _ = writeln!(text, "unit {unit} runs{place}");
            }
            Activity::Stuck(reason) => {
                let _ = writeln!(text, "unit {unit} never starts: {reason}");
            }
            Activity::Waiting(_) => {}
        }
    }
    if !missing.is_empty() {
        let begun = missing.iter().filter(|unit| state.attempts.contains_key(unit)).count();
        let _ = writeln!(text, "units left: {} ({begun} begun)", array(missing));
    }
}

/// Adds a note on each part that does not count.
fn notes(text: &mut String, dir: &Path) -> anyhow::Result<()> {
    let contents = store::read(dir)?;
    let Some(merged) = contents.sweep else { return Ok(()) };
    let mut aborted = 0;
    for note in &merged.notes {
        match &note.fault {
            PartFault::Damaged { line, why } => {
                let _ = writeln!(text, "note: part {} is damaged in line {line}: {why}", note.name);
            }
            PartFault::Again => {
                let _ =
                    writeln!(text, "note: part {}: another attempt at the unit counts", note.name);
            }
            PartFault::Half => aborted += note.cells,
        }
    }
    if aborted > 0 {
        let _ = writeln!(
            text,
            "{} of attempts that are not whole {} not count",
            count(aborted, "cell"),
            agree(aborted, "does", "do")
        );
    }
    Ok(())
}
