//! Published figures of locks under overcommitment, as data with their sources.
//!
//! One file is one table, `vmm/published/tables/*.toml`. A table has cells, each a published figure with
//! the machine, the guests and the lock that it was measured with, and rows, each of which compares
//! two cells. All ratios are such that more is better, whatever the unit.
//!
//! The simulator predicts rows, `pvticket reproduce` measures what stands for them, and a report shows those
//! tables beside a study's figures that name a document of the lock library.

#![forbid(unsafe_code)]

mod card;
mod error;
pub mod keys;
mod measured;
mod table_file;

pub use card::CardEntry;
pub use error::{KeyError, KeyFault};
use locks::{Seed, System};
pub use measured::{Measured, Quantity, Selected, StandIn};
use sched::PolicySpec;
use thiserror::Error;

use base::{handoff::HandoffSpec, units::Nanos};

/// The most CPUs of a machine in a table or a machine file.
pub const MOST_CPUS: u32 = 1024;
/// The most vCPUs of a cell, in all its guests: what a simulation has room for.
pub const MOST_VCPUS: u32 = 1024;

/// The tables that come with pvticket, by file name.
const FILES: &[(&str, &str)] = &[
    ("dbench.toml", include_str!("../tables/dbench.toml")),
    ("build.toml", include_str!("../tables/build.toml")),
    ("build-haswell.toml", include_str!("../tables/build-haswell.toml")),
    ("ebizzy.toml", include_str!("../tables/ebizzy.toml")),
    ("aim7-many.toml", include_str!("../tables/aim7-many.toml")),
    ("aim7-slow-path.toml", include_str!("../tables/aim7-slow-path.toml")),
    ("aim7-few.toml", include_str!("../tables/aim7-few.toml")),
    ("aim7-others.toml", include_str!("../tables/aim7-others.toml")),
    ("aim7-spinner.toml", include_str!("../tables/aim7-spinner.toml")),
    ("lockref.toml", include_str!("../tables/lockref.toml")),
    ("counter.toml", include_str!("../tables/counter.toml")),
    ("pgbench.toml", include_str!("../tables/pgbench.toml")),
    ("subscription.toml", include_str!("../tables/subscription.toml")),
    ("flexguard.toml", include_str!("../tables/flexguard.toml")),
    ("flexguard-fall.toml", include_str!("../tables/flexguard-fall.toml")),
    ("i-spinlock.toml", include_str!("../tables/i-spinlock.toml")),
    ("restriction.toml", include_str!("../tables/restriction.toml")),
    ("preemptions.toml", include_str!("../tables/preemptions.toml")),
    ("preemptable.toml", include_str!("../tables/preemptable.toml")),
    ("spinning.toml", include_str!("../tables/spinning.toml")),
    ("others.toml", include_str!("../tables/others.toml")),
];

/// A table cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}, {fault}")]
pub struct PublishedError {
    /// The file's name.
    pub file: String,
    /// What is wrong in it, with its line.
    pub fault: KeyError,
}

/// A published table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The table's name here, unique.
    pub name: String,
    /// The document.
    pub source: String,
    /// The table in it.
    pub table: String,
    /// How much of the document could be read: `whole`, `excerpt`, ...
    pub read: String,
    /// What it was measured on.
    pub place: String,
    /// Unit of its figures.
    pub unit: String,
    /// Changes of less than this share are none.
    pub noise: f64,
    /// The machine file that stands for the machine.
    pub machine: String,
    /// The profile of its workload.
    pub profile: String,
    /// The table whose fit its simulation takes, itself or one before it; none if its cells are not
    /// simulated.
    pub fit: Option<String>,
    /// How the host stops guests that spin, if it does.
    pub pause_loop_exits: Option<PauseLoopExits>,
    /// Where a report shows the table, if it does.
    pub shown: Option<Shown>,
    /// In what its simulation differs from what was measured.
    pub notes: Vec<String>,
    /// The entry of the score card that its rows belong to.
    pub card: Option<String>,
    /// What stands for it on the machine at hand.
    pub measured: Option<Measured>,
    /// The figures.
    pub cells: Vec<Cell>,
    /// What is compared.
    pub rows: Vec<Row>,
}

