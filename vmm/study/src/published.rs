//! Published figures of locks under overcommitment, as data with their sources.
//!
//! Each file `vmm/study/published/*.toml` except `card.toml` is one table. A table has cells and rows: a
//! cell is a published figure with its machine, guests and lock, and a row compares two cells. In all
//! ratios, more is better, regardless of the unit.
//!
//! `pvticket reproduce` simulates rows and measures surrogates for them. Next to a study's figures, a report
//! shows the tables that name a document of the lock library. The files are compiled in, and unit tests check
//! them beyond their syntax.

use base::{handoff::HandoffSpec, text, units::Nanos};
use locks::{Origin, System};
use sched::PolicySpec;
use serde::{Deserialize, Deserializer, de::Error as _};
use thiserror::Error;

use crate::reproduction::CardLine;

/// The tables included in pvticket, by file name.
const FILES: &[(&str, &str)] = &[
    ("dbench.toml", include_str!("../published/dbench.toml")),
    ("build.toml", include_str!("../published/build.toml")),
    ("build-haswell.toml", include_str!("../published/build-haswell.toml")),
    ("ebizzy.toml", include_str!("../published/ebizzy.toml")),
    ("aim7-many.toml", include_str!("../published/aim7-many.toml")),
    ("aim7-slow-path.toml", include_str!("../published/aim7-slow-path.toml")),
    ("aim7-few.toml", include_str!("../published/aim7-few.toml")),
    ("aim7-others.toml", include_str!("../published/aim7-others.toml")),
    ("aim7-spinner.toml", include_str!("../published/aim7-spinner.toml")),
    ("lockref.toml", include_str!("../published/lockref.toml")),
    ("counter.toml", include_str!("../published/counter.toml")),
    ("pgbench.toml", include_str!("../published/pgbench.toml")),
    ("subscription.toml", include_str!("../published/subscription.toml")),
    ("flexguard.toml", include_str!("../published/flexguard.toml")),
    ("flexguard-fall.toml", include_str!("../published/flexguard-fall.toml")),
    ("i-spinlock.toml", include_str!("../published/i-spinlock.toml")),
    ("restriction.toml", include_str!("../published/restriction.toml")),
    ("preemptions.toml", include_str!("../published/preemptions.toml")),
    ("preemptable.toml", include_str!("../published/preemptable.toml")),
    ("spinning.toml", include_str!("../published/spinning.toml")),
    ("others.toml", include_str!("../published/others.toml")),
];

/// Error reading a file.
#[derive(Debug, Error)]
#[error("{file} cannot be read")]
pub struct PublishedError {
    file: &'static str,
    #[source]
    source: toml::de::Error,
}

fn read<T: for<'de> Deserialize<'de>>(file: &'static str, text: &str) -> Result<T, PublishedError> {
    toml::from_str(text).map_err(|source| PublishedError { file, source })
}

/// A published table. The file states the noise in percent, and common properties of the cells only once.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Unique name of the table.
    pub name: String,
    /// The published document.
    pub source: String,
    /// The table in the document.
    pub table: String,
    /// How much of the document could be read: `whole`, `excerpt`, ...
    pub read: String,
    /// The machine on which the table was measured.
    #[serde(rename = "where")]
    pub place: String,
    /// Unit of the figures.
    pub unit: String,
    better: Better,
    /// Changes of less than this share count as no change.
    #[serde(deserialize_with = "percent")]
    pub noise: f64,
    /// The machine file that models the machine.
    pub machine: String,
    /// The profile of the workload.
    pub profile: String,
    /// The table whose fit is used in the simulation: this table or an earlier one. None if its cells are not
    /// simulated.
    pub fit: Option<String>,
    /// How the host interrupts spinning guests, if it does.
    pub pause_loop_exits: Option<PauseLoopExits>,
    /// Differences between simulation and published measurement.
    pub notes: Vec<String>,
    #[serde(default, deserialize_with = "origin")]
    document: Option<Origin>,
    remark: Option<String>,
    spin_threshold: u32,
    #[serde(default, with = "text::option")]
    policy: Option<PolicySpec>,
    slice_us: Option<u64>,
    /// The entry of the score card for the rows.
    pub card: Option<String>,
    /// The surrogate experiment on this host.
    pub measured: Option<Measured>,
    not_measured: Option<String>,
    /// The figures.
    #[serde(default)]
    pub cells: Vec<Cell>,
    /// The comparisons of cells.
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Better {
    More,
    Less,
}

/// Pause-loop exits in the kernel of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseLoopExits {
    /// Dynamic windows, since Linux 3.18.
    Dynamic,
    /// One window for all loops.
    Fixed,
}

