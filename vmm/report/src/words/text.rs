//! A study's report for a terminal.

use super::{
    super::figures::{
        self, Figure,
        characters::{self, wrapped},
    },
    answer, documents, league, method, name, overcommit, report_command,
    tables::{self, Table, TableLine},
    when,
};
use crate::{si::plain, words::sentences};
use base::shown;
use study::findings::{League, Study};

/// The least width that it is laid out for, in columns.
pub const NARROWEST: usize = 80;
/// The greatest width, in columns; longer lines are no easier to read.
const WIDEST: usize = 120;

/// The whole report in `width` columns.
pub fn render(study: &Study, width: usize) -> String {
    let width = width.clamp(NARROWEST, WIDEST);
    let mut text = String::new();
    for run in &study.runs {
        let ratio = overcommit(study).map_or_else(String::new, |ratio| format!(", all at {ratio}"));
        let at = when(run.run.at_ms);
        text += &format!("{}  ({}, {at}{ratio})\n", name(run), run.source);
        text += &wrapped(&run.run.question, width, "");
    }
    text.push('\n');
    for sentence in sentences::warnings(study) {
        text += &bullet(&sentence.text, width);
    }
    let leagues = League::all(study);
    for sentence in league::answer(study, &leagues).into_iter().chain(answer::answer(study)) {
        text += &wrapped(&sentence.text, width, "");
    }
    for one in league::tables(study, &leagues) {
        text += &format!("\n{}", table(&one, width));
    }
    text.push('\n');
    for sentence in sentences::findings(study) {
        text += &bullet(&sentence.text, width);
    }
    text += &figures_of(&figures::all(study), width);
    let heat = league::heat_maps(study, &leagues).into_iter().map(|map| map.table());
    for one in heat.chain(tables::all(study)) {
        text += &format!("\n{}", table(&one, width));
    }
    for section in documents::sections(study) {
        text += &format!("\nPublished figures: {}\n{}", section.title, table(&section.ours, width));
        for theirs in &section.theirs {
            text += &table(&theirs.table, width);
            text += &wrapped(&format!("source: {}. {}", theirs.source, theirs.remark), width, "  ");
        }
    }
    text += "\nMethod\n";
    for sentence in method(study) {
        text += &bullet(&sentence, width);
    }
    for host in tables::hosts(study) {
        text += &format!("\nHost, {}", table(&host, width));
    }
    text += &format!("\nTo make this report as a page:\n  {}\n", report_command(study));
    printable(&text)
}

/// Figures with the commands that measure their points: one for figures of the same points, below the last of them.
pub(super) fn figures_of(all: &[Figure], width: usize) -> String {
    let mut text = String::new();
    for (ix, figure) in all.iter().enumerate() {
        text += &format!("\n{}", characters::figure(figure, width));
        let is_repeated = all[ix + 1..].iter().any(|later| later.command == figure.command);
        for line in figure.command.lines().filter(|_| !is_repeated) {
            text += &format!("  $ {line}\n");
        }
    }
    text
}

pub(super) fn bullet(text: &str, width: usize) -> String {
    let lines = wrapped(text, width, "  ");
    lines.strip_prefix("  ").map_or_else(String::new, |rest| format!("* {rest}"))
}

/// A table in `width` columns; if names are too long for that, each gets its own line.
pub fn table(table: &Table, width: usize) -> String {
    let columns = table.head.len();
    let rows: Vec<&Vec<String>> = table
        .lines
        .iter()
        .filter_map(|line| match line {
            TableLine::Cells(cells) => Some(cells),
            TableLine::Heading(_) => None,
        })
        .collect();
    let widest = |ix: usize| {
        let cells = rows.iter().filter_map(|row| row.get(ix)).map(|cell| cell.chars().count());
        cells.chain(table.head.get(ix).map(|name| name.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let first = widths.first().copied().unwrap_or(0);
    let figures: usize = widths.iter().skip(1).sum();
    // The widest layout that fits: first with narrower gaps, then with names on their own lines.
    let needs = |(is_split, gap): &(bool, usize)| {
        figures + gap * columns + if *is_split { 0 } else { first + 2 - gap }
    };
    let layouts = [(false, 2), (false, 1), (true, 2)];
    let layout = layouts.into_iter().find(|layout| needs(layout) <= width);
    let (is_split, gap) = layout.unwrap_or((true, 1));
    let gap = " ".repeat(gap);
    let line = |cells: &[String]| {
        let name = cells.first().map_or("", String::as_str);
        let mut text = if !is_split {
            format!("  {name:<first$}")
        } else if name.is_empty() {
            gap.clone()
        } else {
            format!("  {name}\n{gap}")
        };
        for (ix, cell) in cells.iter().enumerate().skip(1) {
            let width = widths.get(ix).copied().unwrap_or(0);
            text += &if ix >= table.figures_from {
                format!("{gap}{cell:>width$}")
            } else {
                format!("{gap}{cell:<width$}")
            };
        }
        format!("{}\n", text.trim_end())
    };
    let title = wrapped(&table.title, width, "");
    let mut text = format!("{title}{}", wrapped(&table.note, width, "  "));
    text += &line(&table.head);
    for row in &table.lines {
        text += &match row {
            TableLine::Heading(title) => format!("  -- {title}\n"),
            TableLine::Cells(cells) => line(cells),
        };
    }
    text
}

/// Removes control characters: text from a store must not command a terminal.
pub(super) fn printable(text: &str) -> String {
    plain(&shown::lines(text))
}
