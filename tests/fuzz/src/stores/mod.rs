//! Stores of runs: read, resumed and reported.

mod seeds;

use std::{fs, path::Path, slice};

use pvticket::cli::testing::resume;
use report::{
    document::Document,
    html,
    words::text::{Form, render},
};
use study::{
    findings::{Diff, RunRecord, Study},
    point::HostKernel,
    store::{FILE, export, record::RunLine},
    testing::{self, Fixture},
};
use tempfile::TempDir;

pub use seeds::store_seeds;

use crate::input::is_one_line;

thread_local! {
    /// Directory of all executions of [`store`]. libFuzzer may exit without removing it: `run.sh` does.
    static FOLDER: TempDir = TempDir::new().unwrap();
}

/// A store in its directory: planning the rest of its run does not change it, and a store that can be read
/// can be reported.
pub fn store(bytes: &[u8]) {
    FOLDER.with(|folder| store_in(folder.path(), bytes));
}

fn store_in(folder: &Path, bytes: &[u8]) {
    let file = folder.join(FILE);
    fs::write(&file, bytes).unwrap();
    match resume(folder) {
        Ok(plan) => {
            assert!(["cell of ", "cells of "].iter().any(|words| plan.contains(words)), "{plan}")
        }
        Err(error) => is_one_line(&error),
    }
    assert_eq!(fs::read(&file).unwrap(), bytes);
    match RunRecord::read(folder) {
        Ok(record) => report(&record),
        Err(error) => is_one_line(&error.to_string()),
    }
}

fn report(record: &RunRecord) {
    const MAX_CELLS: usize = 40;
    if record.contents.cells.len() > MAX_CELLS {
        return;
    }
    let records = slice::from_ref(record);
    assert!(export::csv(records, Vec::new()).is_ok());
    // Statistics take milliseconds, so the input selects the report.
    let study = Study::new(records);
    if record.contents.cells.len().is_multiple_of(2) {
        assert!(!render(&Document::for_study(&study), Form::terminal(80)).is_empty());
        assert!(html::page(&study, None).is_ok());
    } else {
        let diff = Diff::new(Study::new(records), study);
        let document = Document::for_diff(&diff);
        assert!(!render(&document, Form::MAIL).is_empty());
        assert!(html::document_page(document).is_ok());
    }
}

fn run() -> RunLine {
    RunLine {
        spec: "locks = \"ticket\"\nvcpus = 2\nrepetitions = 4".into(),
        host: "emulated".into(),
        host_kernel: HostKernel::Linux7,
        cpus: vec![0],
        cells: 4,
        ..testing::record(&Fixture::default()).contents.run
    }
}