/// The surrogate experiment for a table on this host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measured {
    /// The lines of the experiment's spec, without repetitions and seconds, as for `pvticket run`.
    pub spec: Vec<String>,
    /// Differences from the published measurement.
    pub notes: Vec<String>,
    /// Multiple of the requested rounds, for small changes.
    #[serde(default = "one")]
    pub more_rounds: u16,
}

/// A published figure and the conditions of its measurement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cell {
    /// Name of the cell, unique in the table.
    pub id: String,
    /// Published value; None if only the change was published.
    pub figure: Option<f64>,
    /// Whether the cell belongs to the column to which profiles are fitted.
    #[serde(default, rename = "fitted")]
    pub is_fitted: bool,
    #[serde(default, with = "text::option")]
    system: Option<System>,
    #[serde(default, with = "text::option")]
    policy: Option<PolicySpec>,
    slice_us: Option<u64>,
    #[serde(default, with = "text")]
    handoff: HandoffSpec,
    cpus: Option<usize>,
    guests: Option<usize>,
    vcpus: Option<usize>,
    not_simulated: Option<String>,
    measured: Option<Vec<String>>,
    wants_cpus: Option<usize>,
    not_measured: Option<String>,
}

/// A published statement about at most two cells.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Row {
    /// Name of the row, unique in the table.
    pub id: String,
    base: Option<String>,
    changed: Option<String>,
    change_percent: Option<f64>,
    count: Option<f64>,
    /// Group of rows whose order is compared, too.
    pub group: Option<String>,
    not_simulated: Option<String>,
    quantity: Option<Quantity>,
    not_measured: Option<String>,
    /// Whether the claim is a lower bound.
    #[serde(default, rename = "at-least")]
    pub is_at_least: bool,
}

/// A figure of a measured point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Operations per second of one guest. More is better.
    Rate,
    /// Retries per lockref change.
    Retries,
    /// Preemptions of lock holders per second. Fewer are better.
    HolderPreemptions,
}

fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(f64::deserialize(from)? / 100.0)
}

fn origin<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Origin>, D::Error> {
    let name = String::deserialize(from)?;
    let origin = Origin::ALL.into_iter().find(|origin| origin.name() == name);
    origin.map(Some).ok_or_else(|| D::Error::custom(format!("there is no document '{name}'")))
}

const fn one() -> u16 {
    1
}

/// Simulation of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSetup {
    /// The lock.
    pub system: System,
    /// Its handoff options, including `restrict:N`.
    pub handoff: HandoffSpec,
    /// CPUs of the host.
    pub cpus: usize,
    /// Number of identical guests that run at the same time.
    pub guests: usize,
    /// vCPUs per guest.
    pub vcpus: usize,
    /// The host's schedule.
    pub policy: PolicySpec,
    /// Time slice of the schedule.
    pub slice: Nanos,
    /// Spin iterations before a halt.
    pub spin_threshold: u32,
}

impl CellSetup {
    /// Returns the number of vCPUs of all guests.
    pub const fn all_vcpus(&self) -> usize {
        self.guests * self.vcpus
    }
}

/// Statement of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Claim {
    /// The changed figure is this multiple of the base.
    Ratio(f64),
    /// The base has this many retries per change.
    Retries(f64),
}

impl Claim {
    /// Returns the number of the claim.
    pub const fn value(self) -> f64 {
        match self {
            Self::Ratio(value) | Self::Retries(value) => value,
        }
    }
}

/// Measured point of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected<'t> {
    /// The point of the table's experiment, as for `--only`.
    pub only: &'t [String],
    /// CPUs that this host must have.
    pub cpus: usize,
}

/// Measured points of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surrogate<'t> {
    /// The point of the base.
    pub base: Selected<'t>,
    /// The point that is compared with the base; the base itself if the row has one cell.
    pub changed: Selected<'t>,
    /// The compared figure.
    pub quantity: Quantity,
}

impl Cell {
    /// Returns the measured point, or the reason why it is not measured. None if the file has neither.
    fn selected(&self) -> Option<Result<Selected<'_>, &str>> {
        if let Some(reason) = &self.not_measured {
            return Some(Err(reason));
        }
        let (only, cpus) = (self.measured.as_deref()?, self.wants_cpus.unwrap_or(1));
        Some(Ok(Selected { only, cpus }))
    }
}

impl Table {
    /// Returns all tables included in pvticket.
    pub fn all() -> Result<Vec<Self>, PublishedError> {
        FILES.iter().map(|(file, text)| read(file, text)).collect()
    }

