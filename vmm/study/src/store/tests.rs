use std::{fs::OpenOptions, io::Cursor, path::PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    read::read_from,
    record::{CellLine, Figures, Load, Outcome, SessionLine},
    *,
};
use crate::{
    host_facts::HostFacts,
    spec,
    testing::{Fixture, record},
};

/// Returns a store of one cell: more cells would take most of the time of these tests.
fn one_cell() -> Contents {
    let (locks, policies) = (vec![("ticket", "off")], vec!["host"]);
    let fixture = Fixture { rounds: 1, locks, policies, vcpus: vec![2], ..Fixture::default() };
    record(&fixture).contents
}

pub(crate) fn run() -> RunLine {
    RunLine { name: "test".into(), spec: "vcpus = 2".into(), cells: 4, ..one_cell().run }
}

fn session() -> Line {
    let (command, host) = (vec!["pvticket".into()], HostFacts::default());
    Line::Session(Box::new(SessionLine { at_ms: 1, command, host }))
}

pub(super) fn cell(number: u32, outcome: Outcome) -> Line {
    let load = Load {
        average: Some(0.5),
        busy: Some(0.25),
        hop_before: Some(27.5),
        hop_after: Some(163.0),
        ..Load::default()
    };
    Line::Cell(Box::new(CellLine { cell: number, load, outcome, ..one_cell().cells.remove(0) }))
}

pub(super) fn done() -> Outcome {
    let figures = Figures { seconds: 0.5, operations: vec![3, 4], ..Figures::default() };
    Outcome::Done { figures: Box::new(figures) }
}

pub(super) fn failure() -> Outcome {
    Outcome::Failed { error: "it died".into(), trace: "vCPU 0 ...\n".into() }
}

/// Returns a folder, and a path for a store in it.
fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("run");
    (folder, dir)
}

#[test]
fn appended_lines_are_read_back() {
    let (_folder, dir) = place();
    let mut store = Store::create(&dir, run()).unwrap();
    let lines = [session(), cell(2, done()), cell(0, Outcome::Aborted), cell(3, failure())];
    lines.iter().for_each(|line| store.append(line).unwrap());
    drop(store);
    let contents = read(&dir).unwrap();
    assert_eq!((contents.run.clone(), contents.sessions.len(), contents.torn), (run(), 1, None));
    assert_eq!(contents.cells.len(), 3);
    let mut finished: Vec<_> = contents.finished().into_iter().collect();
    finished.sort_unstable();
    assert_eq!(finished, [2, 3], "what was aborted is run again");
    assert!(matches!(Store::create(&dir, run()), Err(StoreError::Exists(_))));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing is left of what was refused");
}

/// /dev/null accepts data but cannot be synced (fsync(2): EINVAL).
#[test]
fn append_fails_without_sync() {
    let path = PathBuf::from("/dev/null");
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    let mut store = Store { file, path };
    assert!(store.append(&session()).is_err());
}

#[test]
fn stores_have_one_writer() {
    let (_folder, dir) = place();
    let store = Store::create(&dir, run()).unwrap();
    assert!(matches!(Store::resume(&dir), Err(StoreError::InUse(_))));
    drop(store);
    assert!(Store::resume(&dir).is_ok());
    fs::remove_dir_all(&dir).unwrap();
    assert!(matches!(Store::resume(&dir), Err(StoreError::Absent(_))));
    assert!(matches!(read(&dir), Err(StoreError::Absent(_))));
}

/// A child of a killed run has the store's descriptor until the child executes its program.
#[test]
fn waits_for_inherited_locks() {
    let (_folder, dir) = place();
    let store = Store::create(&dir, run()).unwrap();
    let inherited = store.file.try_clone().unwrap();
    drop(store);
    let child = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(inherited);
    });
    let resumed = Store::resume(&dir).map(drop);
    child.join().unwrap();
    assert!(resumed.is_ok(), "{resumed:?}");
    fs::remove_dir_all(&dir).unwrap();
}

