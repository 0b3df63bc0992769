//! Published figures of the systems in the lock library, with their sources.

use std::sync::LazyLock;

use locks::Seed;
use serde::Deserialize;

use super::{
    super::si::{ratio, si},
    tables::{Table, within},
};
use crate::words::sentences;
use study::findings::{Axis, Comparison, PointStudy, Study};

/// The published figures, as data.
static PUBLISHED: LazyLock<Published> = LazyLock::new(|| parse().unwrap_or_default());

fn parse() -> Result<Published, toml::de::Error> {
    toml::from_str(include_str!("published.toml"))
}

/// The contents of `published.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Published {
    table: Vec<PublishedTable>,
    at_ratio: Vec<AtRatio>,
}

/// A published table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    /// [`Seed::name`] of the document whose systems it is about.
    document: String,
    what: String,
    source: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// How far it compares with our figures.
    remark: String,
}

/// A published figure at an overcommit ratio.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtRatio {
    /// The lock's name in the library.
    lock: String,
    overcommit: f64,
    text: String,
}

/// The systems of one document: as measured here, and as published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentSystems {
    /// The title of the document.
    pub title: &'static str,
    /// The systems, as measured here.
    pub ours: Table,
    /// The published tables.
    pub theirs: Vec<Theirs>,
}

/// A published table with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theirs {
    /// The published figures.
    pub table: Table,
    /// Where the figures were published.
    pub source: &'static str,
    /// How far they compare with ours.
    pub remark: &'static str,
}

const SEEDS: [Seed; 7] = [
    Seed::PvTicketlocks,
    Seed::MutexAtomics,
    Seed::MutexSpinner,
    Seed::PercpuCounter,
    Seed::Lockrefs,
    Seed::PreemptableTicketlocks,
    Seed::LaterKernels,
];

/// The documents that describe systems of the study.
pub fn sections(study: &Study) -> Vec<DocumentSystems> {
    let section = |seed| {
        let ours = ours(study, seed)?;
        Some(DocumentSystems {
            title: seed.name(),
            ours,
            theirs: published(seed).map(theirs).collect(),
        })
    };
    SEEDS.into_iter().filter_map(section).collect()
}

fn published(seed: Seed) -> impl Iterator<Item = &'static PublishedTable> {
    PUBLISHED.table.iter().filter(move |table| table.document == seed.name())
}

fn theirs(published: &'static PublishedTable) -> Theirs {
    let head: Vec<&str> = published.head.iter().map(String::as_str).collect();
    let mut table = Table::new("published", &published.what, "", &head);
    for row in &published.rows {
        table.cells(row.iter().cloned());
    }
    Theirs { table, source: &published.source, remark: &published.remark }
}

fn ours(study: &Study, seed: Seed) -> Option<Table> {
    let at_ratios = seed == Seed::PvTicketlocks;
    let mut head = vec!["measured here", "median", "ratio", "95 % interval", "Holm's p"];
    if at_ratios {
        head.push("published");
    }
    let title = format!("{}/s", sentences::operations(study));
    let table = Table::new("ours", &title, "", &head);
    table.by_facet(study, |point| {
        let rate = point.rate.filter(|_| point.point.lock.seed() == seed)?;
        let found = baseline(study, point);
        let over = found.and_then(|comparison| comparison.ratio);
        let dash = || "-".to_owned();
        let mut cells = vec![
            si(rate.median.value),
            over.map_or_else(dash, |estimate| ratio(estimate.value)),
            over.map_or_else(dash, |estimate| within(&estimate, ratio)),
            found.map_or_else(dash, |comparison| sentences::bare_p(comparison.verdict.adjusted)),
        ];
        if at_ratios {
            cells.push(at_ratio(point).map_or_else(dash, str::to_owned));
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

fn at_ratio(point: &PointStudy) -> Option<&'static str> {
    let (lock, overcommit) = (point.point.lock.name(), point.point.overcommit());
    let mut known = PUBLISHED.at_ratio.iter();
    let found = known.find(|known| known.lock == lock && known.overcommit == overcommit);
    found.map(|known| known.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_whole() {
        let published = parse().unwrap();
        for table in &published.table {
            let what = &table.what;
            assert!(SEEDS.iter().any(|seed| seed.name() == table.document), "{}", table.document);
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{what}");
            assert!(!table.source.is_empty() && !table.remark.is_empty(), "{what}");
        }
        for seed in SEEDS {
            assert!(published.table.iter().any(|table| table.document == seed.name()), "{seed:?}");
        }
        for at in &published.at_ratio {
            assert!(locks::System::ALL.iter().any(|lock| lock.name() == at.lock), "{}", at.lock);
        }
    }
}