/// The section of a report that shows a table beside a study's own figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The document whose systems the table is about.
    pub document: Seed,
    /// How far the figures compare with those of a study.
    pub remark: String,
}

/// How the kernel of a publication had pause-loop exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseLoopExits {
    /// Windows that grow: since Linux 3.18.
    Dynamic,
    /// One window for all loops.
    Fixed,
}

/// A published figure and what it was measured with.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The cell's name, unique in the table.
    pub id: String,
    /// As published; none if only the change is.
    pub figure: Option<f64>,
    /// The cell belongs to the column that profiles are fitted to.
    pub is_fitted: bool,
    /// What is simulated, or why that is not possible.
    pub setup: Result<CellSetup, String>,
    /// What is measured, or why nothing can be; none if the table does not say.
    pub measured: Option<Result<Selected, String>>,
}

/// What is simulated for a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSetup {
    /// The lock.
    pub system: System,
    /// What is around it, or how it hands over.
    pub handoff: HandoffSpec,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Guests that run the same at the same time.
    pub guests: usize,
    /// vCPUs of each.
    pub vcpus: usize,
    /// The host's schedule.
    pub policy: PolicySpec,
    /// Its slice.
    pub slice: Nanos,
    /// Looks before a halt.
    pub spin_threshold: u32,
}

impl CellSetup {
    /// The vCPUs of all guests.
    pub const fn all_vcpus(&self) -> usize {
        self.guests * self.vcpus
    }
}

/// A published statement about one or two cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The row's name, unique in the table.
    pub id: String,
    /// What is stated.
    pub claim: Claim,
    /// The row's cells, as indices into the table's; the base is the first.
    pub cells: Option<(usize, usize)>,
    /// Rows of one group have an order.
    pub group: Option<String>,
    /// Why there is no simulation, if there is none.
    pub not_simulated: Option<String>,
    /// Both cells belong to the fitted column: nothing is predicted.
    pub is_fitted: bool,
    /// What is measured, or why nothing can be.
    pub measured: Result<StandIn, String>,
    /// More than its claim is as good.
    pub is_at_least: bool,
}

/// What a row states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Claim {
    /// The changed figure is this multiple of the base.
    Ratio(f64),
    /// The base has this many retries per operation.
    Retries(f64),
}

impl Claim {
    /// The claim's number.
    pub const fn value(self) -> f64 {
        match self {
            Self::Ratio(value) | Self::Retries(value) => value,
        }
    }
}

impl Table {
    /// The base and the changed cell of a row, if it is to be simulated.
    pub fn simulated(&self, row: &Row) -> Option<(&Cell, &Cell)> {
        let (base, changed) = row.cells.filter(|_| row.not_simulated.is_none())?;
        let (base, changed) = (self.cells.get(base)?, self.cells.get(changed)?);
        (base.setup.is_ok() && changed.setup.is_ok()).then_some((base, changed))
    }

