//! Parses the manual's text (`MANUAL.md`) into the sections of a man page.

use crate::ManualError;

const MANUAL: &str = include_str!("MANUAL.md");

/// A section: title and contents.
pub(crate) struct ManualSection {
    pub title: &'static str,
    pub parts: Vec<SectionPart>,
}

/// A part of a section, in Markdown.
pub(crate) enum SectionPart {
    /// A paragraph, joined to one line.
    Paragraph(String),
    /// A row of a table: its first cell without backticks, and its second.
    Row(String, &'static str),
}

/// All sections, in order.
pub(crate) fn sections() -> Result<Vec<ManualSection>, ManualError> {
    let sections: Vec<_> = MANUAL.split("\n## ").skip(1).filter_map(section).collect();
    if sections.is_empty() { Err(ManualError::Empty) } else { Ok(sections) }
}

fn section(text: &'static str) -> Option<ManualSection> {
    let (title, text) = text.split_once('\n')?;
    let parts = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.flat_map(|part| match part.strip_prefix('|') {
        Some(_) => part.lines().filter_map(row).collect(),
        None => vec![SectionPart::Paragraph(part.lines().collect::<Vec<_>>().join(" "))],
    });
    Some(ManualSection { title, parts: parts.collect() })
}

/// Parses a table row whose first cell is code; `None` for other rows.
fn row(line: &'static str) -> Option<SectionPart> {
    let (name, meaning) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
    Some(SectionPart::Row(name.replace("\\|", "|"), meaning))
}
