//! The manual's own text (`MANUAL.md`): its sections as a man page has them.

use crate::ManualError;

const MANUAL: &str = include_str!("MANUAL.md");

/// A section: its title, and what is in it.
pub(crate) struct ManualSection {
    pub title: &'static str,
    pub parts: Vec<SectionPart>,
}

/// A part of a section, in Markdown.
pub(crate) enum SectionPart {
    /// A paragraph in one line.
    Paragraph(String),
    /// A row of a table: its first cell without backticks, and its second.
    Row(String, &'static str),
}

/// All sections, in their order.
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

/// A row below a table's head, whose first cell is code.
fn row(line: &'static str) -> Option<SectionPart> {
    let (name, meaning) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
    Some(SectionPart::Row(name.replace("\\|", "|"), meaning))
}
