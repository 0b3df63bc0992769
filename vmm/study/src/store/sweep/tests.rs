use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    super::{
        Store, read as read_store,
        record::{CellLine, Line, Outcome, SessionLine},
        tests::{cell, done, failure, run},
    },
    record::{Attempt, Unit, UnitLine},
    *,
};

/// Two units of two cells.
pub(super) fn sweep() -> SweepLine {
    SweepLine {
        id: "pvticket-test-1".into(),
        command: vec!["pvticket".into()],
        engine: "local".into(),
        options: String::new(),
        cpus: 1,
        kvm: false,
        binary: Default::default(),
        kernel: None,
        stock_kernel: None,
        other_kernels: Vec::new(),
        units: vec![Unit { first: 0, cells: 2 }, Unit { first: 2, cells: 2 }],
    }
}

fn head() -> Contents {
    Contents { run: run(), sessions: Vec::new(), cells: Vec::new(), torn: None, sweep: None }
}

pub(super) fn session(unit: u32, submission: u32, restart: u32, node: &str) -> SessionLine {
    let attempt =
        Attempt { sweep: sweep().id, unit, submission, restart, node: node.into(), job: None };
    SessionLine { at_ms: 1, command: Vec::new(), host: Default::default(), attempt: Some(attempt) }
}

/// The text of a part with these cells, and the last line of a whole one.
fn text(session: SessionLine, cells: &[(u32, Outcome)]) -> Vec<u8> {
    let unit = session.attempt.as_ref().unwrap().unit;
    let lines = cells.iter().map(|(number, outcome)| cell(*number, outcome.clone()));
    let lines = std::iter::once(Line::Session(Box::new(session))).chain(lines);
    let mut text: Vec<u8> = lines
        .flat_map(|line| {
            serde_json::to_string(&line).unwrap().into_bytes().into_iter().chain([b'\n'])
        })
        .collect();
    let mut sum = Checksum::default();
    sum.add(&text);
    let end = Line::Unit(UnitLine { unit, cells: 2, sum: sum.value() });
    text.extend(format!("{}\n", serde_json::to_string(&end).unwrap()).into_bytes());
    text
}

fn whole(unit: u32, submission: u32, restart: u32, node: &str) -> Vec<u8> {
    let first = unit * 2;
    text(session(unit, submission, restart, node), &[(first + 1, done()), (first, failure())])
}

fn merged(parts: &[(&str, Vec<u8>)]) -> Contents {
    let parts = parts.iter().map(|(name, text)| ((*name).to_owned(), parse(&text[..], &sweep())));
    merge(head(), &sweep(), parts)
}

/// Which cell ran on which node.
fn nodes(contents: &Contents) -> Vec<(u32, &str)> {
    contents.cells.iter().map(|cell| (cell.cell, cell.node.as_deref().unwrap())).collect()
}

fn faults(contents: &Contents) -> Vec<(&str, u32, &PartFault)> {
    let notes = &contents.sweep.as_ref().unwrap().notes;
    notes.iter().map(|note| (note.name.as_str(), note.cells, &note.fault)).collect()
}

#[test]
fn whole_units_count_with_their_nodes_and_sessions() {
    let contents = merged(&[("a", whole(1, 0, 0, "n2")), ("b", whole(0, 0, 0, "n1"))]);
    assert_eq!(nodes(&contents), [(1, "n1"), (0, "n1"), (3, "n2"), (2, "n2")]);
    assert_eq!(contents.sessions.len(), 2);
    assert_eq!(contents.finished().len(), 4);
    let merged = contents.sweep.unwrap();
    assert_eq!((merged.missing().count(), merged.notes.len()), (0, 0));
}

#[test]
fn of_two_attempts_the_first_whole_one_counts() {
    let half = |node| text(session(0, 0, 0, node), &[(0, done()), (1, Outcome::Aborted)]);
    let contents = merged(&[
        ("a", whole(0, 1, 0, "third")),
        ("b", whole(0, 0, 1, "second")),
        ("c", whole(0, 0, 2, "fourth")),
        ("d", half("first")),
    ]);
    assert_eq!(nodes(&contents), [(1, "second"), (0, "second")]);
    let torn = &PartFault::Damaged { line: 4, why: "cells of the unit are missing".into() };
    let again = &PartFault::Again;
    assert_eq!(faults(&contents), [("a", 2, again), ("c", 2, again), ("d", 1, torn)]);
    assert_eq!(contents.sweep.unwrap().missing().collect::<Vec<_>>(), [1]);
    // Nothing but the name tells these apart.
    let contents = merged(&[("y", whole(0, 0, 0, "y")), ("x", whole(0, 0, 0, "x"))]);
    assert_eq!(nodes(&contents), [(1, "x"), (0, "x")]);
}

