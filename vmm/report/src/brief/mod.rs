//! The answer of one or more runs in at most ten lines: the gain of PV locks over native locks and of one
//! schedule over another, with more vCPUs than CPUs; and a chart of the rates behind it.
//!
//! All ratios and intervals come from the study of a run, so a brief agrees with the table that
//! `pvticket compare` has printed for that run. Runs with different specs are not compared with each
//! other: their cells did not alternate.

mod chart;
mod lead;
mod notes;
mod rows;
mod subject;
#[cfg(test)]
mod tests;

use crate::{
    figures::{Figure, characters::wrapped},
    lists::grouped,
    names, si,
    words::{
        sentences::{Sentence, Tone, operations},
        tables::Table,
    },
};
use base::plural::count;
use chart::Bar;
use notes::Note;
use rows::ComparisonRow;
use study::{
    disturbance::Disturbance,
    findings::{PointStudy, RunRecord, Study},
    store::record::{CellLine, Outcome},
};
use subject::{LockNames, Subject};

/// Maximum number of lines of the answer, including one for the page's path.
pub const MAX_LINES: usize = 10;
/// Width of the layout in columns, unless the terminal is narrower.
pub const WIDTH: usize = 72;
/// Minimum width in columns.
const MIN_WIDTH: usize = 40;
/// Maximum number of lines before and after the comparisons.
const MAX_HEAD_LINES: usize = 2;
const MAX_NOTE_LINES: usize = 3;

/// The answer of runs, for a terminal and the top of a page.
#[derive(Debug)]
pub struct Brief {
    head: String,
    /// The answer in one sentence.
    pub sentence: String,
    rows: Vec<ComparisonRow>,
    notes: Vec<Note>,
    /// States whether the answer holds.
    pub validity: Sentence,
    bars: Vec<Bar>,
    /// Unit of the rates.
    unit: &'static str,
    levels: Vec<f64>,
}

impl Brief {
    /// The answer of `runs`.
    pub fn new(runs: &[RunRecord]) -> Self {
        let brief = Self::from_studies(&studies(runs));
        let clean = undisturbed(runs).map(|runs| Self::from_studies(&studies(&runs)).rows);
        let validity = lead::validity(&brief.rows, &brief.notes, clean.as_deref());
        Self { validity, ..brief }
    }

    fn from_studies(studies: &[Study]) -> Self {
        let subjects = subject::subjects(studies);
        let words = LockNames::new(studies);
        let rows = rows::list(studies, &subjects, &words);
        Self {
            head: head(&rows, &subjects, &words),
            sentence: lead::sentence(&rows, &subjects, &words),
            notes: notes::list(studies, &subjects, &rows),
            validity: Sentence::plain(Tone::Neutral, String::new()),
            bars: chart::bars(studies, &subjects, &words),
            unit: studies.first().map_or("operations", operations),
            levels: subjects.iter().filter_map(|subject| subject.ratio).collect(),
            rows,
        }
    }

    /// The answer in `width` columns and fewer than [`MAX_LINES`] lines.
    pub fn answer(&self, width: usize) -> String {
        let width = width.clamp(MIN_WIDTH, WIDTH);
        let mut rows = self.rows.clone();
        let head = first_lines(wrapped(&self.head, width, ""), MAX_HEAD_LINES);
        let mut dropped = 0;
        loop {
            let shown = rows::layout(&rows, width);
            let notes = notes::sentence(&self.notes, dropped, width, MAX_NOTE_LINES);
            let lines =
                [&head, &shown, &notes].map(|part| part.lines().count()).iter().sum::<usize>();
            if lines < MAX_LINES || rows.is_empty() {
                let legends = rows::legends(&rows).map(|legend| wrapped(&legend, width, ""));
                let fits = |legend: &String| lines + legend.lines().count() < MAX_LINES;
                let legend = legends.into_iter().find(fits).unwrap_or_default();
                return clipped(&format!("{head}{shown}{legend}{notes}"), width);
            }
            rows::drop_least(&mut rows);
            dropped += 1;
        }
    }

