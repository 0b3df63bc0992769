//! The answer of one or more runs in at most ten lines: what PV locks gain over native ones, and what
//! a schedule gains, with more vCPUs than CPUs; and a chart of the rates behind it.
//!
//! All ratios and intervals are those of the study of a run, so a brief agrees with the table that
//! `pvticket compare` has printed of that run. Runs with different specs are not compared with each
//! other: their cells did not alternate.

mod chart;
mod notes;
mod rows;
mod subject;
#[cfg(test)]
mod tests;

use crate::{figures::characters::wrapped, names};
use base::plural::count;
use rows::ComparisonRow;
use study::findings::{PointStudy, RunRecord, Study};
use subject::{LockWords, Subject};

/// Most lines of the answer, with one for the page's path.
pub const MOST_LINES: usize = 10;

/// The width that it is laid out for, in columns, unless the terminal is narrower.
pub const WIDTH: usize = 72;

/// The least width, in columns.
const NARROWEST: usize = 40;

/// Most lines before the comparisons, and after them.
const MOST_HEAD: usize = 2;
const MOST_NOTES: usize = 3;

/// A brief, without the line of the page's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// The answer: one line fewer than [`MOST_LINES`], or less.
    pub answer: String,
    /// The chart of the rates; empty if there are none.
    pub chart: String,
}

/// The brief of these runs in `width` columns.
pub fn brief(runs: &[RunRecord], width: usize) -> Brief {
    let width = width.clamp(NARROWEST, WIDTH);
    let studies = studies(runs);
    let subjects = subject::all(&studies);
    let words = LockWords::of(&studies);
    Brief {
        answer: answer(&studies, &subjects, &words, width),
        chart: chart::render(&studies, &subjects, &words, width),
    }
}

/// A study of each run; runs of one spec make one study.
fn studies(runs: &[RunRecord]) -> Vec<Study> {
    let mut groups: Vec<Vec<RunRecord>> = Vec::new();
    for run in runs {
        let spec = &run.contents.run.spec;
        match groups.iter_mut().find(|group| group[0].contents.run.spec == *spec) {
            Some(group) => group.push(run.clone()),
            None => groups.push(vec![run.clone()]),
        }
    }
    groups.iter().map(|group| Study::new(group)).collect()
}

fn answer(studies: &[Study], subjects: &[Subject], words: &LockWords, width: usize) -> String {
    let mut rows = rows::all(studies, subjects, words);
    let head = first(wrapped(&head(&rows, subjects, words), width, ""), MOST_HEAD);
    let notes = notes::all(studies, subjects, &rows);
    let mut dropped = 0;
    loop {
        let shown = rows::layout(&rows, width);
        let notes = notes::sentence(&notes, dropped, width, MOST_NOTES);
        let lines = [&head, &shown, &notes].map(|part| part.lines().count()).iter().sum::<usize>();
        if lines < MOST_LINES || rows.is_empty() {
            let legends = rows::legends(&rows).map(|legend| wrapped(&legend, width, ""));
            let fits = |legend: &String| lines + legend.lines().count() < MOST_LINES;
            let legend = legends.into_iter().find(fits).unwrap_or_default();
            return clipped(&format!("{head}{shown}{legend}{notes}"), width);
        }
        rows::drop_least(&mut rows);
        dropped += 1;
    }
}

/// What is compared, at which overcommit ratio, and from how many runs.
fn head(rows: &[ComparisonRow], subjects: &[Subject], words: &LockWords) -> String {
    let Some(level) = subjects.iter().find_map(Subject::level) else {
        return "Nothing was measured with more vCPUs than CPUs.".to_owned();
    };
    let runs = || rows.iter().map(|row| row.runs);
    let counted = match (runs().min(), runs().max()) {
        (Some(least), Some(most)) if least == most => format!(", {} each", count(most, "run")),
        (Some(least), Some(most)) => format!(", {least} to {most} runs"),
        _ => String::new(),
    };
    let what = if words.are_of_ticketlocks() { "Ticketlocks, " } else { "" };
    let level = names::overcommit_of(level);
    let level = level.trim_end_matches('x');
    format!("{what}{level} vCPUs per CPU: ratios of medians (95 %){counted}")
}

/// The first lines of a text.
fn first(text: String, most: usize) -> String {
    text.lines().take(most).map(|line| format!("{line}\n")).collect()
}

/// The text with lines cut that are too long, as those with one long word are.
fn clipped(text: &str, width: usize) -> String {
    let cut = |line: &str| -> String {
        if line.chars().count() <= width {
            line.to_owned()
        } else {
            line.chars().take(width - 1).chain(['\u{2026}']).collect()
        }
    };
    text.lines().map(|line| format!("{}\n", cut(line).trim_end())).collect()
}

/// The points of a subject that the answer is about, each with its study.
fn points<'a>(
    studies: &'a [Study],
    subject: &'a Subject,
) -> impl Iterator<Item = (&'a Study, &'a PointStudy)> {
    let all = studies.iter().flat_map(|study| study.points.iter().map(move |point| (study, point)));
    all.filter(|(_, point)| point.rate.is_some() && subject.is_at_level(&point.point))
}