/// At any tear in the last line, the lines before it are kept, and the run is resumed after them.
#[test]
fn a_torn_last_line_is_cut_off() {
    let (_folder, dir) = place();
    let mut store = Store::create(&dir, run()).unwrap();
    store.append(&session()).unwrap();
    let complete = fs::read(dir.join(FILE)).unwrap();
    store.append(&cell(1, done())).unwrap();
    drop(store);
    let full = fs::read(dir.join(FILE)).unwrap();
    for end in complete.len() + 1..full.len() {
        fs::write(dir.join(FILE), &full[..end]).unwrap();
        let (mut store, contents) = Store::resume(&dir).unwrap();
        let torn = Torn { at: complete.len() as u64, bytes: (end - complete.len()) as u64 };
        assert_eq!((contents.torn, contents.cells.len()), (Some(torn), 0));
        assert_eq!(fs::read(dir.join(FILE)).unwrap(), full[..end], "only read so far");
        store.repair(torn).unwrap();
        store.append(&cell(1, done())).unwrap();
        assert_eq!(fs::read(dir.join(FILE)).unwrap(), full);
    }
    // Without a complete first line, there is no run.
    fs::write(dir.join(FILE), &complete[..9]).unwrap();
    assert!(matches!(read(&dir), Err(StoreError::Damaged { line: 1, .. })));
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

fn refused(text: &str) -> String {
    read_from(Cursor::new(text), Path::new("F")).unwrap_err().to_string()
}

#[test]
fn damage_is_reported_with_its_line() {
    let first = Line::Run(Box::new(run()));
    for (text, what) in [
        (String::new(), "line 1: its first line is missing"),
        ("PK\n".into(), "line 1"),
        (text(&[session()]), "line 1"),
        (text(&[first.clone(), first.clone()]), "line 2: it describes the run again"),
        (text(&[first.clone(), cell(4, done())]), "line 2: the run has no cell"),
        (text(&[first.clone(), cell(1, done()), cell(1, failure())]), "line 3: the cell is"),
        (text(std::slice::from_ref(&first)) + "{}\n" + &text(&[session()]), "line 2"),
        (
            text(std::slice::from_ref(&first)) + "{\"kind\":\"a\\nb\"}\n" + &text(&[session()]),
            "line 2: unknown variant `a?b`",
        ),
        (
            text(&[first]).replace("\"format\":2", "\"format\":1"),
            "has format 1, this version of pvticket reads format 2: ",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    }
}

proptest! {
    #[test]
    fn figures_round_trip(seconds in 0.0..1e12_f64, busy in 0.0..1.0_f64) {
        let figures = Figures { seconds, ..Figures::default() };
        let Line::Cell(mut line) = cell(0, Outcome::Done { figures: Box::new(figures) }) else {
            unreachable!()
        };
        line.load.busy = Some(busy);
        let lines = text(&[Line::Run(Box::new(run())), session(), Line::Cell(line.clone())]);
        let contents = read_from(Cursor::new(lines), Path::new("F")).unwrap();
        prop_assert_eq!(&contents.cells, &[*line]);
    }
}

/// Regression: a store that is a link was cut and appended to.
#[test]
fn does_not_write_through_links() {
    let folder = TempDir::new().unwrap();
    let [theirs, ours] = ["theirs", "ours"].map(|name| folder.path().join(name));
    drop(Store::create(&theirs, run()).unwrap());
    fs::create_dir(&ours).unwrap();
    std::os::unix::fs::symlink(theirs.join(FILE), ours.join(FILE)).unwrap();
    assert!(read(&ours).is_ok());
    let error = Store::resume(&ours).unwrap_err().to_string();
    assert!(error.ends_with("is a link: name the directory that has the file itself"), "{error}");
    let part = spec::Part::new(1, 2).unwrap();
    std::os::unix::fs::symlink(&theirs, folder.path().join(part.folder())).unwrap();
    assert_eq!(parts::Parts::find(folder.path()).unwrap(), None);
    let error = parts::Parts::dir_of(folder.path(), part).unwrap_err();
    assert!(matches!(error, StoreError::Link(_)), "{error}");
}

/// Regression: the sum of both counts, which a guest chooses, overflowed and ended the program.
#[test]
fn failure_counts_do_not_overflow() {
    let figures = |violations, disorder| Figures { violations, disorder, ..Figures::default() };
    assert!(
        figures(u64::MAX, u64::MAX).is_broken()
            && figures(0, 1).is_broken()
            && figures(1, 0).is_broken()
    );
    assert!(!figures(0, 0).is_broken());
}

/// A failed cell may be measured again, in a session that may end early; a done or BROKEN cell may not.
#[test]
fn only_failed_cells_may_repeat() {
    let broken = || match done() {
        Outcome::Done { mut figures } => {
            figures.disorder = 1;
            Outcome::Done { figures }
        }
        other => other,
    };
    let counts = |outcomes: Vec<Outcome>| {
        let (_folder, dir) = place();
        let mut store = Store::create(&dir, run()).unwrap();
        outcomes.into_iter().for_each(|outcome| store.append(&cell(2, outcome)).unwrap());
        let contents = read(&dir).ok()?;
        let Tally { done, failed, broken, .. } = contents.tally();
        Some((done, failed, broken, contents.finished().contains(&2)))
    };
    let once = |outcome| counts(vec![outcome]);
    assert_eq!(once(failure()), Some((0, 1, 0, true)));
    assert_eq!(once(broken()), Some((1, 0, 1, true)));
    assert_eq!(once(Outcome::Aborted), Some((0, 0, 0, false)));
    assert_eq!(counts(vec![failure(), done()]), Some((1, 0, 0, true)));
    assert_eq!(counts(vec![failure(), Outcome::Aborted]), Some((0, 0, 0, false)));
    assert_eq!(counts(vec![failure(), Outcome::Aborted, failure(), done()]), Some((1, 0, 0, true)));
    for first in [done(), broken()] {
        for second in [done(), failure(), Outcome::Aborted] {
            assert_eq!(counts(vec![first.clone(), second]), None);
        }
    }
}
