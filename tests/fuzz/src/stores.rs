//! Stores of runs: read, resumed and reported; and the parts of sweeps.

use std::{collections::HashSet, fs, path::PathBuf, slice, sync::OnceLock};

use base::units::CpuList;
use pvticket::cli::testing::resume;
use report::{html, words};
use study::{
    findings::{Diff, RunRecord, Study},
    point::{HostKernel, HostKind},
    spec::{Experiment, Setting},
    store::{
        Contents, FILE, Store, export,
        record::{CellLine, FORMAT, Figures, Line, Load, Outcome, RunLine, SessionLine},
        sweep::{
            PARTS, merge, names, parse,
            record::{Attempt, SweepLine, Unit},
        },
    },
};
use tempfile::TempDir;

use crate::input::is_one_line;

/// A directory of this process; `run.sh` removes it.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| TempDir::new().unwrap().keep())
}

/// A store in its directory: nothing changes it before its run goes on, and what can be read can be
/// reported.
pub fn store(bytes: &[u8]) {
    let file = folder().join(FILE);
    fs::write(&file, bytes).unwrap();
    match resume(folder()) {
        Ok(plan) => assert!(plan.contains("cells of ")),
        Err(why) => is_one_line(&why),
    }
    assert_eq!(fs::read(&file).unwrap(), bytes);
    match RunRecord::read(folder()) {
        Ok(record) => report(&record),
        Err(error) => is_one_line(&error.to_string()),
    }
}

fn report(record: &RunRecord) {
    const MOST_CELLS: usize = 40;
    if record.contents.cells.len() > MOST_CELLS {
        return;
    }
    let one = slice::from_ref(record);
    assert!(export::csv(one, Vec::new()).is_ok());
    // Statistics take milliseconds: which report is made depends on the input.
    let study = Study::new(one);
    if record.contents.cells.len().is_multiple_of(2) {
        assert!(!words::text::render(&study, 80).is_empty());
        assert!(html::page(&study).is_ok());
    } else {
        let diff = Diff::new(Study::new(one), study);
        assert!(!words::diff::render(&diff, 80).is_empty());
        assert!(html::diff_page(&diff).is_ok());
    }
}

fn run() -> RunLine {
    RunLine {
        format: FORMAT,
        name: "fuzz".into(),
        question: String::new(),
        spec: "vcpus = 2".into(),
        only: Vec::new(),
        host: "emulated".into(),
        host_kernel: HostKernel::Linux7,
        cpus: vec![0],
        jobs: 1,
        seed: 1,
        cells: 4,
        at_ms: 1_700_000_000_000,
        machines: Vec::new(),
    }
}

fn sweep() -> SweepLine {
    SweepLine {
        id: "fuzz-1".into(),
        command: vec!["pvticket".into()],
        engine: "local".into(),
        options: String::new(),
        cpus: 1,
        kvm: false,
        binary: Default::default(),
        kernel: None,
        stock_kernel: None,
        units: vec![Unit { first: 0, cells: 2 }, Unit { first: 2, cells: 2 }],
    }
}

/// Between two parts of an input.
const CUT: &[u8] = b"\n--\n";

/// Parts of a sweep: each counts or is noted, no cell counts twice, and their order does not matter.
pub fn parts(bytes: &[u8]) {
    let mut rest = bytes;
    let mut texts = Vec::new();
    while let Some(at) = rest.windows(CUT.len()).position(|part| part == CUT) {
        texts.push(&rest[..=at]);
        rest = &rest[at + CUT.len()..];
    }
    texts.push(rest);
    let named =
        || texts.iter().enumerate().map(|(ix, text)| (format!("{ix:03}"), parse(*text, &sweep())));
    let head = || Contents {
        run: run(),
        sessions: Vec::new(),
        cells: Vec::new(),
        torn: None,
        sweep: None,
    };
    let merged = merge(head(), &sweep(), named());
    let backwards: Vec<_> = named().collect();
    assert_eq!(merge(head(), &sweep(), backwards.into_iter().rev()), merged);
    let cells: HashSet<u32> = merged.cells.iter().map(|cell| cell.cell).collect();
    assert_eq!(cells.len(), merged.cells.len());
    let found = merged.sweep.as_ref().unwrap();
    assert_eq!(cells.len(), 2 * found.whole.len());
    assert_eq!(found.whole.len() + found.notes.len(), texts.len());
    assert_eq!(found.missing().count(), sweep().units.len() - found.whole.len());
}

/// Parts as tasks write them: two whole ones of one unit, one of another, and half a one.
pub fn part_seeds() -> Vec<Vec<u8>> {
    let cpus = CpuList::new(&[0]).unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Direct);
    let setting = Setting { cpus: &cpus, place: &place };
    let planned = Experiment::parse("vcpus = 2", "fuzz", &setting).unwrap();
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join(PARTS)).unwrap();
    for (name, unit, restart, is_whole) in
        [("a", 0, 1, true), ("b", 0, 0, true), ("c", 1, 0, true), ("d", 1, 1, false)]
    {
        let attempt = Attempt {
            sweep: sweep().id,
            unit,
            submission: 0,
            restart,
            node: name.into(),
            job: None,
        };
        let session = SessionLine {
            at_ms: 1,
            command: Vec::new(),
            host: Default::default(),
            attempt: Some(attempt),
        };
        let mut part = Store::part(dir.path(), name, session).unwrap();
        for cell in [unit * 2 + 1, unit * 2] {
            let figures = Figures { seconds: 0.5, operations: vec![3, 4], ..Figures::default() };
            let outcome = Outcome::Done { figures: Box::new(figures) };
            let (round, load) = (0, Load::default());
            let point = planned.points[0].clone();
            let line =
                CellLine { cell, round, point, at_ms: 2, took: 0.5, load, node: None, outcome };
            part.append(&Line::Cell(Box::new(line))).unwrap();
        }
        if is_whole {
            part.end_part(unit, sweep().units[unit as usize]).unwrap();
        }
    }
    let text = |name: &String| fs::read(dir.path().join(PARTS).join(name)).unwrap();
    let all: Vec<Vec<u8>> = names(dir.path()).unwrap().iter().map(text).collect();
    vec![all.join(CUT), all[0].clone(), all[2..].join(CUT)]
}