    /// Returns the document whose systems a report compares with the table, and a remark on how far the
    /// figures are comparable.
    pub fn compared_document(&self) -> Option<(Origin, &str)> {
        self.document.zip(self.remark.as_deref())
    }

    /// Returns the simulation of a cell, or the reason why it is not simulated.
    pub fn setup<'t>(&self, cell: &'t Cell) -> Result<CellSetup, &'t str> {
        let setup = || {
            Some(CellSetup {
                system: cell.system?,
                handoff: cell.handoff,
                cpus: cell.cpus?,
                guests: cell.guests.unwrap_or(1),
                vcpus: cell.vcpus?,
                policy: cell.policy.as_ref().or(self.policy.as_ref())?.clone(),
                slice: Nanos::micros(cell.slice_us.or(self.slice_us)?),
                spin_threshold: self.spin_threshold,
            })
        };
        match &cell.not_simulated {
            Some(reason) => Err(reason),
            None => setup().ok_or("it has no system, CPUs, vCPUs, policy or slice"),
        }
    }

    /// Returns the base of a row and the cell compared with it, or the base twice; None if it has no cells.
    pub fn cells_of(&self, row: &Row) -> Option<[&Cell; 2]> {
        let cell = |id: &String| self.cells.iter().find(|cell| cell.id == *id);
        let base = row.base.as_ref()?;
        Some([cell(base)?, cell(row.changed.as_ref().unwrap_or(base))?])
    }

    /// Returns the statement of a row.
    pub fn claim(&self, row: &Row) -> Claim {
        let ratio = || {
            let [base, changed] = self.cells_of(row)?.map(|cell| cell.figure);
            Some(match self.better {
                Better::More => changed? / base?,
                Better::Less => base? / changed?,
            })
        };
        match (row.count, row.change_percent) {
            (Some(count), _) => Claim::Retries(count),
            (None, Some(percent)) => Claim::Ratio(1.0 + percent / 100.0),
            (None, None) => Claim::Ratio(ratio().unwrap_or(f64::NAN)),
        }
    }

    /// Whether both cells of a row belong to the fitted column, so that nothing is predicted.
    pub fn is_fitted(&self, row: &Row) -> bool {
        self.cells_of(row).is_some_and(|cells| cells.iter().all(|cell| cell.is_fitted))
    }

    /// Returns the base and the changed cell of a row to simulate, or the reason why it is not simulated.
    pub fn simulated<'t>(&'t self, row: &'t Row) -> Result<[&'t Cell; 2], &'t str> {
        if let Some(reason) = &row.not_simulated {
            return Err(reason);
        }
        let cells = self.cells_of(row).ok_or("it has no cells")?;
        cells.iter().try_for_each(|cell| self.setup(cell).map(drop)).map(|()| cells)
    }

    /// Returns the cells to simulate for these rows, without duplicates.
    pub fn simulated_cells<'t>(&'t self, rows: impl IntoIterator<Item = &'t Row>) -> Vec<&'t Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for cell in rows.into_iter().filter_map(|row| self.simulated(row).ok()).flatten() {
            if cells.iter().all(|known| known.id != cell.id) {
                cells.push(cell);
            }
        }
        cells
    }

    /// Returns the measured points of a row, or the reason why it is not measured.
    pub fn surrogate<'t>(&'t self, row: &'t Row) -> Result<Surrogate<'t>, &'t str> {
        if let Some(reason) = &row.not_measured {
            return Err(reason);
        }
        let [base, changed] = self
            .cells_of(row)
            .and_then(|[base, changed]| Some([base.selected()?, changed.selected()?]))
            .ok_or_else(|| self.not_measured.as_deref().unwrap_or(UNKNOWN))?;
        let usual = if row.count.is_some() { Quantity::Retries } else { Quantity::Rate };
        Ok(Surrogate { base: base?, changed: changed?, quantity: row.quantity.unwrap_or(usual) })
    }
}

/// A unit test rejects rows with this reason.
const UNKNOWN: &str = "the table has neither measured nor not-measured";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    entries: Vec<CardLine>,
}

impl CardLine {
    /// Returns the score card: the questions to be answered by a reproduction, in order.
    pub fn all() -> Result<Vec<Self>, PublishedError> {
        let card: Card = read("card.toml", include_str!("../published/card.toml"))?;
        Ok(card.entries)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tables() -> Vec<Table> {
        Table::all().unwrap_or_else(|error| panic!("{error}: {}", error.source))
    }

    fn table(name: &str) -> Table {
        tables().into_iter().find(|table| table.name == name).expect(name)
    }

    fn are_unique<'t>(ids: impl Iterator<Item = &'t String>) -> bool {
        let mut known = HashSet::new();
        ids.into_iter().all(|id| known.insert(id))
    }

