//! Plans the rest of a run from its store, which may have been changed since. Writes nothing.

use std::path::Path;

use anyhow::bail;
use base::{plural::count, sanitize, units::CpuList};

use super::{MAX_JOBS, Plan, full_experiment, run_cpus, select};
use crate::{Usage, host::allowed_cpus, host_choice::HostMode};
use study::{
    plan::check_cpus,
    spec::{Experiment, Form, Only, PlannedCell, SpecError},
    store::{
        Store,
        parts::Parts,
        record::{CellLine, RunLine},
    },
};

/// Plans the remaining cells of the run in this directory, with `retry` also failed cells.
pub fn resume(dir: &Path, retry: bool) -> anyhow::Result<Plan> {
    if let Some(parts) = Parts::find(dir)? {
        let (dir, count) =
            (base::sanitize::shell_quoted(&dir.display().to_string()), parts.count());
        bail!(Usage(format!(
            "{dir} has parts of a run: pvticket run SPEC --part K/{count} --dir {dir} resumes part K"
        )));
    }
    let (store, mut contents) = Store::resume(dir)?;
    if retry {
        // Only in the plan: the store keeps them.
        contents.cells.retain(|cell| !cell.has_failed());
    }
    let run = contents.run.clone();
    let experiment = rebuild(dir, &run, &contents.cells)?;
    if !experiment.is_simulated {
        let list = CpuList::new(&run.cpus).map_err(Usage::from)?;
        check_cpus(&list, &allowed_cpus().map_err(Usage::from)?).map_err(Usage::from)?;
    }
    Ok(Plan { run, experiment, resumed: Some((dir.to_owned(), store, contents)) })
}

/// Returns the experiment of a stored run, which must produce the stored cells again.
fn rebuild(dir: &Path, run: &RunLine, stored: &[CellLine]) -> anyhow::Result<Experiment> {
    let usage = |error: SpecError| Usage(format!("{}: its spec: {error}", dir.display()));
    let spec = Form::parse(&run.spec).map_err(usage)?;
    if let Some(reason) = contradiction(run, spec.is_simulated()) {
        let reason = sanitize::line(&reason);
        bail!("{}: its first line is damaged: {reason}; start a new run", dir.display());
    }
    let only = Only::parse(&run.only).map_err(|error| Usage(error.to_string()))?;
    let experiment = select(full_experiment(&spec, run, usage)?, &only, run)?;
    let cells = experiment.cells();
    let is_same = !cells.is_empty()
        && cells.len() == run.cells as usize
        && experiment.seed == run.seed
        && stored.iter().all(|line| {
            // Cells are in the order of their numbers.
            let at = cells.binary_search_by_key(&line.cell, |cell| cell.cell);
            at.is_ok_and(|at| {
                let PlannedCell { round, point, .. } = cells[at];
                line.round == round && line.point == experiment.points[point]
            })
        });
    if !is_same {
        bail!("{}: on this host its spec yields different cells; start a new run", dir.display());
    }
    Ok(experiment)
}

/// Describes a value in a run's first line that [`Plan::new`] never writes, if any.
fn contradiction(run: &RunLine, is_simulated: bool) -> Option<String> {
    let RunLine { jobs, host, cpus, .. } = run;
    let run_cpus = |_| run_cpus(run, is_simulated);
    let available = match CpuList::new(cpus).map_err(Usage::from).and_then(run_cpus) {
        Ok(list) => list.cpus().len(),
        Err(error) => return Some(error.to_string()),
    };
    let limit = available.min(usize::from(MAX_JOBS));
    if !(1..=limit).contains(&(*jobs as usize)) {
        return Some(format!("{}, expected 1 to {limit}", count(*jobs, "job")));
    }
    host.parse::<HostMode>().is_err().then(|| format!("unknown host '{host}'"))
}
