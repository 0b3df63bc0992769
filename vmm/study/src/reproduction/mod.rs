//! Published rows compared with measurements and simulations: verdicts and a score.

mod judge;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::{disturbance::Disturbance, stats::Estimate};
pub use judge::{FigureJudgement, Judged, Score, side};

/// Tolerated deviation of a ratio or count, as a factor.
pub const FACTOR: f64 = 2.0;

/// Source of our figure for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Experiments on this host.
    Measured,
    /// Simulations of another host.
    Simulated,
}

impl Basis {
    /// Both bases, in order of precedence.
    pub const ALL: [Self; 2] = [Self::Measured, Self::Simulated];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
        }
    }
}

/// Kind of number that a row states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The changed figure as a multiple of the base; more is better, and 1 is no change.
    Ratio,
    /// A count of retries.
    Count,
}

/// A published row and our figures for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Name of the row, unique in its table.
    pub row: String,
    /// Kind of the number.
    pub kind: Kind,
    /// The published value.
    pub published: f64,
    /// Whether the published value is a lower bound.
    pub is_at_least: bool,
    /// Group of rows whose order is judged, too.
    pub group: Option<String>,
    /// Our measurement, or the reason why it is missing.
    pub measured: Result<Estimate, String>,
    /// Our simulation, or the reason why it is missing.
    pub simulated: Result<Estimate, String>,
    /// Whether the simulation was fitted to this row, so that it predicts nothing.
    pub is_fitted: bool,
}

impl Entry {
    /// Returns our figure, or the reason why it is missing.
    pub fn figure(&self, basis: Basis) -> Result<&Estimate, &str> {
        match basis {
            Basis::Measured => &self.measured,
            Basis::Simulated => &self.simulated,
        }
        .as_ref()
        .map_err(String::as_str)
    }

    /// Returns our figure unless it was fitted: fitted figures predict nothing.
    pub(crate) fn unfitted(&self, basis: Basis) -> Option<&Estimate> {
        self.figure(basis).ok().filter(|_| basis == Basis::Measured || !self.is_fitted)
    }
}

/// The rows of one published table.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Name of the table.
    pub name: String,
    /// Subject of the table.
    pub table: String,
    /// Place of publication.
    pub source: String,
    /// How much of the source could be read.
    pub read: String,
    /// Machine on which the table was measured.
    pub place: String,
    /// Changes of less than this share count as no change.
    pub noise: f64,
    /// The entry of the score card for the rows.
    pub card: Option<String>,
    /// Notes on our surrogates.
    pub surrogates: Vec<String>,
    /// Differences between simulation and publication, the machine file and the fitted values.
    pub model: Vec<String>,
    /// Command that reports our measurements, if any.
    pub command: Option<String>,
    /// Disturbances of the windows of its measured figures.
    pub disturbance: Disturbance,
    /// The rows.
    pub entries: Vec<Entry>,
}

/// A question of the score card.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardLine {
    /// Letter of the question, which tables name.
    pub id: String,
    /// Text of the question.
    pub about: String,
}

/// All results of a reproduction.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// Time of its creation, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The host of the measurements.
    pub host: String,
    /// The tables with the requested rows.
    pub sections: Vec<Section>,
    /// The score card.
    pub card: Vec<CardLine>,
    /// Method of measurements and simulations, in sentences.
    pub method: Vec<String>,
    /// The command that repeats the reproduction: its name, and its options with their values.
    pub command: Vec<String>,
}

/// Score of an entry of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardScore<'a> {
    /// The entry.
    pub line: &'a CardLine,
    /// Rows that hold in sign and order, scored rows, and all rows of the entry.
    pub rows: [usize; 3],
}

impl CardScore<'_> {
    /// Whether at least one of its rows is scored, and all scored rows hold in sign and order.
    pub const fn holds(&self) -> bool {
        self.rows[1] > 0 && self.rows[0] == self.rows[1]
    }
}

impl Reproduction {
    /// Returns the score on one basis, or on both: measured where available, otherwise simulated.
    pub fn score(&self, basis: Option<Basis>) -> Score {
        let mut score = Score::default();
        for section in &self.sections {
            for judged in section.judged() {
                score.add(judged.from(basis));
            }
        }
        score
    }

    /// Returns the score of each entry of the card that has requested rows.
    pub fn card(&self) -> Vec<CardScore<'_>> {
        let rows_of = |id: &String| {
            let mut score = Score::default();
            for section in self.sections.iter().filter(|section| section.card.as_ref() == Some(id))
            {
                section.judged().for_each(|judged| score.add(judged.from(None)));
            }
            [score.sign_and_order, score.scored, score.total]
        };
        let scores = self.card.iter().map(|line| CardScore { line, rows: rows_of(&line.id) });
        scores.filter(|score| score.rows[2] > 0).collect()
    }
}
