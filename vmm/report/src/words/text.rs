//! A report as text, for a terminal or a mail.

use super::tables::{Table, TableLine};
use crate::{
    document::Document,
    figures::{
        Figure,
        characters::{self, wrapped},
    },
    si::plain,
};
use base::shown;

/// The least width of a terminal's report, in columns.
pub const NARROWEST: usize = 80;
/// The greatest width, in columns; longer lines are no easier to read.
const WIDEST: usize = 120;
/// Columns of a line of a mail, which may be quoted a few times before it is wrapped.
pub(super) const MAIL: usize = 72;

/// A form of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    width: usize,
    has_setup: bool,
}

impl Form {
    /// At most 72 columns, the setup first, then tables: no figures, and no line is longer.
    pub const MAIL: Self = Self { width: MAIL, has_setup: true };

    /// As [`Self::MAIL`], for a terminal of this width.
    pub fn summary(columns: usize) -> Self {
        Self { width: columns.clamp(NARROWEST, WIDEST), has_setup: true }
    }

    /// For a terminal of this width.
    pub fn terminal(columns: usize) -> Self {
        Self { width: columns.clamp(NARROWEST, WIDEST), has_setup: false }
    }
}

/// The whole report.
pub fn render(document: &Document, form: Form) -> String {
    let Form { width, has_setup } = form;
    let paragraph = |text: &str, indent: &str| wrapped(&shown::line(text), width, indent);
    let mut text = String::new();
    if !has_setup {
        text += &document.runs.iter().map(|run| paragraph(run, "")).collect::<String>();
    }
    text += &document.questions.iter().map(|text| paragraph(text, "")).collect::<String>();
    text.push('\n');
    if has_setup && !document.setup.is_empty() {
        text += &format!("{}\n", document.setup);
    }
    for sentence in &document.warnings {
        text += &hanging("* ", &sentence.text, width);
    }
    for sentence in &document.answer {
        text += &paragraph(&sentence.text, "");
    }
    text += &document.leagues.iter().map(|one| below(one, width)).collect::<String>();
    if !document.leagues.is_empty() || !document.answer.is_empty() {
        text.push('\n');
    }
    for sentence in &document.findings {
        text += &hanging("* ", &sentence.text, width);
    }
    if !has_setup {
        text += &figures(&document.figures, width);
        for map in &document.heat_maps {
            text += &below(&map.table(), width);
        }
    }
    text += &document.tables.iter().map(|one| below(one, width)).collect::<String>();
    if !has_setup {
        text += &published(document, width);
    }
    if !document.method.is_empty() {
        text += "\nMethod\n";
    }
    for sentence in &document.method {
        text += &hanging("* ", sentence, width);
    }
    if !has_setup {
        for host in &document.hosts {
            let title = format!("Host, {}", host.title);
            text += &below(&Table { title, ..host.clone() }, width);
        }
    }
    if let Some((purpose, command)) = document.commands.last() {
        let command = shown::line(command);
        let command = if has_setup { in_lines(&command, width) } else { format!("  {command}\n") };
        text += &format!("\n{purpose}:\n{command}");
    }
    let text = plain(&shown::lines(&text));
    if has_setup { cut(&text, width) } else { text }
}

fn published(document: &Document, width: usize) -> String {
    let mut text = String::new();
    for section in &document.sections {
        text += &format!("\nPublished figures: {}\n{}", section.title, table(&section.ours, width));
        for theirs in &section.theirs {
            text += &table(&theirs.table, width);
            text += &wrapped(&format!("source: {}. {}", theirs.source, theirs.remark), width, "  ");
        }
    }
    text
}

