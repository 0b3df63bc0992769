//! Plans the rest of a run from its store, which may have been changed since. Writes nothing.

use std::path::Path;

use anyhow::bail;
use base::{plural::count, shown, units::CpuList};

use super::{MOST_JOBS, Nodes, Plan, carriers, experiment};
use crate::{Usage, host::HostMode};
use lab::host::allowed_cpus;
use study::{
    plan::check_cpus,
    spec::{Experiment, is_simulated},
    store::{
        Contents, Store,
        record::{CellLine, RunLine},
    },
};

/// The cells that are left of the run in this directory, with `retry` also those that failed; a sweep is refused.
pub fn resumed(dir: &Path, retry: bool) -> anyhow::Result<Plan> {
    let (store, mut contents) = Store::resume(dir)?;
    if contents.sweep.is_some() {
        let dir = base::shown::quoted(&dir.display().to_string());
        bail!(Usage(format!("{dir} is a sweep: resume it with pvticket run --resume {dir}")));
    }
    if retry {
        // In the plan only: the store keeps what it has.
        contents.cells.retain(|cell| !cell.has_failed());
    }
    reopened(dir, store, contents, Nodes::Here)
}

/// As [`resumed`], for a sweep.
pub(crate) fn resumed_sweep(dir: &Path, nodes: Nodes) -> anyhow::Result<Plan> {
    let (store, contents) = Store::resume(dir)?;
    reopened(dir, store, contents, nodes)
}

fn reopened(dir: &Path, store: Store, contents: Contents, nodes: Nodes) -> anyhow::Result<Plan> {
    let run = contents.run.clone();
    let experiment = stored(dir, &run, &contents.cells, nodes)?;
    if nodes == Nodes::Here && !is_simulated(&run.spec) {
        let named = CpuList::new(&run.cpus).map_err(Usage::from)?;
        check_cpus(&named, &allowed_cpus().map_err(Usage::from)?).map_err(Usage::from)?;
    }
    Ok(Plan { run, experiment, resumed: Some((dir.to_owned(), store, contents)) })
}

/// The experiment of a stored run, which has to give the stored cells again.
pub(crate) fn stored(
    dir: &Path,
    run: &RunLine,
    stored: &[CellLine],
    nodes: Nodes,
) -> anyhow::Result<Experiment> {
    if let Some(reason) = contradiction(run) {
        let reason = shown::line(&reason);
        bail!("{}: its first line is damaged: {reason}; start the run anew", dir.display());
    }
    let experiment =
        experiment(run, nodes, |error| Usage(format!("{}: its spec: {error}", dir.display())))?;
    let cells = experiment.cells();
    let is_same = !cells.is_empty()
        && cells.len() == run.cells as usize
        && experiment.seed == run.seed
        && stored.iter().all(|line| {
            let planned = &cells[line.cell as usize];
            line.round == planned.round && line.point == experiment.points[planned.point]
        });
    if !is_same {
        bail!(
            "{}: on this host its spec gives other cells than where it was started; start it anew",
            dir.display()
        );
    }
    Ok(experiment)
}

/// A value in a run's first line that `fresh` would never have written.
fn contradiction(run: &RunLine) -> Option<String> {
    let RunLine { jobs, host, cpus, .. } = run;
    let available = match CpuList::new(cpus).map_err(Usage::from).and_then(|_| carriers(run)) {
        Ok(list) => list.cpus().len(),
        Err(error) => return Some(error.to_string()),
    };
    let most = available.min(usize::from(MOST_JOBS));
    if !(1..=most).contains(&(*jobs as usize)) {
        return Some(format!("{}, expected 1 to {most}", count(*jobs, "job")));
    }
    host.parse::<HostMode>().is_err().then(|| format!("unknown host '{host}'"))
}
