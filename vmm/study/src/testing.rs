//! Made-up runs, for tests of what reads, studies and shows them.

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

/// The generator, shared with the end-to-end tests.
#[path = "../../../tests/src/fixture.rs"]
pub mod fixture;

pub use fixture::Fixture;

/// A fixture, read as a store.
pub fn record(fixture: &Fixture) -> RunRecord {
    parse(&fixture.text()).unwrap()
}

/// The figures of a run with their points, to change them.
pub fn figures(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut Figures)> {
    run.contents.cells.iter_mut().filter_map(|cell| match &mut cell.outcome {
        Outcome::Done { figures } => Some((&cell.point, &mut **figures)),
        Outcome::Failed { .. } | Outcome::Aborted => None,
    })
}

/// The accounts of a run's schedules with their points, to change them.
pub fn schedules(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut ScheduleFigures)> {
    figures(run).filter_map(|(point, figures)| Some((point, figures.schedule.as_mut()?)))
}

/// Parses this text as a store.
pub fn parse(text: &str) -> Result<RunRecord, StoreError> {
    let contents = store::read_from(text.as_bytes(), Path::new("runs/a/cells.jsonl"))?;
    Ok(RunRecord { source: "runs/a".into(), contents })
}

/// An experiment of four cells.
pub fn experiment() -> Experiment {
    let text = "locks = [\"ticket\", \"pv-ticket\"]\nvcpus = 2\nrepetitions = 2\nseconds = 0.5\n";
    parse_spec(text, "0-1", HostKind::Direct)
}

/// The experiment of a spec on these CPUs, whose cells run at one place.
pub fn parse_spec(text: &str, cpus: &str, place: HostKind) -> Experiment {
    let cpus = cpus.parse().unwrap();
    let experiment =
        Experiment::parse(text, "test", &Setting::new(&cpus, &|_: &str, _, _| Ok(place)));
    experiment.unwrap_or_else(|error| panic!("{text}: {error}"))
}
