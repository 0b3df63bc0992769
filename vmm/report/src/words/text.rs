//! A report as text, for a terminal or an email.

use super::{
    sentences::Sentence,
    tables::{Table, TableLine},
};
use crate::{
    columns::Columns,
    document::Document,
    figures::{
        Figure,
        characters::{self, wrapped},
    },
    si::spaced,
};
use base::sanitize;

/// Minimum width of a report for a terminal, in columns.
pub const MIN_WIDTH: usize = 80;
/// Maximum width in columns. Longer lines are not easier to read.
const MAX_WIDTH: usize = 120;
/// Width of an email in columns. It may be quoted a few times before it is wrapped.
pub(super) const MAIL: usize = 72;
/// Indentation of tables.
const INDENT: &str = "  ";

/// A form of a report as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    width: usize,
    parts: Parts,
}

/// The parts of a report that a form has in addition to sentences and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Figures, published tables and hosts.
    Full,
    /// The setup, at the beginning.
    SetupFirst,
    /// The setup, at the end; findings are below the tables.
    SetupLast,
}

impl Form {
    /// At most 72 columns: the setup, then tables. No figures.
    pub const MAIL: Self = Self { width: MAIL, parts: Parts::SetupFirst };

    /// For a terminal of this width: the answer and its tables, then the setup.
    pub fn summary(columns: usize) -> Self {
        Self { parts: Parts::SetupLast, ..Self::terminal(columns) }
    }

    /// For a terminal of this width.
    pub fn terminal(columns: usize) -> Self {
        Self { width: columns.clamp(MIN_WIDTH, MAX_WIDTH), parts: Parts::Full }
    }
}

