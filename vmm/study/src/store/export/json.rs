//! Stores as one JSON document.

use serde::Serialize;

use crate::{
    findings::{Comparison, PointStudy, RunRecord, Study, compare::Outcome},
    store::record::{CellLine, RunLine, SessionLine},
};

/// Version of the document.
const FORMAT: u32 = 3;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    pvticket: &'static str,
    /// Whether all cells of all runs have figures.
    complete: bool,
    runs: Vec<ExportedRun<'a>>,
    /// In the order of a report.
    points: &'a [PointStudy],
    comparisons: Vec<JudgedComparison<'a>>,
}

#[derive(Serialize)]
struct ExportedRun<'a> {
    store: &'a str,
    #[serde(flatten)]
    run: &'a RunLine,
    sessions: &'a [SessionLine],
    /// In the order they ended.
    lines: &'a [CellLine],
}

#[derive(Serialize)]
struct JudgedComparison<'a> {
    /// `of` and `against` are indices of points.
    #[serde(flatten)]
    comparison: &'a Comparison,
    outcome: Outcome,
}

/// Formats the stores' lines, and the study of them.
pub fn json(stores: &[RunRecord], study: &Study) -> serde_json::Result<String> {
    let judged = |comparison| JudgedComparison { comparison, outcome: comparison.outcome() };
    let document = Document {
        format: FORMAT,
        pvticket: env!("CARGO_PKG_VERSION"),
        complete: study.done() == study.cells(),
        runs: stores.iter().map(run).collect(),
        points: &study.points,
        comparisons: study.comparisons.iter().map(judged).collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn run(record: &RunRecord) -> ExportedRun<'_> {
    let contents = &record.contents;
    ExportedRun {
        store: &record.source,
        run: &contents.run,
        sessions: &contents.sessions,
        lines: &contents.cells,
    }
}
