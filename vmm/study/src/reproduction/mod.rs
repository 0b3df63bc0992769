//! Published rows beside what is measured and simulated for them: verdicts and a score.

mod judge;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::{disturbance::Disturbance, stats::Estimate};
pub use judge::{FigureJudgement, Judged, Score, side};

/// A ratio, or a count, may be off by this factor.
pub const FACTOR: f64 = 2.0;

/// How our figure for a row was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By experiments on this host.
    Measured,
    /// By simulations of another.
    Simulated,
}

impl Way {
    /// Both, the one that counts first.
    pub const ALL: [Self; 2] = [Self::Measured, Self::Simulated];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
        }
    }
}

/// What a row states, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// How many times the base the changed figure is; more is better, and 1 is no change.
    Ratio,
    /// A count for each operation.
    Count,
}

/// A published row, and our figures for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Name of the row, unique in its table.
    pub row: String,
    /// What its number is.
    pub kind: Kind,
    /// As published.
    pub published: f64,
    /// More than published is as good.
    pub is_at_least: bool,
    /// Rows of one group have an order.
    pub group: Option<String>,
    /// Ours, or why there is none.
    pub measured: Result<Estimate, String>,
    /// Ours by simulation, or why there is none.
    pub simulated: Result<Estimate, String>,
    /// The simulation was fitted to this row, so it shows nothing.
    pub is_fitted: bool,
}

impl Entry {
    /// Our figure, or why there is none.
    pub fn figure(&self, way: Way) -> Result<&Estimate, &str> {
        match way {
            Way::Measured => &self.measured,
            Way::Simulated => &self.simulated,
        }
        .as_ref()
        .map_err(String::as_str)
    }

    /// The figure that shows something: nothing is shown by what was fitted.
    pub(crate) fn shows(&self, way: Way) -> Option<&Estimate> {
        self.figure(way).ok().filter(|_| way == Way::Measured || !self.is_fitted)
    }
}

/// The rows of one published table.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The table's name.
    pub name: String,
    /// What it is a table of.
    pub table: String,
    /// Where it was published.
    pub source: String,
    /// How much of the source could be read.
    pub read: String,
    /// What it was measured on.
    pub place: String,
    /// Changes of less than this share are none.
    pub noise: f64,
    /// The entry of the score card that it belongs to.
    pub card: Option<String>,
    /// What stands for it in our measurements.
    pub stand_in: Vec<String>,
    /// In what its simulation differs from it; with the machine file and what was fitted.
    pub model: Vec<String>,
    /// The command that reports our measurements, if there are any.
    pub command: Option<String>,
    /// What disturbed the windows that its measured figures are of.
    pub disturbance: Disturbance,
    /// The rows.
    pub entries: Vec<Entry>,
}

/// A question that the score card has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardLine {
    /// Letter of the question; tables name it.
    pub id: String,
    /// What it says.
    pub about: String,
}

/// Everything that a reproduction shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// When it was made, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The host of the measurements.
    pub host: String,
    /// The tables with the rows that were asked for.
    pub sections: Vec<Section>,
    /// The score card.
    pub card: Vec<CardLine>,
    /// How measurements and simulations were made, in sentences.
    pub method: Vec<String>,
    /// The command that makes it again: its name, and its options with their values.
    pub command: Vec<String>,
}

/// What a reproduction shows for an entry of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardScore<'a> {
    /// The entry.
    pub line: &'a CardLine,
    /// Rows of the entry that hold in sign and order, of those that are scored, of all.
    pub rows: [usize; 3],
}

impl CardScore<'_> {
    /// At least one of its rows is scored, and each of those holds in sign and order.
    pub const fn holds(&self) -> bool {
        self.rows[1] > 0 && self.rows[0] == self.rows[1]
    }
}

impl Reproduction {
    /// The score by one way, or by both: measured if there is a measurement, simulated otherwise.
    pub fn score(&self, way: Option<Way>) -> Score {
        let mut score = Score::default();
        for section in &self.sections {
            for judged in section.judged() {
                score.add(judged.by(way));
            }
        }
        score
    }

    /// The score of each entry of the card of which rows were asked for.
    pub fn card(&self) -> Vec<CardScore<'_>> {
        let rows_of = |id: &String| {
            let mut score = Score::default();
            for section in self.sections.iter().filter(|section| section.card.as_ref() == Some(id))
            {
                section.judged().for_each(|judged| score.add(judged.by(None)));
            }
            [score.sign_and_order, score.scored, score.all]
        };
        let scores = self.card.iter().map(|line| CardScore { line, rows: rows_of(&line.id) });
        scores.filter(|score| score.rows[2] > 0).collect()
    }
}