    /// The chart of the rates in `width` columns, below a blank line; empty without rates.
    pub fn chart(&self, width: usize) -> String {
        chart::render(&self.bars, self.unit, width.clamp(MIN_WIDTH, WIDTH))
    }

    /// The comparisons as a table; `None` without comparisons.
    pub fn table(&self) -> Option<Table> {
        rows::table(&self.head, &self.rows)
    }

    /// The chart of the rates as a figure; `None` without rates.
    pub fn figure(&self) -> Option<Figure> {
        chart::figure(&self.bars, self.unit)
    }

    /// The notes that are not among a study's own warnings.
    pub fn notes(&self) -> Vec<Sentence> {
        self.notes.iter().filter(|note| !note.is_of_study).map(Note::sentence).collect()
    }

    /// Whether the chart has points at this overcommit ratio.
    pub fn is_at(&self, ratio: f64) -> bool {
        self.levels.contains(&ratio)
    }
}

/// The studies of the runs. Runs with the same spec share a study.
fn studies(runs: &[RunRecord]) -> Vec<Study> {
    let by_spec = grouped(runs.iter().map(|run| (&run.contents.run.spec, run.clone())));
    by_spec.iter().map(|(_, runs)| Study::new(runs)).collect()
}

/// The runs without their disturbed windows; `None` if no window was disturbed.
fn undisturbed(runs: &[RunRecord]) -> Option<Vec<RunRecord>> {
    let is_disturbed = |cell: &CellLine| match &cell.outcome {
        Outcome::Done { figures } => {
            !Disturbance::new(&cell.point, [&**figures].into_iter()).is_none()
        }
        Outcome::Failed { .. } | Outcome::Aborted => false,
    };
    if !runs.iter().flat_map(|run| &run.contents.cells).any(is_disturbed) {
        return None;
    }
    let mut undisturbed = runs.to_vec();
    undisturbed.iter_mut().for_each(|run| run.contents.cells.retain(|cell| !is_disturbed(cell)));
    Some(undisturbed)
}

/// The compared locks, the overcommit ratio, and the number of runs.
fn head(rows: &[ComparisonRow], subjects: &[Subject], words: &LockNames) -> String {
    let Some(level) = subjects.iter().find_map(|subject| subject.ratio) else {
        return "Nothing was measured with more vCPUs than CPUs.".to_owned();
    };
    let runs = || rows.iter().map(|row| row.runs);
    let counted = match (runs().min(), runs().max()) {
        (Some(least), Some(most)) if least == most => format!(", {} each", count(most, "run")),
        (Some(least), Some(most)) => format!(", {least} to {most} runs"),
        _ => String::new(),
    };
    let prefix = if words.are_of_ticketlocks { "Ticketlocks, " } else { "" };
    let level = names::overcommit_of(level);
    let level = level.trim_end_matches('x');
    format!("{prefix}{level} vCPUs per CPU: ratios of medians (95 %){counted}")
}

/// The first `limit` lines of a text.
fn first_lines(text: String, limit: usize) -> String {
    text.lines().take(limit).map(|line| format!("{line}\n")).collect()
}

/// Cuts lines that are too long, such as lines with one long word.
fn clipped(text: &str, width: usize) -> String {
    let cut = |line: &str| -> String {
        if line.chars().count() <= width {
            line.to_owned()
        } else {
            line.chars().take(width - 1).chain(['\u{2026}']).collect()
        }
    };
    si::spaced(text).lines().map(|line| format!("{}\n", cut(line).trim_end())).collect()
}

/// A subject's points with a rate at its overcommit ratio, each with its study.
fn points<'a>(
    studies: &'a [Study],
    subject: &'a Subject,
) -> impl Iterator<Item = (&'a Study, &'a PointStudy)> {
    let pairs =
        studies.iter().flat_map(|study| study.points.iter().map(move |point| (study, point)));
    pairs.filter(|(_, point)| point.rate.is_some() && subject.contains_at_ratio(&point.point))
}