#[test]
fn what_no_task_wrote_is_named_with_its_line() {
    let good = whole(0, 0, 0, "n1");
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let replaced = |from: &str, to: &str| {
        String::from_utf8(good.clone()).unwrap().replacen(from, to, 1).into_bytes()
    };
    let without = |line: usize| {
        let kept = lines.iter().enumerate().filter(|(number, _)| *number != line);
        kept.flat_map(|(_, line)| line.to_vec()).collect::<Vec<u8>>()
    };
    for (part, line, expected) in [
        (replaced("pvticket-test-1", "pvticket-test-2"), 1, "another sweep"),
        (replaced("\"unit\":0", "\"unit\":2"), 1, "no unit of that number"),
        (replaced("\"cell\":1", "\"cell\":2"), 2, "no cell of that number"),
        (replaced("\"cell\":1", "\"cell\":0"), 3, "there already"),
        (replaced("\"took\":0.5", "\"took\":0.6"), 4, "checksum"),
        (replaced("\"took\"", "took"), 2, "key must be"),
        (without(0), 1, "which attempt"),
        (without(1), 3, "missing"),
        ([good.clone(), lines[1].to_vec()].concat(), 5, "after the unit's end"),
        (
            serde_json::to_vec(&Line::Run(run()))
                .map(|line| [line, b"\n".to_vec()].concat())
                .unwrap(),
            1,
            "which attempt",
        ),
    ] {
        let end = parse(&part[..], &sweep()).end;
        let End::Damaged { line: at, why: reason } = &end else {
            panic!("{end:?}, not {expected}")
        };
        assert!(*at == line && reason.contains(expected), "{expected}: {end:?}");
        assert_eq!(merged(&[("a", part)]).cells, []);
    }
}

#[test]
fn a_directory_is_read_as_its_parts() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let mut store = Store::create(dir, run()).unwrap();
    store.append(&Line::Sweep(Box::new(sweep()))).unwrap();
    assert_eq!(read_store(dir).unwrap().sweep.unwrap().missing().count(), 2, "no parts yet");
    fs::create_dir(dir.join(PARTS)).unwrap();
    let mut part = Store::part(dir, "0.n1", session(0, 0, 0, "n1")).unwrap();
    [cell(0, done()), cell(1, done())].iter().for_each(|line| part.append(line).unwrap());
    part.end_part(0, sweep().units[0]).unwrap();
    assert!(Store::part(dir, "0.n1", session(0, 0, 0, "n1")).is_err(), "one writer a part");
    fs::write(dir.join(PARTS).join("1.n2.jsonl"), "").unwrap();
    fs::create_dir(dir.join(PARTS).join("1.n3.jsonl")).unwrap();
    fs::write(dir.join(PARTS).join("notes"), "none of ours").unwrap();
    let contents = read_store(dir).unwrap();
    assert_eq!(nodes(&contents), [(0, "n1"), (1, "n1")]);
    let odd = &PartFault::Damaged { line: 0, why: "it is a directory".into() };
    assert_eq!(faults(&contents), [("1.n2.jsonl", 0, &PartFault::Half), ("1.n3.jsonl", 0, odd)]);
    // The head has no cells.
    store.append(&cell(0, done())).unwrap();
    let error = read_store(dir).unwrap_err().to_string();
    assert!(error.contains("the cells of a sweep are in its parts"), "{error}");
}

#[test]
fn a_head_whose_units_are_not_the_runs_cells_is_damaged() {
    let units = |units: &[(u32, u32)]| {
        let units = units.iter().map(|(first, cells)| Unit { first: *first, cells: *cells });
        SweepLine { units: units.collect(), ..sweep() }
    };
    for (units, is_good) in [
        (units(&[(0, 1), (1, 3)]), true),
        (units(&[(0, 4)]), true),
        (units(&[(0, 2)]), false),
        (units(&[(0, 2), (3, 2)]), false),
        (units(&[(0, 3), (2, 2)]), false),
        (units(&[(0, 4), (4, 0)]), false),
        (units(&[(0, 4), (4, u32::MAX)]), false),
        (units(&[]), false),
    ] {
        let folder = TempDir::new().unwrap();
        let mut store = Store::create(folder.path(), run()).unwrap();
        store.append(&Line::Sweep(Box::new(units.clone()))).unwrap();
        assert_eq!(read_store(folder.path()).is_ok(), is_good, "{units:?}");
    }
}

