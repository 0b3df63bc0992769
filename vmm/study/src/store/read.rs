//! Reads a store, whose last line may be torn.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use super::{
    FILE, StoreError, failed,
    record::{CellLine, FORMAT, Line, RunLine, SessionLine},
    sweep::{
        self, Merged,
        record::{SweepLine, Unit},
    },
};
use base::{
    files::{self, FileError},
    shown,
    units::ByteSize,
};

/// Longest line, in bytes: a cell of 128 vCPUs with all its histograms is far below.
pub(super) const LONGEST: u64 = 16 << 20;

/// The contents of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Describes the run.
    pub run: RunLine,
    /// Each start or resume of the run.
    pub sessions: Vec<SessionLine>,
    /// The cells in the order in which they ended, including aborted ones.
    pub cells: Vec<CellLine>,
    /// The incomplete last line, if there is one.
    pub torn: Option<Torn>,
    /// What the merge of its parts found, if the run is a sweep.
    pub sweep: Option<Merged>,
}

/// A last line without a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    /// Offset of its first byte.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Contents {
    /// Numbers of the cells that need not be run again: those done and those failed.
    pub fn finished(&self) -> HashSet<u32> {
        let last = self.last_of_each().into_values();
        last.filter(|cell| cell.is_ended()).map(|cell| cell.cell).collect()
    }
}

/// Reads the store in `dir`. The parts of a sweep are merged.
pub fn read(dir: &Path) -> Result<Contents, StoreError> {
    match read_head(dir)? {
        (contents, Some(sweep)) => sweep::read(dir, contents, sweep),
        (contents, None) => Ok(contents),
    }
}

/// Reads the store in `dir` without the parts of a sweep, and what was planned of one.
pub fn read_head(dir: &Path) -> Result<(Contents, Option<SweepLine>), StoreError> {
    let path = dir.join(FILE);
    let file = open_regular(&path, dir)?;
    read_both(BufReader::new(file), &path)
}

/// Opens the file of the store in `dir` for reading; it must be a regular file.
pub(super) fn open_regular(path: &Path, dir: &Path) -> Result<File, StoreError> {
    files::regular(path).map_err(|error| match error {
        FileError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            StoreError::Absent(dir.to_owned())
        }
        FileError::Io(error) => failed("open", path)(error),
        other => StoreError::Odd(path.to_owned(), other),
    })
}

/// Reads a store from any input; `path` is used in errors.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read_from(input: impl BufRead, path: &Path) -> Result<Contents, StoreError> {
    read_both(input, path).map(|(contents, _)| contents)
}

fn read_both(
    mut input: impl BufRead,
    path: &Path,
) -> Result<(Contents, Option<SweepLine>), StoreError> {
    let damaged =
        |line, reason: String| StoreError::Damaged { file: path.to_owned(), line, why: reason };
    let mut reading = StoreReading::default();
    let mut at = 0;
    for number in 1.. {
        let mut bytes = Vec::new();
        let count = (&mut input).take(LONGEST).read_until(b'\n', &mut bytes);
        let count = count.map_err(failed("read", path))? as u64;
        if count == 0 {
            break;
        }
        if bytes.last() != Some(&b'\n') {
            if count == LONGEST {
                return Err(damaged(number, format!("it is longer than {}", ByteSize(LONGEST))));
            }
            reading.torn = Some(Torn { at, bytes: count });
            break;
        }
        let line = parse(&bytes, number, path)?;
        reading.add(line).map_err(|reason| damaged(number, reason.into()))?;
        at += count;
    }
    match reading {
        StoreReading { run: Some(run), sweep, sessions, cells, torn, .. } => {
            Ok((Contents { run, sessions, cells, torn, sweep: None }, sweep))
        }
        _ => Err(damaged(1, "it has no first line; begin the run anew".into())),
    }
}

/// Parses a line. The format is checked before any field that depends on it.
fn parse(bytes: &[u8], number: u64, path: &Path) -> Result<Line, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged {
        file: path.to_owned(),
        line: number,
        why: in_a_line(&error),
    };
    if number == 1 {
        #[derive(serde::Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format != FORMAT {
            return Err(StoreError::Format { file: path.to_owned(), found: format });
        }
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Says what is wrong with a line in one line: serde_json quotes names from it as they are.
pub(super) fn in_a_line(error: &serde_json::Error) -> String {
    shown::line(&error.to_string()).into_owned()
}

#[derive(Debug, Default)]
struct StoreReading {
    run: Option<RunLine>,
    sweep: Option<SweepLine>,
    sessions: Vec<SessionLine>,
    cells: Vec<CellLine>,
    finished: HashSet<u32>,
    /// Cells that may be measured again.
    failed: HashSet<u32>,
    torn: Option<Torn>,
}

impl StoreReading {
    fn add(&mut self, line: Line) -> Result<(), &'static str> {
        match (line, &self.run) {
            (Line::Run(run), None) => self.run = Some(run),
            (_, None) => return Err("the first line does not say what the run is"),
            (Line::Run(_), Some(_)) => return Err("it says again what the run is"),
            (Line::Sweep(sweep), Some(run)) => {
                if self.sweep.is_some() || !self.cells.is_empty() {
                    return Err("it says too late that the run is a sweep");
                }
                if !covers(&sweep.units, run.cells) {
                    return Err("the units do not have the run's cells");
                }
                self.sweep = Some(*sweep);
            }
            (Line::Unit(_), Some(_)) => return Err("only a part of a sweep has such a line"),
            (Line::Cell(_), Some(_)) if self.sweep.is_some() => {
                return Err("the cells of a sweep are in its parts");
            }
            (Line::Session(session), Some(_)) => self.sessions.push(*session),
            (Line::Cell(cell), Some(run)) => {
                if cell.cell >= run.cells {
                    return Err("the run has no cell of that number");
                }
                let may_come_again = self.failed.remove(&cell.cell);
                if self.finished.contains(&cell.cell) && !may_come_again {
                    return Err("the cell is there already");
                }
                if cell.is_ended() {
                    self.finished.insert(cell.cell);
                }
                if !cell.is_ended() || cell.has_failed() {
                    self.failed.insert(cell.cell);
                }
                self.cells.push(*cell);
            }
        }
        Ok(())
    }
}

/// Do these units follow each other, and have all cells of a run together?
fn covers(units: &[Unit], cells: u32) -> bool {
    let end = units.iter().try_fold(0_u32, |next, unit| {
        let follows = unit.first == next && unit.cells > 0;
        follows.then(|| next.checked_add(unit.cells)).flatten()
    });
    end == Some(cells)
}
