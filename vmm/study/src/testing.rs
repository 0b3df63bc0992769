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
    let cpus = "0-1".parse().unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Direct);
    Experiment::parse(text, "four", &Setting::new(&cpus, &place)).unwrap()
}