    /// The cells that have to be simulated for these rows, each once.
    pub fn simulated_cells<'a>(&'a self, rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'a Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for (base, changed) in rows.into_iter().filter_map(|row| self.simulated(row)) {
            for cell in [base, changed] {
                if cells.iter().all(|known| known.id != cell.id) {
                    cells.push(cell);
                }
            }
        }
        cells
    }

    /// Reads the table in `text`; errors name `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, PublishedError> {
        table_file::parse(text).map_err(|fault| PublishedError { file: file.to_owned(), fault })
    }

    /// All tables that come with pvticket.
    pub fn all() -> Result<Vec<Self>, PublishedError> {
        FILES.iter().map(|(file, text)| Self::parse(file, text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_tables_can_be_read_and_name_what_exists() {
        let tables = Table::all().unwrap_or_else(|error| panic!("{error}"));
        let names: HashSet<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names.len(), tables.len());
        for (table, (file, _)) in tables.iter().zip(FILES) {
            assert_eq!(format!("{}.toml", table.name), *file);
        }
    }

    #[test]
    fn the_card_has_each_entry_that_tables_name_and_no_other() {
        let entries = CardEntry::all().unwrap_or_else(|error| panic!("{error}"));
        let tables = Table::all().unwrap_or_else(|error| panic!("{error}"));
        let named: HashSet<&str> =
            tables.iter().filter_map(|table| table.card.as_deref()).collect();
        assert_eq!(named, entries.iter().map(|entry| entry.id.as_str()).collect());
        assert_eq!(named.len(), entries.len());
    }

    #[test]
    fn every_row_is_measured_or_says_why_not() {
        for table in Table::all().expect("they can be read") {
            let is_measured = table.rows.iter().any(|row| row.measured.is_ok());
            assert_eq!(is_measured, table.measured.is_some(), "{}", table.name);
            for row in &table.rows {
                match &row.measured {
                    Ok(stand_in) => assert!(!stand_in.base.only.is_empty(), "{}", row.id),
                    Err(reason) => assert!(reason.len() > 10, "{}: {}", table.name, row.id),
                }
            }
        }
    }

    #[test]
    fn cells_of_rows_are_simulated_once() {
        let tables = Table::all().expect("they can be read");
        let dbench = tables.iter().find(|table| table.name == "dbench").expect("dbench");
        let cells = dbench.simulated_cells(&dbench.rows);
        assert_eq!(cells.len(), 8, "four bases and four changed ones");
        let build = tables.iter().find(|table| table.name == "build").expect("build");
        let not: Vec<&Row> = build.rows.iter().filter(|row| row.not_simulated.is_some()).collect();
        assert!(!not.is_empty() && build.simulated_cells(not).is_empty());
    }

    #[test]
    fn ratios_are_as_the_documents_state_them() {
        let tables = Table::all().expect("they can be read");
        for (table, row, percent) in [
            ("dbench", "PV at 2x", 16.6),
            ("dbench", "PV at 4x", 5.0),
            ("ebizzy", "boost, 2 guests", 70.0),
            ("aim7-many", "read-first, 8 nodes, HT off", 238.8),
            // As its own rates have it; the document says +51.1.
            ("aim7-many", "read-first, 4 nodes, HT on", 93.2),
            ("aim7-few", "read-first, 8 nodes, HT on", 194.6),
            ("pgbench", "PV on, scale 1, 4 clients", 6.63),
            ("aim7-spinner", "short, 10-100 users", -7.7),
        ] {
            let found = tables.iter().find(|known| known.name == table).expect(table);
            let claim = found.rows.iter().find(|known| known.id == row).expect(row).claim;
            assert!((claim.value() * 100.0 - 100.0 - percent).abs() < 0.1, "{row}: {claim:?}");
        }
        // Less time is better: a ratio above 1.
        let build = tables.iter().find(|table| table.name == "build").expect("build");
        let fall = build.rows.iter().find(|row| row.id == "pv-ticket, 1.5x by 1x").expect("fall");
        assert!((fall.claim.value() - 302.0 / 807.6).abs() < 1e-9);
    }

    #[test]
    fn an_error_is_one_line_with_file_line_and_key() {
        let (_, text) = FILES[0];
        for (from, to, what) in [
            ("noise = 4.3", "noise = \"big\"", "noise wants a decimal number, not string"),
            ("system = \"ticket\"", "system = \"tickets\"", "cells.system: "),
            ("base = \"base 1x\"", "base = \"base 9x\"", "rows.base: there is no cell 'base 9x'"),
            ("better = \"more\"", "better = \"most\"", "better: 'most' is not one of more, less"),
            ("cpus = 32", "cores = 32", "unknown key 'cells.cores'"),
            ("policy = \"host-cfs\"", "policy = \"fairly\"", "policy: "),
            ("guests = 2", "handoff = \"slow\"", "cells.handoff: unknown handoff 'slow'"),
            ("= \"fixed\"", "= \"old\"", "pause-loop-exits: 'old' is not one of"),
            ("id = \"pv 1x\"", "id = \"base 1x\"", "cells.id: there is another 'base 1x'"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from} is not in the file");
            let line = text[..text.find(from).unwrap_or_default()].matches('\n').count() + 1;
            let error = Table::parse("dbench.toml", &changed).expect_err(to).to_string();
            let begins = format!("dbench.toml, line {line}: {what}");
            assert!(error.starts_with(&begins) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