/// Renders a report.
pub fn render(document: &Document, form: Form) -> String {
    let Form { width, parts } = form;
    let is_full = parts == Parts::Full;
    let paragraph = |text: &String| wrapped(&sanitize::line(text), width, "");
    let item = |text: &str| hanging("* ", text, width);
    let items =
        |list: &[Sentence]| list.iter().map(|sentence| item(&sentence.text)).collect::<String>();
    let tables = |list: &[Table]| list.iter().map(|table| block(table, width)).collect::<String>();
    let mut text = String::new();
    if is_full {
        text.extend(document.runs.iter().map(paragraph));
    }
    text.extend(document.questions.iter().map(paragraph));
    if parts != Parts::SetupLast {
        text.push('\n');
    }
    if parts == Parts::SetupFirst && !document.setup.is_empty() {
        text += &format!("{}\n", document.setup);
    }
    text += &items(&document.warnings);
    text.extend(document.answer.iter().map(|sentence| paragraph(&sentence.text)));
    text += &tables(&document.leagues);
    let findings = items(&document.findings);
    if parts == Parts::SetupLast {
        text += &tables(&document.tables);
        text += &format!("\n{findings}\n{}", document.setup);
    } else {
        let has_answer = !document.leagues.is_empty() || !document.answer.is_empty();
        if has_answer && !findings.is_empty() {
            text.push('\n');
        }
        text += &findings;
        if is_full {
            text += &figures(&document.figures, width);
            text.extend(document.heat_maps.iter().map(|map| block(&map.table(), width)));
        }
        text += &tables(&document.tables);
    }
    if is_full {
        text += &published(document, width);
    }
    if !document.method.is_empty() {
        text += "\nMethod\n";
    }
    text.extend(document.method.iter().map(|sentence| item(sentence)));
    if is_full {
        for host in &document.hosts {
            let title = format!("Host, {}", host.title);
            text += &block(&Table { title, ..host.clone() }, width);
        }
    }
    if let Some((purpose, command)) = document.commands.last() {
        let command = sanitize::line(command);
        let command = if is_full { format!("  {command}\n") } else { in_lines(&command, width) };
        text += &format!("\n{purpose}:\n{command}");
    }
    let text = spaced(&sanitize::lines(&text));
    if is_full { text } else { split_long_lines(&text, width) }
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

/// Figures with the commands that measure their points. Equal commands are shown once, below the last figure.
fn figures(figures: &[Figure], width: usize) -> String {
    let mut text = String::new();
    for (ix, figure) in figures.iter().enumerate() {
        text += &format!("\n{}", characters::figure(figure, width));
        let is_repeated = figures[ix + 1..].iter().any(|later| later.command == figure.command);
        for line in figure.command.lines().filter(|_| !is_repeated) {
            text += &format!("  $ {line}\n");
        }
    }
    text
}

/// Text after `label`, with the following lines indented by the same width.
pub(super) fn hanging(label: &str, text: &str, width: usize) -> String {
    let blank = " ".repeat(label.chars().count());
    let lines = wrapped(&sanitize::line(text), width, &blank);
    lines.strip_prefix(&blank).map_or_else(String::new, |overflow| format!("{label}{overflow}"))
}

/// A table after an empty line.
fn block(content: &Table, width: usize) -> String {
    format!("\n{}", table(content, width))
}

/// A table in `width` columns. Columns without room are below the others, with the names repeated; a text
/// without room next to the names is below them.
pub fn table(table: &Table, width: usize) -> String {
    let table = table.single_line().without_empty_columns();
    let names = table.figures_from.min(table.head.len());
    let mut remaining: Vec<usize> = (names..table.head.len()).collect();
    let part = |columns: &[usize]| {
        let indices: Vec<usize> = (0..names).chain(columns.iter().copied()).collect();
        table.clone().with_columns(&indices)
    };
    let mut text =
        format!("{}{}", wrapped(&table.title, width, ""), wrapped(&table.note, width, "  "));
    loop {
        let fits = |count: &usize| gap(&part(&remaining[..*count]), width).is_some();
        let count = (1..=remaining.len()).rev().find(fits).unwrap_or(remaining.len());
        let overflow = remaining.split_off(count);
        text += &rows(&part(&remaining), width);
        if overflow.is_empty() {
            return text;
        }
        remaining = overflow;
    }
}

/// The gap between columns with which all fit into `width`; `None` if they do not.
fn gap(table: &Table, width: usize) -> Option<u16> {
    let columns = columns(table);
    [2, 1].into_iter().find(|gap| INDENT.len() + columns.width(*gap) <= width)
}

/// The head and the rows.
fn columns(table: &Table) -> Columns {
    let mut columns = Columns::new(table.figures_from..usize::MAX);
    [&table.head].into_iter().chain(table.rows()).for_each(|cells| columns.row(cells));
    columns
}

fn rows(table: &Table, width: usize) -> String {
    let table_rows = [&table.head].into_iter().chain(table.rows());
    let lines: Vec<String> = match gap(table, width) {
        Some(gap) => {
            columns(table).lines(gap).iter().map(|line| format!("{INDENT}{line}\n")).collect()
        }
        None => table_rows.map(|cells| stacked(cells, width)).collect(),
    };
    let mut lines = lines.into_iter();
    // The only column of a table needs no name.
    let mut text = lines.next().filter(|_| table.head.len() > 1).unwrap_or_default();
    for line in &table.lines {
        text += &match line {
            TableLine::Heading(title) => format!("{INDENT}-- {title}\n"),
            TableLine::Cells(_) => lines.next().unwrap_or_default(),
        };
    }
    text
}

/// A line that is too long: its last text is below the others.
fn stacked(cells: &[String], width: usize) -> String {
    match cells.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("  {}\n{}", others.join("  "), wrapped(last, width, "    "))
        }
        _ => wrapped(&cells.concat(), width, "  "),
    }
}

/// A command in lines of at most `width` columns, which a shell reads as one line.
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

/// Splits lines of more than `width` columns, also within words that are longer than a line, such as paths.
fn split_long_lines(text: &str, width: usize) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let mut remaining: Vec<char> = line.chars().collect();
        let indent = remaining.iter().take_while(|c| **c == ' ').count().min(width / 2);
        while remaining.len() > width {
            let is_between = |ix: &usize| *ix > indent && remaining[*ix] == ' ';
            let at = (0..=width).rev().find(is_between).unwrap_or(width);
            let overflow = remaining.split_off(at);
            lines.push_str(remaining.iter().collect::<String>().trim_end());
            lines.push('\n');
            let overflow = overflow.into_iter().skip_while(|c| *c == ' ');
            remaining = std::iter::repeat_n(' ', indent).chain(overflow).collect();
        }
        lines.push_str(remaining.iter().collect::<String>().trim_end());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
#[path = "text_tests.rs"]
pub(crate) mod tests;