/// Figures with the commands that measure their points: one for figures of the same points, below the last of them.
fn figures(all: &[Figure], width: usize) -> String {
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

/// Text after `label`, with further lines as far to the right.
pub(super) fn hanging(label: &str, text: &str, width: usize) -> String {
    let blank = " ".repeat(label.chars().count());
    let lines = wrapped(&shown::line(text), width, &blank);
    lines.strip_prefix(&blank).map_or_else(String::new, |rest| format!("{label}{rest}"))
}

/// A table after an empty line.
fn below(one: &Table, width: usize) -> String {
    format!("\n{}", table(one, width))
}

/// A table in `width` columns. Columns that have no room are below the others, with the names repeated; a text that has
/// no room beside them is below them.
pub fn table(table: &Table, width: usize) -> String {
    let table = table.in_lines().without_empty_columns();
    let names = table.figures_from.min(table.head.len());
    let mut left: Vec<usize> = (names..table.head.len()).collect();
    let part = |columns: &[usize]| {
        let all: Vec<usize> = (0..names).chain(columns.iter().copied()).collect();
        table.clone().with_columns(&all)
    };
    let mut text =
        format!("{}{}", wrapped(&table.title, width, ""), wrapped(&table.note, width, "  "));
    loop {
        let fits = |count: &usize| layout(&part(&left[..*count]), width).is_some();
        let count = (1..=left.len()).rev().find(fits).unwrap_or(left.len());
        let rest = left.split_off(count);
        text += &rows(&part(&left), width);
        if rest.is_empty() {
            return text;
        }
        left = rest;
    }
}

/// Columns of a table, and the space between them.
struct ColumnLayout {
    widths: Vec<usize>,
    gap: usize,
}

/// The layout that fits, with narrower gaps if it has to.
fn layout(table: &Table, width: usize) -> Option<ColumnLayout> {
    let widths = widths(table);
    let needs = |gap: usize| 2 + widths.iter().sum::<usize>() + gap * (widths.len() - 1);
    let gap = [2, 1].into_iter().find(|gap| needs(*gap) <= width)?;
    Some(ColumnLayout { widths, gap })
}

/// The width of each column.
fn widths(table: &Table) -> Vec<usize> {
    let rows = table.lines.iter().filter_map(|line| match line {
        TableLine::Cells(cells) => Some(cells),
        TableLine::Heading(_) => None,
    });
    let all: Vec<&Vec<String>> = rows.chain([&table.head]).collect();
    let widest = |ix: usize| {
        all.iter().filter_map(|row| row.get(ix)).map(|cell: &String| cell.chars().count()).max()
    };
    (0..table.head.len()).map(|ix| widest(ix).unwrap_or(0)).collect()
}

fn rows(table: &Table, width: usize) -> String {
    let layout = layout(table, width);
    let line = |cells: &[String]| match &layout {
        Some(layout) => in_columns(cells, layout, table.figures_from),
        None => one_below_another(cells, width),
    };
    // The only column of a table says itself what it is.
    let mut text = if table.head.len() > 1 { line(&table.head) } else { String::new() };
    for row in &table.lines {
        text += &match row {
            TableLine::Heading(title) => format!("  -- {title}\n"),
            TableLine::Cells(cells) => line(cells),
        };
    }
    text
}

fn in_columns(cells: &[String], layout: &ColumnLayout, figures_from: usize) -> String {
    let gap = " ".repeat(layout.gap);
    let padded = |(ix, (cell, width)): (usize, (&String, &usize))| {
        if ix >= figures_from { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    let cells: Vec<String> = cells.iter().zip(&layout.widths).enumerate().map(padded).collect();
    format!("  {}\n", cells.join(&gap).trim_end())
}

/// A line that is too long: its last text is below the others.
fn one_below_another(cells: &[String], width: usize) -> String {
    match cells.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("  {}\n{}", others.join("  "), wrapped(last, width, "    "))
        }
        _ => wrapped(&cells.concat(), width, "  "),
    }
}

/// A command in lines of at most `width` columns, which a shell takes as one.
fn in_lines(command: &str, width: usize) -> String {
    let mut is_quoted = false;
    let words = command.split(|letter| {
        is_quoted ^= letter == '\'';
        letter == ' ' && !is_quoted
    });
    let mut lines: Vec<String> = vec![" ".to_owned()];
    for word in words {
        match lines.last_mut() {
            // Two columns for the backslash.
            Some(line) if line.chars().count() + word.chars().count() + 3 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.join(" \\\n") + "\n"
}

/// Text without lines of more than `width` columns: words that are longer than a line, such as paths, are cut.
fn cut(text: &str, width: usize) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let mut left: Vec<char> = line.chars().collect();
        let indent = left.iter().take_while(|c| **c == ' ').count().min(width / 2);
        while left.len() > width {
            let is_between = |ix: &usize| *ix > indent && left[*ix] == ' ';
            let at = (0..=width).rev().find(is_between).unwrap_or(width);
            let rest = left.split_off(at);
            lines.push_str(left.iter().collect::<String>().trim_end());
            lines.push('\n');
            let rest = rest.into_iter().skip_while(|c| *c == ' ');
            left = std::iter::repeat_n(' ', indent).chain(rest).collect();
        }
        lines.push_str(left.iter().collect::<String>().trim_end());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