/// A part as a task, a disk or a file system may leave it.
#[derive(Debug, Clone)]
struct Left {
    unit: u32,
    submission: u32,
    restart: u32,
    node: u8,
    /// Bytes that are left of it, of 1000.
    cut: usize,
    /// NULs after them.
    nuls: usize,
}

impl Left {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = whole(self.unit, self.submission, self.restart, &format!("n{}", self.node));
        bytes.truncate((bytes.len() * self.cut).div_ceil(1000));
        bytes.extend(vec![0; self.nuls]);
        bytes
    }
}

fn left() -> impl Strategy<Value = Left> {
    let cut = prop_oneof![Just(1000), 0..1000_usize];
    (0..2_u32, 0..3_u32, 0..2_u32, 0..4_u8, cut, 0..3_usize).prop_map(
        |(unit, submission, restart, node, cut, nuls)| Left {
            unit,
            submission,
            restart,
            node,
            cut,
            nuls,
        },
    )
}

proptest! {
    /// Parts cut at any byte, with tails of NULs, several of a unit, in any order.
    #[test]
    fn a_unit_is_of_one_node_and_no_whole_one_is_lost(
        parts in prop::collection::vec(left(), 0..12), seed: u64,
    ) {
        let mut named: Vec<(String, Vec<u8>)> =
            parts.iter().enumerate().map(|(at, part)| (format!("{at:02}"), part.bytes())).collect();
        let merge_all = |named: &[(String, Vec<u8>)]| {
            let parts = named.iter().map(|(name, text)| (name.clone(), parse(&text[..], &sweep())));
            merge(head(), &sweep(), parts)
        };
        let contents = merge_all(&named);
        base::rng::SplitMix64::new(seed).shuffle(&mut named);
        prop_assert_eq!(&merge_all(&named), &contents, "the order of files is irrelevant");
        let is_whole = |part: &Left| part.bytes().len() >= whole(part.unit, part.submission, part.restart, &format!("n{}", part.node)).len() && part.cut == 1000;
        let mut of_unit: BTreeMap<u32, Vec<&CellLine>> = BTreeMap::new();
        for cell in &contents.cells {
            of_unit.entry(cell.cell / 2).or_default().push(cell);
        }
        for unit in 0..2 {
            let some = parts.iter().filter(|part| part.unit == unit && is_whole(part));
            let first = some.enumerate().min_by_key(|(at, part)| (part.submission, part.restart, *at));
            let cells = of_unit.remove(&unit).unwrap_or_default();
            match first {
                None => prop_assert!(cells.is_empty()),
                Some((_, part)) => {
                    prop_assert_eq!(cells.len(), 2);
                    let node = format!("n{}", part.node);
                    prop_assert!(cells.iter().all(|cell| cell.node.as_ref() == Some(&node)));
                }
            }
        }
        let notes = contents.sweep.unwrap().notes.len();
        prop_assert_eq!(notes + contents.sessions.len(), parts.len(), "each part counts or is named");
    }

    /// Two writers in one file, line by line: never a unit of two nodes.
    #[test]
    fn interleaved_attempts_do_not_count(picks in prop::collection::vec(any::<bool>(), 8)) {
        let texts = [whole(0, 0, 0, "n1"), whole(0, 0, 1, "n2")];
        let mut lines = texts.each_ref().map(|text| text.split_inclusive(|byte| *byte == b'\n'));
        let mut both = Vec::new();
        for pick in picks {
            both.extend(lines[usize::from(pick)].next().unwrap_or_default());
        }
        let alone = texts.contains(&both);
        let contents = merged(&[("a", both)]);
        prop_assert_eq!(contents.cells.is_empty(), !alone);
    }

    #[test]
    fn no_bytes_of_a_part_make_the_reader_panic(
        place: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut bytes = whole(0, 0, 0, "n1");
        let good = bytes.clone();
        let at = place.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let part = parse(&bytes[..], &sweep());
        let as_good = part.cells == parse(&good[..], &sweep()).cells;
        prop_assert!(part.end != End::Whole || as_good, "the sum finds any change of a cell");
    }
}