    #[test]
    fn tables_are_valid() {
        let tables = tables();
        assert!(are_unique(tables.iter().map(|table| &table.name)));
        for (table, (file, _)) in tables.iter().zip(FILES) {
            assert_eq!(format!("{}.toml", table.name), *file);
            assert!(are_unique(table.cells.iter().map(|cell| &cell.id)), "{file}");
            assert!(are_unique(table.rows.iter().map(|row| &row.id)), "{file}");
            assert_eq!(table.document.is_some(), table.remark.is_some(), "{file}");
            for cell in &table.cells {
                let is_simulated = table.setup(cell).is_ok();
                assert_ne!(is_simulated, cell.not_simulated.is_some(), "{file}: {}", cell.id);
            }
            for row in &table.rows {
                let has_cells = table.cells_of(row).is_some();
                assert_eq!(row.base.is_some(), has_cells, "{file}: {}: no such cell", row.id);
                assert!(has_cells || row.changed.is_none() && row.not_simulated.is_some());
                // A claim is stated in exactly one way.
                let figures = table.cells_of(row).map(|cells| cells.map(|cell| cell.figure));
                let has_ratio = figures.is_some_and(|figures| figures.iter().all(Option::is_some));
                let ways = [row.count.is_some(), row.change_percent.is_some(), has_ratio];
                let ways = ways.into_iter().filter(|is_stated| *is_stated).count();
                assert_eq!(ways, 1, "{file}: {}", row.id);
                assert!(table.claim(row).value() >= 0.0, "{file}: {}", row.id);
            }
        }
    }

    #[test]
    fn card_entries_match_the_tables() {
        let entries = CardLine::all().unwrap_or_else(|error| panic!("{error}"));
        let tables = tables();
        let ids: HashSet<&str> = tables.iter().filter_map(|table| table.card.as_deref()).collect();
        assert_eq!(ids, entries.iter().map(|entry| entry.id.as_str()).collect());
        assert_eq!(ids.len(), entries.len());
    }

    #[test]
    fn rows_are_measured_or_state_a_reason() {
        for table in tables() {
            let is_measured = table.rows.iter().any(|row| table.surrogate(row).is_ok());
            assert_eq!(is_measured, table.measured.is_some(), "{}", table.name);
            for row in &table.rows {
                match table.surrogate(row) {
                    Ok(surrogate) => assert!(!surrogate.base.only.is_empty(), "{}", row.id),
                    Err(reason) => {
                        let is_stated = reason.len() > 10 && reason != UNKNOWN;
                        assert!(is_stated, "{}: {}", table.name, row.id);
                    }
                }
            }
        }
    }

    #[test]
    fn cells_of_rows_are_simulated_once() {
        let dbench = table("dbench");
        let cells = dbench.simulated_cells(&dbench.rows);
        assert_eq!(cells.len(), 8, "four bases and four changed ones");
        let build = table("build");
        let rows = build.rows.iter();
        let skipped: Vec<&Row> = rows.filter(|row| build.simulated(row).is_err()).collect();
        assert!(!skipped.is_empty() && build.simulated_cells(skipped).is_empty());
    }

    #[test]
    fn ratios_match_the_documents() {
        let claim = |name: &str, row: &str| {
            let table = table(name);
            let row = table.rows.iter().find(|known| known.id == row).expect(row);
            table.claim(row).value()
        };
        for (table, row, percent) in [
            ("dbench", "PV at 2x", 16.6),
            ("dbench", "PV at 4x", 5.0),
            ("ebizzy", "boost, 2 guests", 70.0),
            ("aim7-many", "read-first, 8 nodes, HT off", 238.8),
            // Computed from the document's own rates; it states +51.1.
            ("aim7-many", "read-first, 4 nodes, HT on", 93.2),
            ("aim7-few", "read-first, 8 nodes, HT on", 194.6),
            ("pgbench", "PV on, scale 1, 4 clients", 6.63),
            ("aim7-spinner", "short, 10-100 users", -7.7),
        ] {
            let claim = claim(table, row);
            assert!((claim * 100.0 - 100.0 - percent).abs() < 0.1, "{row}: {claim:?}");
        }
        // For times, less is better: an increase is a ratio below 1.
        let fall = claim("build", "pv-ticket, 1.5x by 1x");
        assert!((fall - 302.0 / 807.6).abs() < 1e-9);
    }
}
