//! A study as one page: no script, nothing fetched, and nothing of a store trusted.

#[cfg(test)]
mod tests;

use askama::Template;

use super::{
    figures::{self, Figure, Plot, svg},
    study::{
        self, command, diff as diff_words,
        published::{self, Section},
        tables::{self, Table, TableLine},
        words::{self, Sentence, Tone},
    },
};
use crate::lab::study::{Diff, RunFacts, Study};

/// The page's look.
const STYLE: &str = include_str!("style.css");

/// Lines of a table beyond which it is folded.
const LONG: usize = 40;

/// A figure, drawn.
struct Drawn {
    id: String,
    title: String,
    note: String,
    legend: Vec<(String, String)>,
    is_paired: bool,
    panels: Vec<(String, Vec<String>)>,
    command: String,
}

#[derive(Template)]
#[template(path = "html/page.html")]
struct Page {
    style: &'static str,
    title: String,
    questions: Vec<String>,
    verdict: Vec<(&'static str, String, String)>,
    facts: Vec<(&'static str, String)>,
    figures: Vec<Drawn>,
    tables: Vec<Table>,
    sections: Vec<Section>,
    method: Vec<String>,
    commands: Vec<(String, String)>,
    specs: Vec<(String, String)>,
    hosts: Vec<Table>,
    footer: String,
}

/// The page of a study.
pub fn page(study: &Study) -> askama::Result<String> {
    let names: Vec<&str> = study.runs.iter().map(study::name).collect();
    let page = Page {
        style: STYLE,
        title: names.join(", "),
        questions: questions(&study.runs),
        verdict: verdict(words::verdict(study)),
        facts: facts(study),
        figures: figures::all(study).iter().map(drawn).collect(),
        tables: tables::all(study),
        sections: published::sections(study),
        method: study::method(study),
        commands: commands(study),
        specs: specs(&study.runs),
        hosts: tables::hosts(study),
        footer: footer(study.runs.iter()),
    };
    page.render()
}

/// The page of two runs.
pub fn diff_page(diff: &Diff) -> askama::Result<String> {
    let runs = || diff.before.runs.iter().chain(&diff.after.runs);
    let name = |study: &Study| study.runs.first().map_or("", |run| &run.source).to_owned();
    let mut hosts = tables::hosts(&diff.before);
    hosts.extend(tables::hosts(&diff.after));
    let all: Vec<RunFacts> = runs().cloned().collect();
    let page = Page {
        style: STYLE,
        title: format!("{} against {}", name(&diff.after), name(&diff.before)),
        questions: Vec::new(),
        verdict: verdict(diff_words::verdict(diff)),
        facts: vec![
            ("points of both", diff.both.len().to_string()),
            ("only in the first", diff.only_before.len().to_string()),
            ("only in the second", diff.only_after.len().to_string()),
        ],
        figures: figures::diff::figure(diff).iter().map(drawn).collect(),
        tables: diff_words::tables(diff),
        sections: Vec::new(),
        method: diff_words::method(diff),
        commands: vec![("This page again".to_owned(), diff_words::command(diff))],
        specs: specs(&all),
        hosts,
        footer: footer(runs()),
    };
    page.render()
}

fn questions(runs: &[RunFacts]) -> Vec<String> {
    runs.iter().map(|run| run.run.question.clone()).filter(|text| !text.trim().is_empty()).collect()
}

fn verdict(all: Vec<Sentence>) -> Vec<(&'static str, String, String)> {
    let class = |tone| match tone {
        Tone::More => "more",
        Tone::Less => "less",
        Tone::Neutral => "neutral",
        Tone::Bad => "bad",
    };
    all.into_iter().map(|its| (class(its.tone), its.figure, its.text)).collect()
}

fn facts(study: &Study) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("cells with figures", format!("{} of {}", study.done(), study.cells())),
        ("points", study.points.len().to_string()),
    ];
    let outliers: usize = study.points.iter().map(|point| point.outliers()).sum();
    all.push(("far from the others", format!("{outliers} repetitions")));
    if let Some(run) = study.runs.first() {
        all.push(("begun", study::when(run.run.at_ms)));
        if let Some(session) = run.sessions.first() {
            all.push(("CPU", session.host.cpu.clone()));
            all.push(("KVM", session.host.kvm.clone()));
            all.push(("host's Linux", session.host.kernel.clone()));
        }
    }
    all.retain(|(_, value)| !value.is_empty());
    all
}

fn drawn(figure: &Figure) -> Drawn {
    let kind = match figure.panels.first().map(|panel| &panel.plot) {
        Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| !row.segments.is_empty()) => "fill",
        Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| !row.ridge.is_empty()) => "plain",
        _ => "series",
    };
    let titles = figure.panels.iter().map(|panel| panel.title.clone());
    Drawn {
        id: figure.id.clone(),
        title: figure.title.clone(),
        note: figure.note.clone(),
        legend: figure
            .legend
            .iter()
            .map(|line| (svg::marker(line.style, kind), line.name.clone()))
            .collect(),
        is_paired: figure.has_lines() && figure.panels.len() > 1,
        panels: titles.zip(svg::panels(figure)).collect(),
        command: figure.command.clone(),
    }
}

fn commands(study: &Study) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for run in &study.runs {
        if let Some(started) = command::started(run) {
            all.push((format!("{} was started with", run.source), started));
        }
    }
    all.push(("This page again".to_owned(), study::report_command(study)));
    all
}

fn specs(runs: &[RunFacts]) -> Vec<(String, String)> {
    let spec = |run: &RunFacts| (format!("The spec of {}", run.source), run.run.spec.clone());
    runs.iter().filter(|run| !run.run.spec.trim().is_empty()).map(spec).collect()
}

fn footer<'a>(runs: impl Iterator<Item = &'a RunFacts>) -> String {
    let torn = runs.filter(|run| run.torn).count();
    let torn =
        if torn > 0 { " A store ended in the middle of a line, which is left out." } else { "" };
    format!("Made by pvticket {}. No script, and nothing fetched.{torn}", env!("CARGO_PKG_VERSION"))
}
