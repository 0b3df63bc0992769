//! Reads a store. Its last line may be torn.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use super::{
    FILE, StoreError, failed,
    record::{CellLine, FORMAT, Line, RunLine, SessionLine},
};
use base::{
    files::{self, FileError},
    sanitize,
    units::ByteSize,
};

/// Maximum length of a line in bytes, far above a cell of 128 vCPUs with all histograms.
const MAX_LINE: u64 = 16 << 20;

/// The contents of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Description of the run.
    pub run: RunLine,
    /// Starts and resumes of the run.
    pub sessions: Vec<SessionLine>,
    /// The cells in the order they ended, including aborted ones.
    pub cells: Vec<CellLine>,
    /// The incomplete last line, if any.
    pub torn: Option<Torn>,
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
    /// Returns the numbers of cells that need not be run again: done or failed.
    pub fn finished(&self) -> HashSet<u32> {
        let last = self.last_lines().into_values();
        last.filter(|cell| cell.is_ended()).map(|cell| cell.cell).collect()
    }
}

/// Reads the store in `dir`.
pub fn read(dir: &Path) -> Result<Contents, StoreError> {
    let path = dir.join(FILE);
    let file = open_regular(&path, dir)?;
    read_from(BufReader::new(file), &path)
}

/// Opens the file of the store in `dir` for reading. Fails unless it is a regular file.
pub(super) fn open_regular(path: &Path, dir: &Path) -> Result<File, StoreError> {
    files::open_regular(path).map_err(|error| match error {
        FileError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            StoreError::Absent(dir.to_owned())
        }
        FileError::Io(error) => failed("open", path)(error),
        other => StoreError::Unusable(path.to_owned(), other),
    })
}

/// Reads a store from any input; `path` is used in errors.
pub(crate) fn read_from(mut input: impl BufRead, path: &Path) -> Result<Contents, StoreError> {
    let damaged =
        |line, reason: String| StoreError::Damaged { file: path.to_owned(), line, why: reason };
    let mut reading = StoreReading::default();
    let mut at = 0;
    for number in 1.. {
        let mut bytes = Vec::new();
        let count = (&mut input).take(MAX_LINE).read_until(b'\n', &mut bytes);
        let count = count.map_err(failed("read", path))? as u64;
        if count == 0 {
            break;
        }
        if bytes.last() != Some(&b'\n') {
            if count == MAX_LINE {
                return Err(damaged(number, format!("it is longer than {}", ByteSize(MAX_LINE))));
            }
            reading.torn = Some(Torn { at, bytes: count });
            break;
        }
        let line = parse(&bytes, number, path)?;
        reading.add(line).map_err(|reason| damaged(number, reason.into()))?;
        at += count;
    }
    match reading {
        StoreReading { run: Some(run), sessions, cells, torn, .. } => {
            Ok(Contents { run, sessions, cells, torn })
        }
        _ => Err(damaged(1, "its first line is missing or incomplete: start the run again".into())),
    }
}

/// Parses a line. The format is checked before any field that depends on it.
fn parse(bytes: &[u8], number: u64, path: &Path) -> Result<Line, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged {
        file: path.to_owned(),
        line: number,
        why: one_line(&error),
    };
    if number == 1 {
        #[derive(serde::Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format != FORMAT {
            return Err(StoreError::Format { file: path.to_owned(), format });
        }
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Formats an error on one line: serde_json quotes names from the input unescaped.
fn one_line(error: &serde_json::Error) -> String {
    sanitize::line(&error.to_string()).into_owned()
}

#[derive(Debug, Default)]
struct StoreReading {
    run: Option<RunLine>,
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
            (Line::Run(run), None) => self.run = Some(*run),
            (_, None) => return Err("the first line does not describe the run"),
            (Line::Run(_), Some(_)) => return Err("it describes the run again"),
            (Line::Session(session), Some(_)) => self.sessions.push(*session),
            (Line::Cell(mut cell), Some(run)) => {
                if run.part.is_none() && cell.cell >= run.cells {
                    return Err("the run has no cell with this number");
                }
                let may_come_again = self.failed.remove(&cell.cell);
                if self.finished.contains(&cell.cell) && !may_come_again {
                    return Err("the cell is already stored");
                }
                if cell.is_ended() {
                    self.finished.insert(cell.cell);
                }
                if !cell.is_ended() || cell.has_failed() {
                    self.failed.insert(cell.cell);
                }
                cell.node = self.sessions.last().and_then(|session| session.host.node.clone());
                self.cells.push(*cell);
            }
        }
        Ok(())
    }
}
