//! Reads a part: one attempt at one unit.
//!
//! A task may die in the middle of a line, and over NFS the end of a file may show NULs. So
//! whatever cannot be parsed at the end is torn, with or without a newline; before the end it is
//! damage.

use std::{
    collections::HashSet,
    io::{BufRead, Read},
};

use super::{
    super::{
        read::{LONGEST, in_a_line},
        record::{CellLine, Line, SessionLine},
    },
    Checksum,
    record::{Attempt, SweepLine, Unit, UnitLine},
};

/// An attempt at a unit, as far as it got.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    /// First line; None: the part ended before that was written.
    pub session: Option<SessionLine>,
    /// Cells, aborted ones included.
    pub cells: Vec<CellLine>,
    /// How the part ends; a torn last line counts as [`End::Half`].
    pub end: End,
}

/// How a part ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum End {
    /// All cells of its unit are in it.
    Whole,
    /// The unit's last line is missing or torn: the part is being written, or its task ended early.
    #[default]
    Half,
    /// The part is not what a task of this sweep writes, or it cannot be read.
    Damaged {
        /// The line's number, from 1; 0: the file itself.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

impl Part {
    /// The attempt that its session line names; None: it has no such line.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.session.as_ref()?.attempt.as_ref()
    }
}

/// Reads a part from any input. Never fails: a part may be anything.
pub fn parse(mut input: impl BufRead, sweep: &SweepLine) -> Part {
    let mut reading = PartReading {
        sweep,
        part: Part::default(),
        unit: None,
        ended: HashSet::new(),
        sum: Checksum::default(),
    };
    let mut torn: Option<(u64, String)> = None;
    for number in 1.. {
        let mut bytes = Vec::new();
        let read = match (&mut input).take(LONGEST).read_until(b'\n', &mut bytes) {
            Ok(read) => read,
            Err(error) => return reading.damaged(number, error.to_string()),
        };
        if read == 0 {
            break;
        }
        if let Some((line, reason)) = torn {
            return reading.damaged(line, reason);
        }
        let line = match bytes.last() {
            Some(b'\n') => serde_json::from_slice(&bytes).map_err(|error| in_a_line(&error)),
            _ => Err("it is torn".to_owned()),
        };
        match line {
            Err(reason) => torn = Some((number, reason)),
            Ok(line) => {
                if let Err(reason) = reading.add(line) {
                    return reading.damaged(number, reason.into());
                }
                reading.sum.add(&bytes);
            }
        }
    }
    reading.part
}

struct PartReading<'a> {
    sweep: &'a SweepLine,
    part: Part,
    unit: Option<Unit>,
    ended: HashSet<u32>,
    sum: Checksum,
}

impl PartReading<'_> {
    fn damaged(mut self, line: u64, reason: String) -> Part {
        self.part.end = End::Damaged { line, why: reason };
        self.part
    }

    fn add(&mut self, line: Line) -> Result<(), &'static str> {
        if self.part.end == End::Whole {
            return Err("it comes after the unit's end");
        }
        match (line, self.unit) {
            (Line::Session(session), None) => self.begin(*session),
            (_, None) => Err("the first line does not say which attempt it is"),
            (Line::Cell(cell), Some(unit)) => self.cell(*cell, unit),
            (Line::Unit(line), Some(unit)) => self.end(line, unit),
            (Line::Run(_) | Line::Sweep(_) | Line::Session(_), Some(_)) => {
                Err("a part has no such line")
            }
        }
    }

    fn begin(&mut self, session: SessionLine) -> Result<(), &'static str> {
        let attempt = session.attempt.as_ref().ok_or("the session is not an attempt at a unit")?;
        if attempt.sweep != self.sweep.id {
            return Err("it belongs to another sweep");
        }
        let unit = self.sweep.units.get(attempt.unit as usize);
        self.unit = Some(*unit.ok_or("the sweep has no unit of that number")?);
        self.part.session = Some(session);
        Ok(())
    }

    fn cell(&mut self, mut cell: CellLine, unit: Unit) -> Result<(), &'static str> {
        if !unit.has(cell.cell) {
            return Err("the unit has no cell of that number");
        }
        if cell.is_ended() && !self.ended.insert(cell.cell) {
            return Err("the cell is there already");
        }
        cell.node = self.part.attempt().map(|attempt| attempt.node.clone());
        self.part.cells.push(cell);
        Ok(())
    }

    fn end(&mut self, line: UnitLine, unit: Unit) -> Result<(), &'static str> {
        let number = self.part.attempt().map(|attempt| attempt.unit);
        if Some(line.unit) != number || line.cells != unit.cells {
            return Err("it ends another unit");
        }
        if self.ended.len() != unit.cells as usize {
            return Err("cells of the unit are missing");
        }
        if line.sum != self.sum.value() {
            return Err("its checksum differs from that of the lines before it");
        }
        self.part.end = End::Whole;
        Ok(())
    }
}
