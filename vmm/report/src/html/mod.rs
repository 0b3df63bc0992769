//! A study as a single page without scripts or fetched resources. All text from the store is escaped.

#[cfg(test)]
mod tests;

use askama::Template;
use base::sanitize;
use study::findings::Study;

use super::{
    document::Document,
    figures::{Figure, Legend, MANY, Plot, RATIO, THROUGHPUT, svg},
};
use crate::{
    brief::Brief,
    words::{
        sentences::Tone,
        tables::{Table, TableLine},
    },
};

const STYLE: &str = include_str!("style.css");

/// Tables with more lines than this are folded.
const LONG: usize = 40;

#[derive(Template)]
#[template(path = "html/page.html")]
struct Page {
    style: &'static str,
    ratios: Option<Table>,
    bars: Option<Figure>,
    document: Document,
}

/// The page of a study. With a brief, it begins with the brief's sentence and bars.
pub fn page(study: &Study, brief: Option<&Brief>) -> askama::Result<String> {
    let document = Document::for_study(study);
    let Some(brief) = brief else { return document_page(document) };
    let is_single = |figure: &Figure| figure.id == THROUGHPUT || figure.id.starts_with(RATIO);
    let shown = |figure: Figure| {
        if study.layout.is_ratio && is_single(&figure) {
            figure.without_single_marks(|ratio| brief.is_at(ratio))
        } else {
            Some(figure)
        }
    };
    let Document { warnings, answer, findings, figures, .. } = document;
    let warnings = [brief.validity.clone()].into_iter().chain(warnings).chain(brief.notes());
    let document = Document {
        heading: brief.sentence.clone(),
        warnings: warnings.collect(),
        // Below the brief's sentence, answers are findings.
        answer: Vec::new(),
        findings: answer.into_iter().chain(findings).collect(),
        figures: figures.into_iter().filter_map(shown).collect(),
        ..document
    };
    rendered(document, brief.table(), brief.figure())
}

/// The page of a report.
pub fn document_page(document: Document) -> askama::Result<String> {
    rendered(document, None, None)
}

/// Renders a page without control characters: names may contain any text, and cat(1) may print the page.
fn rendered(
    document: Document,
    ratios: Option<Table>,
    bars: Option<Figure>,
) -> askama::Result<String> {
    let page = Page { style: STYLE, ratios, bars, document };
    Ok(sanitize::lines(&page.render()?).into_owned())
}

impl Tone {
    const fn class(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Neutral => "neutral",
            Self::Caution => "caution",
            Self::Bad => "bad",
        }
    }
}

impl Figure {
    /// The marker of a legend's entry.
    fn key(&self, entry: &Legend) -> String {
        let kind = match self.panels.first().map(|panel| &panel.plot) {
            Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| !row.ridge.is_empty()) => "plain",
            Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| row.bar.is_some()) => "bar",
            _ if self.connects_marks() => "series",
            _ => "mark",
        };
        svg::marker(entry.style, kind)
    }

    /// The CSS class for the number of panels side by side.
    fn panels_class(&self) -> &'static str {
        match self.panels.len() {
            MANY.. => " many",
            2.. if self.has_lines() => " pairs",
            _ => "",
        }
    }

    fn rendered_panels(&self) -> Vec<(&str, Vec<String>)> {
        svg::panels(self)
    }
}
