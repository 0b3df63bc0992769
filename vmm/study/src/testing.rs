//! Synthetic runs, for tests of code that reads, analyses and shows them.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::path::Path;

use crate::{
    findings::RunRecord,
    point::{HostKind, Point},
    spec::{Experiment, Setting},
    store::{
        self, StoreError,
        record::{Figures, Outcome, ScheduleFigures},
    },
};

/// Generator of the fixtures, shared with the end-to-end tests.
#[path = "../../../tests/src/fixture.rs"]
pub mod fixture;

pub use fixture::Fixture;

/// Reads a fixture as a store.
pub fn record(fixture: &Fixture) -> RunRecord {
    parse(&fixture.text()).unwrap()
}

/// Returns the figures of a run with their points, for modification.
pub fn figures(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut Figures)> {
    run.contents.cells.iter_mut().filter_map(|cell| match &mut cell.outcome {
        Outcome::Done { figures } => Some((&cell.point, &mut **figures)),
        Outcome::Failed { .. } | Outcome::Aborted => None,
    })
}

/// Returns the accounts of a run's schedules with their points, for modification.
pub fn schedules(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut ScheduleFigures)> {
    figures(run).filter_map(|(point, figures)| Some((point, figures.schedule.as_mut()?)))
}

/// Parses a text as a store.
pub fn parse(text: &str) -> Result<RunRecord, StoreError> {
    let contents = store::read_from(text.as_bytes(), Path::new("runs/a/cells.jsonl"))?;
    Ok(RunRecord { source: "runs/a".into(), contents })
}

/// Returns an experiment of four cells.
pub fn experiment() -> Experiment {
    let text = "locks = [\"ticket\", \"pv-ticket\"]\nvcpus = 2\nrepetitions = 2\nseconds = 0.5\n";
    parse_spec(text, "0-1", HostKind::Direct)
}

/// Parses a spec as an experiment on these CPUs, with all cells on the host `place`.
pub fn parse_spec(text: &str, cpus: &str, place: HostKind) -> Experiment {
    let cpus = cpus.parse().unwrap();
    let experiment =
        Experiment::parse(text, "test", &Setting::new(&cpus, &|_: &str, _, _| Ok(place)));
    experiment.unwrap_or_else(|error| panic!("{text}: {error}"))
}
