//! Measures the surrogates of the rows on this host, with the engine of `run`. Each table's run has
//! its own directory.

use std::{
    path::{Path, PathBuf},
    slice,
};

use super::{selection::Selection, state::Options};
use crate::{
    Usage,
    measure::{self, Folder},
    plan::{Plan, Request, resume},
    run::RunOptions,
};
use anyhow::Context;
use base::{files, plural::count, units::CpuList};
use os::streams::eprint_line;
use study::{
    findings::{RunRecord, Study},
    published::{self, Row, Surrogate, Table},
    spec::{Form, Only},
    store,
};

#[derive(Debug, Default)]
pub(super) struct Measured {
    /// By table, with the reason where a study is missing.
    tables: Vec<(String, Result<Study, String>)>,
    /// Number of CPUs of this host.
    cpus: usize,
}

impl Measured {
    /// Wraps the study of one table.
    #[cfg(test)]
    pub(super) fn new(table: &str, study: Study) -> Self {
        Self { tables: vec![(table.to_owned(), Ok(study))], cpus: 1 }
    }

    /// Returns the study of a table, or the reason why it is missing.
    pub(super) fn study(&self, table: &str) -> Option<Result<&Study, &str>> {
        let entry = self.tables.iter().find(|(name, _)| name == table);
        entry.map(|(_, study)| study.as_ref().map_err(String::as_str))
    }

    pub(super) fn studies(&self) -> impl Iterator<Item = &Study> {
        self.tables.iter().filter_map(|(_, study)| study.as_ref().ok())
    }

    /// Describes why this host cannot measure `surrogate`; None if it has enough CPUs.
    pub(super) fn lacks(&self, surrogate: &Surrogate<'_>) -> Option<String> {
        let wants = surrogate.base.cpus.max(surrogate.changed.cpus);
        (wants > self.cpus)
            .then(|| format!("requires {}; this host has {}", count(wants, "CPU"), self.cpus))
    }

    /// Number of violations of mutual exclusion, and of tickets served out of order.
    pub(super) fn broken(&self) -> f64 {
        self.studies().map(Study::failures).map(|(locks, order)| locks + order).sum()
    }
}

pub(super) fn directory(folder: &Path, table: &str) -> PathBuf {
    folder.join(format!("measured-{table}"))
}

/// Measures the remaining rows; None if it was interrupted.
pub(super) fn measure(
    selection: &Selection<'_>,
    options: &Options,
    folder: &Path,
    cpus: &CpuList,
) -> anyhow::Result<Option<Measured>> {
    let mut measured = Measured { tables: Vec::new(), cpus: cpus.cpus().len() };
    for (table, rows) in &selection.tables {
        let is_possible = |row: &&&Row| {
            table.surrogate(row).is_ok_and(|surrogate| measured.lacks(&surrogate).is_none())
        };
        let rows: Vec<&Row> = rows.iter().filter(is_possible).copied().collect();
        let Some(spec) = table.measured.as_ref().filter(|_| !rows.is_empty()) else { continue };
        let dir = directory(folder, &table.name);
        let file = dir.join(store::FILE);
        let exists = files::is_file(&file);
        let plan = if exists.with_context(|| format!("cannot look for {}", file.display()))? {
            resume(&dir, false)?
        } else {
            match plan_table(table, spec, &rows, options, cpus) {
                Ok(plan) => plan,
                // This host cannot measure the table; the rows report the reason.
                Err(error) => {
                    let reason = format!("{error:#}");
                    eprint_line(format_args!("pvticket: table {}: {reason}", table.name));
                    measured.tables.push((table.name.clone(), Err(reason)));
                    continue;
                }
            }
        };
        let Some(record) = record(plan, dir)? else { return Ok(None) };
        measured.tables.push((table.name.clone(), Ok(Study::new(slice::from_ref(&record)))));
    }
    Ok(Some(measured))
}

/// Runs the rest of a plan; None if it was interrupted.
fn record(plan: Plan, dir: PathBuf) -> anyhow::Result<Option<RunRecord>> {
    if plan.is_finished() {
        return Ok(Some(RunRecord::read(&dir)?));
    }
    // A failed cell is in the study with its error, and does not end the run.
    let done = measure::measure(plan, &Folder::Named(dir), RunOptions::default())?;
    let is_complete = !done.summary.stopped && done.summary.remaining == 0;
    Ok(is_complete.then_some(done.record))
}

