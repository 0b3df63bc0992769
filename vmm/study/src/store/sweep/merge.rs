//! Merges the parts of a sweep.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::Contents,
    part::{End, Part},
    record::SweepLine,
};

/// What the merge of a sweep's parts found.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// What was planned.
    pub line: SweepLine,
    /// The units that count: each has one whole part.
    pub whole: BTreeSet<u32>,
    /// The parts that do not count, by name.
    pub notes: Vec<PartNote>,
}

impl Merged {
    /// Numbers of the units that have no whole part.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        let all = 0..u32::try_from(self.line.units.len()).unwrap_or(u32::MAX);
        all.filter(|unit| !self.whole.contains(unit))
    }
}

/// A part that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartNote {
    /// Name in the directory of the parts.
    pub name: String,
    /// The node that wrote it, if it says so.
    pub node: Option<String>,
    /// The unit, if it says so.
    pub unit: Option<u32>,
    /// How many of its cells have ended.
    pub cells: u32,
    /// Why it does not count.
    pub fault: PartFault,
}

/// Why a part does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartFault {
    /// Not whole: the task runs, or has ended early.
    Half,
    /// Another part of the same unit counts.
    Again,
    /// Cannot be what a task of this sweep wrote.
    Damaged {
        /// The line's number, from 1; 0: the file itself.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// The order of attempts, of which the first whole one counts: submission, restart and name.
type Rank = (u32, u32, String);

/// Adds the cells of a sweep's parts, which come with their names, to what its head says. A unit counts
/// only if one part has all its cells; of several such parts the first counts, by submission, restart
/// and name. The order of the parts does not matter.
pub fn merge(
    head: Contents,
    sweep: &SweepLine,
    parts: impl IntoIterator<Item = (String, Part)>,
) -> Contents {
    let mut counted: BTreeMap<u32, (Rank, Part)> = BTreeMap::new();
    let mut notes = Vec::new();
    for (name, part) in parts {
        let (End::Whole, Some(attempt)) = (&part.end, part.attempt()) else {
            notes.push(note(name, part));
            continue;
        };
        let rank: Rank = (attempt.submission, attempt.restart, name);
        match counted.entry(attempt.unit) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert((rank, part));
            }
            std::collections::btree_map::Entry::Occupied(mut taken) => {
                let ((_, _, name), part) =
                    if rank < taken.get().0 { taken.insert((rank, part)) } else { (rank, part) };
                notes.push(note(name, part));
            }
        }
    }
    notes.sort_by(|a, b| a.name.cmp(&b.name));
    let whole = counted.keys().copied().collect();
    let mut contents = Contents { sessions: Vec::new(), ..head };
    for (_, part) in counted.into_values() {
        contents.sessions.extend(part.session);
        contents.cells.extend(part.cells.into_iter().filter(|cell| cell.is_ended()));
    }
    contents.sweep = Some(Merged { line: sweep.clone(), whole, notes });
    contents
}

fn note(name: String, part: Part) -> PartNote {
    let attempt = part.attempt();
    PartNote {
        node: attempt.map(|attempt| attempt.node.clone()),
        unit: attempt.map(|attempt| attempt.unit),
        cells: part.cells.iter().filter(|cell| cell.is_ended()).count() as u32,
        fault: match part.end {
            End::Whole => PartFault::Again,
            End::Half => PartFault::Half,
            End::Damaged { line, why } => PartFault::Damaged { line, why },
        },
        name,
    }
}
