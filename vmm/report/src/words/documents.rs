//! Published figures of the systems in the lock library, with their sources.

use std::sync::LazyLock;

use super::{
    super::si::{ratio, si},
    tables::{Table, dash, ratio_within},
};
use crate::words::sentences;
use locks::Origin;
use study::{
    findings::{Axis, Comparison, PointStudy, Study},
    published::{self, CellSetup, Claim, Row},
};

/// The published tables; empty if they cannot be read, which their own tests exclude.
static TABLES: LazyLock<Vec<published::Table>> =
    LazyLock::new(|| published::Table::all().unwrap_or_default());

/// The systems of one document: as measured here, and as published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentSystems {
    /// The title of the document.
    pub title: &'static str,
    /// The systems, as measured here.
    pub ours: Table,
    /// The published tables.
    pub theirs: Vec<PublishedFigures>,
}

/// A published table with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedFigures {
    /// The published figures.
    pub table: Table,
    /// Source of the figures, and how much of it was accessible.
    pub source: String,
    /// How far the figures are comparable with ours.
    pub remark: &'static str,
}

/// The documents that describe systems of the study.
pub fn sections(study: &Study) -> Vec<DocumentSystems> {
    let section = |origin| {
        let ours = ours(study, origin)?;
        Some(DocumentSystems { title: origin.name(), ours, theirs: theirs(origin).collect() })
    };
    Origin::ALL.into_iter().filter_map(section).collect()
}

fn theirs(origin: Origin) -> impl Iterator<Item = PublishedFigures> {
    TABLES.iter().filter_map(move |table| {
        let (document, remark) = table.compared_document()?;
        let source = || format!("{} (read: {})", table.source, table.read);
        let theirs = || PublishedFigures { table: rows(table), source: source(), remark };
        (document == origin).then(theirs)
    })
}

/// The rows of a published table, with the compared figures if it has any.
fn rows(published: &published::Table) -> Table {
    let figures = |row: &Row| {
        let [base, changed] = published.cells_of(row)?;
        Some([base.figure?, changed.figure?])
    };
    let has_figures = published.rows.iter().any(|row| figures(row).is_some());
    let mut head = vec!["published"];
    if has_figures {
        head.extend(["before", "after"]);
    }
    head.push("gain");
    let title = format!("{}, {}", published.table, published.unit);
    let mut table = Table::new("published", &title, "", &head);
    for row in &published.rows {
        let mut cells = vec![row.id.clone()];
        if has_figures {
            let figures = figures(row).map(|both| both.map(|figure| figure.to_string()));
            cells.extend(figures.unwrap_or_else(|| [dash(), dash()]));
        }
        cells.push(match published.claim(row) {
            Claim::Ratio(value) => gain(value),
            Claim::Retries(count) => format!("{count} retries an operation"),
        });
        table.cells(cells);
    }
    table
}

/// A gain: in percent if it is small, as in publications, or else a ratio.
fn gain(value: f64) -> String {
    if (0.5..2.0).contains(&value) {
        format!("{:+.1} %", (value - 1.0) * 100.0)
    } else {
        ratio(value)
    }
}

fn ours(study: &Study, origin: Origin) -> Option<Table> {
    let at_ratios = origin == Origin::PvTicketlocks;
    let mut head = vec!["measured here", "median", "ratio", "95 % interval", "Holm's p"];
    if at_ratios {
        head.push("published");
    }
    let title = format!("{}/s", sentences::operations(study));
    let table = Table::new("ours", &title, "", &head);
    table.by_facet(study, |point| {
        let rate = point.rate.filter(|_| point.point.lock.origin() == origin)?;
        let against = baseline(study, point);
        let [over, within] = ratio_within(against.and_then(|comparison| comparison.ratio));
        let mut cells = vec![
            si(rate.median.value),
            over,
            within,
            against.map_or_else(dash, |comparison| sentences::bare_p(comparison.verdict.adjusted)),
        ];
        if at_ratios {
            cells.push(at_ratio(point).unwrap_or_else(dash));
        }
        Some(cells)
    })
}

fn baseline<'a>(study: &'a Study, point: &PointStudy) -> Option<&'a Comparison> {
    let is_ours = |comparison: &&Comparison| {
        comparison.axis == Axis::Lock && study.points[comparison.subject] == *point
    };
    study.comparisons.iter().find(is_ours)
}

/// The published ratio of this lock to another lock at this overcommit ratio.
fn at_ratio(point: &PointStudy) -> Option<String> {
    let (lock, overcommit) = (point.point.lock, point.point.overcommit());
    let is_at = |setup: &CellSetup| setup.all_vcpus() as f64 / setup.cpus as f64 == overcommit;
    TABLES.iter().find_map(|table| {
        let (document, _) = table.compared_document()?;
        if document != lock.origin() {
            return None;
        }
        table.rows.iter().find_map(|row| {
            let [base, changed] = table.simulated(row).ok()?;
            let (base, changed) = (table.setup(base).ok()?, table.setup(changed).ok()?);
            let is_it =
                changed.system == lock && base.system != lock && is_at(&changed) && is_at(&base);
            is_it.then(|| format!("{} {}", gain(table.claim(row).value()), table.name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tables::TableLine;

    #[test]
    fn every_document_with_systems_has_a_published_table() {
        assert_eq!(TABLES.len(), published::Table::all().unwrap().len());
        for origin in Origin::ALL {
            let tables: Vec<PublishedFigures> = theirs(origin).collect();
            assert!(!tables.is_empty(), "{origin:?}");
            for PublishedFigures { table, source, remark } in &tables {
                assert!(!table.lines.is_empty() && !source.is_empty() && !remark.is_empty());
            }
        }
    }

    #[test]
    fn a_row_shows_its_figures_and_the_gain() {
        let table = |name: &str| rows(TABLES.iter().find(|table| table.name == name).unwrap());
        let cells = |table: &Table, ix: usize| match &table.lines[ix] {
            TableLine::Cells(cells) => cells.clone(),
            TableLine::Heading(heading) => panic!("{heading}"),
        };
        let spinning = table("spinning");
        assert_eq!(spinning.head, ["published", "before", "after", "gain"]);
        assert_eq!(cells(&spinning, 0)[1..], ["0.2", "7.6", "1/38"]);
        assert_eq!(cells(&table("dbench"), 1)[1..], ["1470", "1713.7", "+16.6 %"]);
        let preemptable = table("preemptable");
        assert_eq!(cells(&preemptable, 1)[1..], ["1", "7.91", "7.91x"]);
        let lockref = table("lockref");
        assert_eq!(lockref.head, ["published", "gain"]);
        assert_eq!(cells(&lockref, 1)[1..], ["25 retries an operation"]);
    }
}