fn plan_table(
    table: &Table,
    spec: &published::Measured,
    rows: &[&Row],
    options: &Options,
    cpus: &CpuList,
) -> anyhow::Result<Plan> {
    let spec = Form::parse(&full_spec(spec, options)).map_err(Usage::from)?;
    let only = Only::parse(&only(table, rows)).map_err(|error| Usage(error.to_string()))?;
    Plan::new(Request { only, ..Request::new(&table.name, spec, cpus.clone()) }, Usage::from)
}

/// Returns a table's spec with the number and length of its measurements.
fn full_spec(measured: &published::Measured, options: &Options) -> String {
    let published::Measured { spec, more_rounds, .. } = measured;
    let (rounds, seconds) = (options.runs * u32::from(*more_rounds), options.seconds);
    let lines = spec.join("\n");
    format!("{lines}\nrepetitions = {rounds}\nseconds = {seconds}\n")
}

/// Returns the `--only` that selects all points of these rows, and as few others as it can.
fn only(table: &Table, rows: &[&Row]) -> Vec<String> {
    let surrogates = rows.iter().filter_map(|row| table.surrogate(row).ok());
    let cells: Vec<Vec<(&str, &str)>> = surrogates
        .flat_map(|surrogate| [surrogate.base, surrogate.changed])
        .map(|cell| cell.only.iter().filter_map(|text| text.split_once('=')).collect())
        .collect();
    let mut values_by_key: Vec<(&str, Vec<&str>)> = Vec::new();
    for (key, value) in cells.iter().flatten() {
        match values_by_key.iter_mut().find(|(name, _)| name == key) {
            Some((_, values)) if values.contains(value) => {}
            Some((_, values)) => values.push(value),
            None => values_by_key.push((key, vec![value])),
        }
    }
    // A key that a cell does not name may have any value there.
    let is_in_all = |key: &str| cells.iter().all(|cell| cell.iter().any(|(name, _)| *name == key));
    let keys = values_by_key.into_iter().filter(|(key, _)| is_in_all(key));
    keys.map(|(key, values)| format!("{key}={}", values.join(","))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{point::HostKind, testing::parse_spec};

    fn options() -> Options {
        let (runs, seconds) = (6, 0.25);
        Options { rows: Vec::new(), measured: true, simulated: true, runs, seconds, short: false }
    }

    /// On hosts of any size, each cell of a row is one point, and both are run.
    #[test]
    fn every_measured_row_has_its_points() {
        for cpus in ["0-1", "0-7", "0-63"] {
            let list: CpuList = cpus.parse().expect("CPUs");
            let host = Measured { tables: Vec::new(), cpus: list.cpus().len() };
            for table in Table::all().expect("they can be read") {
                let Some(spec) = &table.measured else { continue };
                let full = parse_spec(&full_spec(spec, &options()), cpus, HostKind::Direct);
                assert_eq!(full.repetitions, 6 * u32::from(spec.more_rounds));
                for row in &table.rows {
                    let Ok(surrogate) = table.surrogate(row) else { continue };
                    if host.lacks(&surrogate).is_some() {
                        continue;
                    }
                    let mut run = full.clone();
                    run.retain(&Only::parse(&only(&table, &[row])).expect("selections"));
                    for cell in [surrogate.base, surrogate.changed] {
                        let only = Only::parse(cell.only).expect("a selection");
                        let points = run.points.iter().filter(|point| only.selects(point));
                        assert_eq!(points.count(), 1, "{}: {} on {cpus}", table.name, row.id);
                    }
                }
            }
        }
    }

    #[test]
    fn row_runs_only_the_points_it_needs() {
        let tables = Table::all().expect("they can be read");
        let dbench = tables.iter().find(|table| table.name == "dbench").expect("dbench");
        let row = |id: &str| dbench.rows.iter().find(|row| row.id == id).expect("a row");
        assert_eq!(only(dbench, &[row("PV at 2x")]), ["locks=ticket,pv-ticket", "vms=2"]);
        let both = only(dbench, &[row("PV at 2x"), row("base, 3x by 1x")]);
        assert_eq!(both, ["locks=ticket,pv-ticket", "vms=2,1,3"]);
    }
}
