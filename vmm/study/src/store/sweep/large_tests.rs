//! The cost of merging a large sweep.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use sched::times::HandoffTimes;
use tempfile::TempDir;

use super::{
    super::{
        Store, read,
        record::{CellLine, Figures, Line, Outcome, ScheduleFigures},
        tests::{cell, run},
    },
    Checksum, PARTS,
    record::{SweepLine, Unit, UnitLine},
    tests::{session, sweep},
};
use crate::timings::Timings;

const UNITS: u32 = 1000;
const CELLS: u32 = 100;

/// Histograms of four steps of a handoff, as a cell of some vCPUs under a schedule has them.
fn figures() -> Figures {
    let timings = || Timings::from_pairs((0..60).map(|ix| (1000 + 137 * ix, 5 + ix % 7)));
    let times = HandoffTimes {
        lateness: Timings::default(),
        ..HandoffTimes::<()>::default().map(|()| timings())
    };
    let schedule = ScheduleFigures { times, ..ScheduleFigures::default() };
    let operations = (0..8).map(|ix| 1_234_567 + ix).collect();
    Figures { seconds: 0.5, operations, schedule: Some(schedule), ..Figures::default() }
}

/// Writes the part of a unit, as its task leaves it.
fn write_part(dir: &Path, unit: u32, like: &CellLine) {
    let json = |line: &Line| serde_json::to_vec(line).unwrap().into_iter().chain([b'\n']);
    let session = session(unit, 0, 0, &format!("n{}", unit % 16));
    let mut text: Vec<u8> = json(&Line::Session(Box::new(session))).collect();
    for number in unit * CELLS..(unit + 1) * CELLS {
        text.extend(json(&Line::Cell(Box::new(CellLine { cell: number, ..like.clone() }))));
    }
    let mut sum = Checksum::default();
    sum.add(&text);
    text.extend(json(&Line::Unit(UnitLine { unit, cells: CELLS, sum: sum.value() })));
    fs::write(dir.join(PARTS).join(format!("{unit}.0.0.n.1.jsonl")), text).unwrap();
}

/// The most memory that this process has had since [`forget_peak`], in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// proc(5), `/proc/PID/clear_refs`: 5 resets the peak.
fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The time for which this thread has had a CPU (scheduler/sched-stats.rst).
fn on_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// The directory of a finished sweep of so many parts, and their size in bytes.
fn finished(units: u32) -> (TempDir, u64) {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let parts = (0..units).map(|unit| Unit { first: unit * CELLS, cells: CELLS }).collect();
    let mut run = run();
    run.cells = units * CELLS;
    let mut store = Store::create(dir, run).unwrap();
    store.append(&Line::Sweep(Box::new(SweepLine { units: parts, ..sweep() }))).unwrap();
    fs::create_dir(dir.join(PARTS)).unwrap();
    let outcome = Outcome::Done { figures: Box::new(figures()) };
    let Line::Cell(like) = cell(0, outcome) else { panic!("no cell") };
    (0..units).for_each(|unit| write_part(dir, unit, &like));
    let parts = fs::read_dir(dir.join(PARTS)).unwrap().flatten();
    let bytes = parts.map(|part| part.metadata().unwrap().len()).sum();
    (folder, bytes)
}

/// Merges the parts of such a sweep, and says what it cost: the time on a CPU.
#[expect(clippy::print_stdout, reason = "the figures are the test's purpose")]
fn merge(dir: &Path, units: u32, bytes: u64) -> Duration {
    forget_peak();
    let (before, began, ran) = (peak(), Instant::now(), on_cpu());
    let contents = read(dir).unwrap();
    let (took, ran, peak) = (began.elapsed(), on_cpu() - ran, peak());
    assert_eq!(contents.cells.len() as u32, units * CELLS);
    assert_eq!(contents.sweep.unwrap().missing().count(), 0);
    println!(
        "{units} parts of {CELLS} cells, {} MB: {took:.2?}, {ran:.2?} of it on a CPU; {} MiB at most, \
         {before} before",
        bytes / 1_000_000,
        peak
    );
    ran
}

/// The bound is a ratio of two costs of this machine: ten times as many parts cost ten times as much, and would cost a
/// hundred times as much if each were compared with all others.
#[test]
#[ignore = "takes half a minute and 500 MB of disk: pass --release, --ignored and --nocapture"]
fn merging_100_000_cells_of_1_000_parts() {
    let ((few, few_bytes), (all, all_bytes)) = (finished(UNITS / 10), finished(UNITS));
    let small = || merge(few.path(), UNITS / 10, few_bytes);
    let before = small();
    let large = merge(all.path(), UNITS, all_bytes);
    let small = before.max(small());
    assert!(large < 30 * small, "{large:?} for ten times the parts of {small:?}");
}
